"""Policies: the role-aware encoder, LEGO, and what other policies have in common with it."""

from legoswarm.policies.config import PolicyConfig as PolicyConfig
from legoswarm.policies.lego import build_lego as build_lego
from legoswarm.policies.policy import Decision as Decision
from legoswarm.policies.policy import Policies as Policies
from legoswarm.policies.policy import RolePolicy as RolePolicy
from legoswarm.policies.policy import make_policies as make_policies
from legoswarm.policies.policy import policy_names as policy_names
from legoswarm.policies.policy import register_policy as register_policy
from legoswarm.policies.sets import register_encoder as register_encoder
from legoswarm.policies.team import Actors as Actors
from legoswarm.policies.team import decide as decide
from legoswarm.policies.team import world_actions as world_actions
