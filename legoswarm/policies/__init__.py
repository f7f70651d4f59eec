"""Policies: LEGO, the baselines, and what they have in common."""

from legoswarm.architecture import PolicyConfig as PolicyConfig
from legoswarm.policies.graph import build_gnn as build_gnn
from legoswarm.policies.lego import build_lego as build_lego
from legoswarm.policies.mlp import build_mappo as build_mappo
from legoswarm.policies.mlp import build_mappo_local as build_mappo_local
from legoswarm.policies.networks.sets import register_encoder as register_encoder
from legoswarm.policies.networks.team import Actors as Actors
from legoswarm.policies.networks.team import decide as decide
from legoswarm.policies.networks.team import world_actions as world_actions
from legoswarm.policies.pic import build_pic as build_pic
from legoswarm.policies.policy import Decision as Decision
from legoswarm.policies.policy import Policies as Policies
from legoswarm.policies.policy import RolePolicy as RolePolicy
from legoswarm.policies.policy import count_parameters as count_parameters
from legoswarm.policies.policy import make_policies as make_policies
from legoswarm.policies.policy import policy_names as policy_names
from legoswarm.policies.policy import register_policy as register_policy
from legoswarm.policies.policy import seal_policies
from legoswarm.policies.segnn import build_segnn as build_segnn
from legoswarm.policies.segnn import build_segnn_planar as build_segnn_planar
from legoswarm.policies.segnn import to_planar as to_planar

seal_policies()
