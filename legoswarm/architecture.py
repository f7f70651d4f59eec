"""What a policy is built from, free of JAX: its configuration as it stands in `policy.json`, and constants."""

from __future__ import annotations

import dataclasses

from legoswarm.configs import option

AXES = ("velocity", "position", "none")
RESTS = ("equivariant", "global")
JOINT = "joint"  # the encoder of all roles at once; others encode each role on its own
SLOW = 0.05  # below this speed the direction of the velocity says little
TINY = 1e-4  # shorter vectors than this have no direction
LEASH_GAIN = 8.0  # how much the pull of the leash grows with the distance beyond it


@dataclasses.dataclass(frozen=True)
class PolicyConfig:
    """What a policy is built from; the defaults are LEGO's, but for the critic: `legoswarm.learn.defaults`."""

    policy: str = option("lego", "which policy")
    width: int = option(64, "features of every layer")
    depth: int = option(2, "layers of each encoder")
    heads: int = option(4, "attention heads")
    encoder: str = option(
        "attention",
        "attention (among the entities of a role), joint (among all entities and the agent itself), deepsets or a "
        "registered one",
    )
    pooling: str = option("mean", "mean or max")
    axis: str = option("velocity", "what the frame's first axis follows: velocity, position or none")
    rest: str = option("equivariant", "the frame at rest: equivariant, or global as in the paper")
    hands: int = option(1, "2 averages the action over both handednesses of the frame")
    leash: float = option(
        1.5, "distance from the centroid of what it sees beyond which an agent is pulled back; 0: never"
    )
    critic: str = option(
        "full",
        "full: the policy's own, of the whole state; local: of what its agent sees (IPPO); pairs: messages between all "
        "pairs of entities",
        shown="pairs for lego, full for others",
    )
    nearest: int = option(0, "encode only so many entities of each role, the nearest; 0: all")
    log_std: float = option(0.0, "initial log standard deviation of actions")
    precision: str = option("auto", "of hidden layers: float32, bfloat16, or auto (bfloat16 on GPUs)")

    def __post_init__(self) -> None:
        for name, lowest, highest in (("width", 1, 4096), ("depth", 0, 32), ("heads", 1, 4096), ("nearest", 0, 10_000)):
            if not lowest <= (value := getattr(self, name)) <= highest:
                raise ValueError(f"the {name} must lie between {lowest} and {highest}, not at {value}")
        if self.encoder in ("attention", JOINT) and self.width % self.heads:
            raise ValueError(f"the width ({self.width}) must be a multiple of the heads ({self.heads})")
        if not self.leash >= 0:
            raise ValueError(f"the leash must be 0 (none) or a distance, not {self.leash}")
        if self.pooling not in ("mean", "max"):
            raise ValueError(f"the pooling must be mean or max, not {self.pooling!r}")
        if self.critic not in ("full", "local", "pairs"):
            raise ValueError(f"the critic must be full (MAPPO), local (IPPO) or pairs, not {self.critic!r}")
        if not -10 <= self.log_std <= 3:
            raise ValueError(f"log_std must lie between -10 and 3, not {self.log_std}")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise ValueError(f"the precision must be auto, float32 or bfloat16, not {self.precision!r}")
        if self.hands not in (1, 2):
            raise ValueError(f"hands must be 1 (one handedness) or 2 (the mean over both), not {self.hands}")
        check_frame(self.axis, self.rest)


def check_frame(axis: str, rest: str) -> None:
    """Refuse unknown or contradictory choices."""
    if axis not in AXES:
        raise ValueError(f"the frame's axis must be one of {', '.join(AXES)}, not {axis!r}")
    if rest not in RESTS:
        raise ValueError(f"the frame's rest must be one of {', '.join(RESTS)}, not {rest!r}")
    if rest == "global" and axis != "velocity":
        raise ValueError("rest 'global' belongs to the velocity axis")
