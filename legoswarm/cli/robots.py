"""Commands that bring a policy onto robots: export, fly."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from legoswarm.cli.made import hint, how_to_open
from legoswarm.cli.options import REQUIRED, Group, argument, of, random_seed
from legoswarm.own import free_folder


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a policy as files that run without JAX: for NumPy, and an ONNX file for each role that acts."""

    policy: str = argument(
        REQUIRED, "a run folder, a policy file or zoo:NAME (zoo:spread, zoo:tag, ...)", positional=True
    )
    out: Path = argument(REQUIRED, "a new folder for the files")
    seed: int | None = argument(None, "which seed of the run (default: the best)")
    onnx: bool = argument(True, "write ONNX files too, which needs the extra onnx")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Write the files and print their names."""
        from legoswarm.deploy.export import export_policy

        print("\n".join(map(str, export_policy(self.policy, self.out, self.seed, self.onnx))), flush=True)
        hint(f"Load it: from legoswarm.deploy.runtime import load_runtime; load_runtime({str(self.out)!r})")


@dataclasses.dataclass(frozen=True)
class Fly:
    """Fly two pursuers and an evader among two obstacles, as in the paper: 100 steps, and a pursuer fails at step 30.

    Begin with --dry-run, which needs no hardware. --sitl flies simulated drones too, in real time and through the real
    Crazyflie library. Name a crazyflies.yaml to fly real drones: its robots are pursuers first, then the evader. Before
    that, --check takes one of them up and down again. With --landmarks a policy of Spread flies: agents cover the
    places of a file. --faults injects faults into simulated flights and writes how they ended.
    """

    crazyflies: str | None = argument(
        None, "a crazyflies.yaml as Crazyswarm2 has it: fly these real drones", positional=True, nargs="?"
    )
    sitl: bool = argument(False, "fly simulated drones in real time, through cflib, the real Crazyflie library")
    dry_run: bool = argument(False, "fly simulated drones as fast as this machine can: a minute in a few seconds")
    replay: Sequence[Path] = argument(
        (), "fly nothing; draw picture and animations again from these logs", metavar="LOG"
    )
    check: bool = argument(False, "fly only the first drone of the file: take off, hover, land")
    faults: bool = argument(
        False, "fly simulated drones with each known fault and 100 times with random ones; write JSON"
    )
    statistics: bool = argument(False, "compare many dry runs with the plain task; write JSON")
    policy: str = argument(
        "zoo:tag-2v1", "which policy flies: a run folder, a policy file or zoo:NAME", metavar="POLICY"
    )
    out: Path | None = argument(
        None,
        "folder for logs and pictures (default: a new one in flights), or a .json file of --statistics or --faults",
    )
    trials: int | None = argument(None, "how often simulated drones fly (default: 3)")
    plant: str = argument(
        "point", "bodies of simulated drones: a moving point, or Crazyflow's quadrotor", choices=("point", "crazyflow")
    )
    radio: float | None = argument(
        None, "--sitl through cflib's radio driver, which loses this share of packets each way"
    )
    seed: int = argument(0, "random seed of starts and noise", type=random_seed)
    episodes: int = argument(400, "how many dry runs --statistics has")
    jobs: int = argument(1, "how many processes --statistics and --faults have")
    landmarks: Path | None = argument(None, "fly Spread: a file with x and y of a landmark in each line, m")
    agents: int | None = argument(None, "with --landmarks: how many drones (default: as many as landmarks)")
    source: str | None = argument(None, "positions from cameras: udp:PORT or motioncapture:KIND@HOST", metavar="SOURCE")
    gamepad: bool = argument(False, "let any button of a gamepad stop all motors; needs the extra gamepad")
    pursuers: int = argument(2, "how many pursuers")
    evaders: int = argument(1, "how many evaders")
    obstacles: Sequence[float] = argument(
        (0.75, 0.3, -0.75, -0.3), "where obstacles stand: x and y of each, m", nargs="*"
    )

    @staticmethod
    def groups(words: Sequence[str]) -> list[Group]:
        """Return what else can be set: the lab, the mission and the safety rules."""
        from legoswarm.deploy.setting import Limits, Plan, Rules, Setting

        lab = [Group("lab", Setting), Group("mission", Plan), Group("safety rules", Rules)]
        return [*lab, Group("trust in positions", Limits)]

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Fly, or draw flights again, or compare many with the plain task."""
        from legoswarm.deploy.fly import Simulation, draw, fly, statistics
        from legoswarm.deploy.setting import Limits, Plan, Rules, Setting, read_landmarks

        ways = (self.crazyflies, self.sitl, self.dry_run, self.replay, self.statistics, self.faults)
        if sum(map(bool, ways)) != 1:
            choices = "--sitl, --dry-run, --replay, --statistics and --faults"
            raise ValueError(f"name a crazyflies.yaml, or choose one of {choices}")
        if self.check and not self.crazyflies:
            raise ValueError("--check needs a crazyflies.yaml")
        if self.source is not None and not self.crazyflies:
            raise ValueError("--source needs a crazyflies.yaml: simulated drones know where they are")
        if len(self.obstacles) % 2:
            raise ValueError("--obstacles takes two numbers for each obstacle, x and y")
        if self.crazyflies and self.trials not in (None, 1):
            raise ValueError("real drones fly one trial at a time: put them back to their places and fly again")
        if self.replay:
            if not (drawn := draw(self.replay, self.out or self.replay[0].parent)):
                raise ValueError("there is nothing to draw: none of these flights got as far as the run")
            hint(how_to_open(drawn[0]))
            return
        if self.faults:
            from legoswarm.deploy.faults import fly_faults

            fly_faults(self.out or Path("faults.json"), print, jobs=self.jobs, command=command_line)
            hint(how_to_open(self.out or Path("faults.json")))
            return
        roles, task = ("pursuer",) * self.pursuers + ("evader",) * self.evaders, of(Setting, given)
        if self.landmarks is not None:
            task["landmarks"] = read_landmarks(self.landmarks)
            roles = ("agent",) * (len(task["landmarks"]) if self.agents is None else self.agents)
        parts = {
            "rules": Rules(**of(Rules, given)),
            "plan": Plan(**of(Plan, given)),
            "limits": Limits(**of(Limits, given)),
        }
        setting = Setting(roles, **parts, **task)
        if self.crazyflies and self.check:
            from legoswarm.deploy.check import check_first

            check_first(self.crazyflies, setting, self.source, self.gamepad)
            return
        if self.statistics:
            how = {"plant": self.plant, "episodes": self.episodes, "seed": self.seed, "jobs": self.jobs}
            statistics(self.policy, setting, self.out or "statistics.json", command=command_line, **how)
            hint(how_to_open(self.out or Path("statistics.json")))
            return
        obstacles = self.obstacles if self.landmarks is None or "obstacles" in given else ()
        out = self.out or free_folder(Path("flights"), "flight")
        fly(
            self.policy, setting, out, crazyflies=self.crazyflies,
            simulation=Simulation(self.plant, self.dry_run, self.radio), seed=self.seed, command=command_line,
            trials=1 if self.crazyflies else 3 if self.trials is None else self.trials,
            obstacles=list(zip(obstacles[::2], obstacles[1::2], strict=True)), source=self.source, gamepad=self.gamepad,
        )  # fmt: skip
        if (picture := out / "trials.png").exists():  # some drone has flown
            hint(how_to_open(picture))
