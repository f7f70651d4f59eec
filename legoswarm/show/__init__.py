"""Pictures and animations of trajectories."""

from legoswarm.show.animate import animate as animate
from legoswarm.show.draw import draw_trajectories as draw_trajectories
