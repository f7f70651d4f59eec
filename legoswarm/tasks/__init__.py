"""Tasks: particle worlds in pure JAX."""

from legoswarm.tasks.limits import Limit as Limit
from legoswarm.tasks.spread import Spread as Spread
from legoswarm.tasks.tag import Tag as Tag
from legoswarm.tasks.task import State as State
from legoswarm.tasks.task import Task as Task
from legoswarm.tasks.task import make_task as make_task
from legoswarm.tasks.task import register_task as register_task
from legoswarm.tasks.task import task_class as task_class
from legoswarm.tasks.task import task_names as task_names
