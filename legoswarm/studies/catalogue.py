"""The studies: what is trained, on what, and what is measured. Data; `run.py` does the work."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from legoswarm.policies.policy import POLICIES
from legoswarm.studies.failure import SEVERAL
from legoswarm.studies.measures import agent_failure, evaluated, head_to_head, symmetries, trajectories
from legoswarm.studies.part import Measure, Part, Scale, Training
from legoswarm.tasks.navigation import Navigation
from legoswarm.tasks.spread import Spread
from legoswarm.tasks.tag import Tag

STEERABLE = ("segnn", "segnn-planar")
METHODS = tuple(name for name in POLICIES.names() if POLICIES[name].in_paper)
ALL = (*METHODS, "segnn-planar")
AS_PUBLISHED = (("critic", "full"),)  # the paper's critic; LEGO's default is that of pairs
WORK_OF_LEGO = (("epochs", 3), ("width", 64))
FEW = (2, 3, 4, 5, 6)  # the paper's team sizes
MIXED = tuple(range(2, 9))  # trained on at once
MANY = (12, 16, 24, 32)  # far beyond


@dataclasses.dataclass(frozen=True)
class Study:
    """Name a table or a figure of the paper, or what lies beyond it, and its parts."""

    about: str
    parts: Callable[[Scale], Iterable[Part]]


def spread(method: str, agents: int, steps: float = 2e6, **task: Any) -> Training:
    """Return a training on Spread at one team size."""
    return Training(Spread(agents=agents, **task), method, int(steps))


def tag(method: str, steps: float = 5e6, **task: Any) -> Training:
    """Return a training on Tag-occlusion, 3 against 2 unless the task says otherwise."""
    return Training(Tag(**task), method, int(steps))


def four(scale: Scale, method: str, protocol: str = "paper") -> Training:
    """Return the four-agent training that generalization, curriculum and beyond share."""
    return spread(method, scale.size(4), protocol=protocol)


def unlimited(**settings: Any) -> Measure:
    """Evaluate without a limit on actions."""
    return evaluated(**settings, changes={"limit": "none"}, label={"limit": "none"})


def learning_curves(scale: Scale, agents: int) -> Iterable[Part]:
    """Train every method at one team size of Spread."""
    return [Part(method, (spread(method, scale.size(agents)),), (evaluated(),)) for method in ALL]


def algorithms(scale: Scale) -> Iterable[Part]:
    """Train two methods with another algorithm than the paper's, and LEGO as it is by default: with four, and mixed."""
    untuned = (("lr", 1e-3), ("gamma", 0.95), ("tau", 0.01))  # what MAPPO's MLP has too
    for method, options in (("lego", untuned), ("mappo", ())):
        trained = dataclasses.replace(spread(method, scale.size(3)), algorithm="masac", options=options)
        yield Part(f"{method}-masac", (trained,), (evaluated(),), f"{method} with masac")
    joint, sizes = (("encoder", "joint"),), tuple(scale.sizes(*MIXED))
    more = tuple(size for size in scale.sizes(*MANY) if size not in sizes)
    measures = (evaluated(agents=sizes), *([evaluated(agents=more, at_most=100)] if more else []))
    trained = dataclasses.replace(four(scale, "lego"), algorithm="masac", options=joint)
    yield Part("lego-joint-masac-4", (trained,), measures, "lego with masac, joint encoder, trained with 4")
    together = Training(
        Spread(agents=max(sizes), sizes=sizes), "lego", 1_500_000, seeds=min(3, scale.seeds), algorithm="masac",
        options=(*joint, *scale.beside("masac", samples=256)),
    )  # fmt: skip
    yield Part("lego-joint-masac-mixed", (together,), measures, "lego with masac, joint encoder, 2 to 8 agents mixed")


def tag_parts(scale: Scale) -> Iterable[Part]:
    """Train every method, with pictures of LEGO at 1e6 and 5e6 steps and of MAPPO."""
    for method in ALL:
        drawn = (trajectories("after 5e6 steps"),) if method in ("lego", "mappo") else ()
        yield Part(method, (tag(method),), (evaluated(), *drawn))
    yield Part("lego-1e6", (tag("lego", 1e6),), (evaluated(), trajectories("")), "lego after 1e6 steps")


def meetings(scale: Scale) -> Iterable[Part]:
    """Let pursuers of three methods meet evaders of each; add LEGO's early ones and those of the paper's critic."""
    three = ("lego", "mappo", "pic")
    for one in three:
        for other in three:
            name = f"{one} against {other}"
            yield Part(f"{one}-{other}", (tag(one), tag(other)), (head_to_head(),), name)
    early, published = tag("lego", 1e6), dataclasses.replace(tag("lego"), options=AS_PUBLISHED)
    yield Part("lego-1e6-mappo", (early, tag("mappo")), (head_to_head(),), "lego after 1e6 steps against mappo")
    yield Part("lego-full-mappo", (published, tag("mappo")), (head_to_head(),), "lego, paper's critic, against mappo")


def run_times(scale: Scale) -> Iterable[Part]:
    """Train one seed of every method with nothing else on the machine; MAPPO also with as much work as LEGO."""
    for method in ALL:
        for agents in scale.sizes(3, 6):
            yield Part(f"{method}-{agents}", (dataclasses.replace(spread(method, agents), seeds=1, alone=True),))
    for agents in scale.sizes(3, 6):
        trained = dataclasses.replace(spread("mappo", agents), seeds=1, alone=True, options=WORK_OF_LEGO)
        yield Part(f"mappo-equal-{agents}", (trained,), label="mappo with LEGO's epochs and width")


def failures(scale: Scale) -> Iterable[Part]:
    """Let a pursuer fail: with the policy of the zoo, which is drawn, and with several that decide claims."""
    yield Part("lego", ("zoo:tag-2v1",), (agent_failure(),))
    yield Part("lego-seeds", (tag("lego", pursuers=2, evaders=1),), (agent_failure(trials=0),), SEVERAL)


def team_sizes(scale: Scale) -> Iterable[Part]:
    """Try policies of four agents at every size; train MAPPO and PIC, which act for one size, for each."""
    sizes = scale.sizes(*FEW)
    for method in ("lego", *STEERABLE):
        yield Part(method, (four(scale, method),), (evaluated(agents=sizes), unlimited(agents=sizes)))
    for method in ("mappo", "pic"):
        for agents in sizes:
            yield Part(f"{method}-{agents}", (spread(method, agents),), (evaluated(), unlimited()))


def curriculum(scale: Scale) -> Iterable[Part]:
    """Compare training from scratch, the four-agent policy as it is, and a curriculum from four agents."""
    sizes = scale.sizes(6, 7, 8)
    for method in ("lego", *STEERABLE):
        yield Part(f"{method}-scl", (four(scale, method),), (evaluated(agents=sizes),), f"{method}-scl")
        short = spread(method, scale.size(4), 1e6)
        for agents in sizes if method == "lego" else sizes[:1]:
            longer = dataclasses.replace(spread(method, agents, 4e6), start=short)
            yield Part(f"{method}-curr-{agents}", (longer,), (evaluated(),), f"{method}-curr")
    for method in ("lego", "mappo"):
        for agents in sizes:
            yield Part(f"{method}-{agents}", (spread(method, agents, 5e6),), (evaluated(),))


def starts(scale: Scale) -> Iterable[Part]:
    """Train with agents on the left and landmarks anywhere; evaluate there, on the right, and anywhere.

    The paper does not say where landmarks are; a variant has them on the agents' side, in training and evaluation.
    """
    places = ("left", "right", "uniform")
    sides = tuple(evaluated(changes={"start": side}, label={"start": side}) for side in places)
    both = tuple(evaluated(changes={"start": s, "landmark_start": s}, label={"start": s}) for s in places)
    for method in ("lego", "mappo-local", "mappo", *STEERABLE):
        drawn = places if method == "lego" else ()
        pictures = tuple(trajectories(f"starts {side}", start=side) for side in drawn)
        yield Part(method, (spread(method, scale.size(3), start="left"),), (*sides, *pictures))
    for method in ("lego", "mappo-local", "mappo"):
        trained = spread(method, scale.size(3), start="left", landmark_start="left")
        yield Part(f"{method}-landmarks", (trained,), both, f"{method}, landmarks too")


def critics(scale: Scale) -> Iterable[Part]:
    """Train LEGO with the paper's critic, and the baselines that can have it with LEGO's."""
    sizes = scale.sizes(*FEW)
    for agents in scale.sizes(3, 4, 6):
        trained = dataclasses.replace(spread("lego", agents), options=AS_PUBLISHED)
        where = evaluated(agents=sizes) if agents == scale.size(4) else evaluated()
        yield Part(f"paper-critic-{agents}", (trained,), (where,), f"lego, paper's critic, trained with {agents}")
    for method in ("mappo", "mappo-local", "mappo-gnn", "segnn"):
        trained = dataclasses.replace(spread(method, scale.size(3)), options=(("critic", "pairs"),))
        yield Part(f"{method}-pairs", (trained,), (evaluated(),), f"{method}, critic of pairs")


def beyond(scale: Scale) -> Iterable[Part]:
    """Vary critics, the frame at rest and precision; try large and mixed team sizes, and the real mpe2."""
    sizes, mixed = evaluated(agents=scale.sizes(*FEW)), tuple(scale.sizes(*MIXED))
    more = tuple(size for size in scale.sizes(*MANY) if size not in mixed)
    all_sizes = [evaluated(agents=mixed), *([evaluated(agents=more, at_most=100)] if more else [])]
    normal = four(scale, "lego")

    def part(name: str, label: str, *measures: Measure, of: Training = normal, **options: Any) -> Part:
        return Part(name, (dataclasses.replace(of, options=tuple(options.items())),), measures, f"lego, {label}")

    yield from critics(scale)
    yield part("rest-global", "rest global", sizes, rest="global")
    published: dict[str, Any] = {"critic": "full", "rest": "global", "leash": 0.0}
    free = unlimited(agents=(scale.size(4),))
    yield part("paper-setup", "paper's critic, rest global, no leash", sizes, free, **published)
    yield part("float32", "float32 throughout", sizes, precision="float32")
    yield part("large-teams", "trained with 4", *all_sizes)
    together = Training(Spread(agents=max(mixed), sizes=mixed), "lego", 5_000_000)
    yield part("mixed-sizes", "2 to 8 agents mixed", *all_sizes, of=together)
    real = evaluated(agents=scale.sizes(*FEW), engine="mpe2", at_most=100, label={"engine": "mpe2"})
    own = evaluated(agents=scale.sizes(*FEW), label={"engine": "legoswarm"})
    yield part("inside-mpe2", "protocol mpe2", own, real, of=four(scale, "lego", protocol="mpe2"))


LOCAL = (("nearest", 7), ("encoder", "joint"))  # who sees its neighbours alone


def at_size(agents: int, arena: str = "", nearest: int | None = None, **changes: Any) -> Measure:
    """Evaluate one team size, with fewer episodes the more agents there are, but six at least."""
    label, few = {"arena": arena} if arena else {}, max(6, 6_400 // agents)
    return evaluated(agents=(agents,), at_most=few, nearest=nearest, changes=changes, label=label)


def swarms(scale: Scale) -> Iterable[Part]:
    """Train with few agents on Spread; evaluate at up to 1,024, in arenas that grow with them.

    Beside it stand zoo:spread, which was never trained for this, and the central controller, which sees everything.
    """
    few = scale.sizes(4, 8, 12)
    world = Spread(agents=max(few), sizes=few, density=1.0, sensing=1.2, horizon=50)
    options, seeds = (*LOCAL, *scale.beside("masac", samples=192)), min(3, scale.seeds)
    trained = Training(world, "lego", 2_000_000, options=options, algorithm="masac", seeds=seeds)
    sizes = scale.sizes(8, 64, 256, 1024)
    yield Part("lego", (trained,), tuple(map(at_size, sizes)), "lego at constant density")
    untrained = [at_size(agents, nearest=8, density=1.0, sensing=1.2, horizon=50) for agents in sizes]
    yield Part("zoo", ("zoo:spread",), tuple(untrained), "zoo:spread, not trained for it")
    central = [at_size(agents, density=1.0, horizon=50) for agents in sizes]
    yield Part("hungarian", ("hungarian",), tuple(central), "hungarian, sees everything")


def navigation(scale: Scale) -> Iterable[Part]:
    """Train with eight agents; evaluate at up to 1,024, with and without obstacles, and in two dense arenas.

    Goals lie at most 3 away, so that trips are alike. The arenas of training have sides of 2 to 4: in the smallest one
    agents meet as often as in the dense arenas. One run, and a part for each kind of arena it is evaluated in.
    """
    world = Navigation(agents=scale.size(8), side=4.0, sides=(2.0, 3.0, 4.0), travel=3.0)
    trained = Training(world, "lego", 1_500_000, options=(("encoder", "joint"),), algorithm="masac")
    sizes = scale.sizes(8, 32, 128, 512, 1024)
    arenas = {
        "free": [at_size(agents, "free", obstacles=0, side=0.0) for agents in sizes],
        "obstacles": [at_size(agents, "with obstacles", side=0.0) for agents in sizes],
        "dense": [at_size(n, "dense", obstacles=0, side=math.sqrt(n / 2)) for n in scale.sizes(32, 128)],
    }
    for name, cells in arenas.items():
        yield Part(f"lego-{name}", (trained,), tuple(cells), f"lego, {name}")


STUDIES = {
    "equivariance": Study(
        "Fig. 1: a scene of Tag, two pursuers swapped, rotated, reflected: actions and the measured error",
        lambda scale: [Part("lego", (tag("lego"),), (symmetries(),))],
    ),
    "spread-3": Study("Fig. A: learning curves on Spread, three agents", partial(learning_curves, agents=3)),
    "spread-6": Study("Fig. B: learning curves on Spread, six agents", partial(learning_curves, agents=6)),
    "tag": Study("Fig. C: learning curves in Tag-occlusion, and trajectories", tag_parts),
    "head-to-head": Study("Fig. D: pursuers of one method against evaders of another", meetings),
    "run-time": Study("Table I: wall-clock for 2e6 interactions of one seed", run_times),
    "generalization": Study("Table II: trained with four agents, evaluated at two to six", team_sizes),
    "curriculum": Study("Table III: from scratch, as it is, and with a curriculum, six to eight agents", curriculum),
    "ood": Study("Table IV: trained with starts on the left, evaluated left, right and anywhere", starts),
    "agent-failure": Study(
        "a pursuer of two stops at step 30 of 100: captures after it, kept, removed and without failure",
        failures,
    ),
    "algorithms": Study("LEGO and MAPPO's MLP trained with MASAC beside MAPPO, three agents", algorithms),
    "swarm": Study("up to 1,024 agents that see their neighbours alone cover landmarks", swarms),
    "navigation": Study("up to 1,024 agents that see their neighbours alone fly to goals of their own", navigation),
    "beyond": Study(
        "what the paper does not show: critics, frames at rest, mixed and large teams, the real mpe2", beyond
    ),
}
