"""Commands that bring a policy onto robots: export, fly."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from legoswarm.cli.options import REQUIRED, Group, argument, of, random_seed
from legoswarm.own import free_folder


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a policy that runs without JAX: NumPy and ONNX."""

    policy: str = argument(REQUIRED, "a run, a policy file or zoo:NAME", positional=True)
    out: Path = argument(REQUIRED, "a new folder for the files")
    seed: int | None = argument(None, "which seed of the run (default: the best)")
    onnx: bool = argument(True, "ONNX files too; needs the extra onnx")

    def run(self, command_line: str, given: dict[str, Any]) -> None:
        """Write the files and print their names."""
        from legoswarm.deploy.export import export_policy

        print("\n".join(map(str, export_policy(self.policy, self.out, self.seed, self.onnx))))


@dataclasses.dataclass(frozen=True)
class Fly:
    """Fly two pursuers and an evader among two obstacles, as in the paper: 100 steps, and a pursuer fails at step 30.

    Name a crazyflies.yaml to fly real drones (its robots in order: pursuers, then the evader), or fly simulated ones:
    --sitl or --dry-run. With --landmarks a Spread policy flies: agents cover the places of a file. --check takes one
    drone up and down again: begin with that. --faults injects faults into simulated flights and writes how they ended.
    """

    crazyflies: str | None = argument(None, "a crazyflies.yaml of Crazyswarm2", positional=True, nargs="?")
    sitl: bool = argument(False, "simulated drones behind the real cflib, in real time")
    dry_run: bool = argument(False, "simulated drones in this process, without waiting")
    replay: Sequence[Path] = argument((), "draw picture and animations of logs again", metavar="LOG")
    check: bool = argument(False, "connect to the first drone of the file, take off, hover, land")
    faults: bool = argument(False, "fly all known faults and 100 missions with random ones, as JSON")
    statistics: bool = argument(False, "many dry runs against the plain task, as JSON")
    policy: str = argument("zoo:tag-2v1", "who flies", metavar="POLICY")
    out: Path | None = argument(None, "folder of logs and pictures, or the statistics' .json file")
    trials: int | None = argument(None, "flights of simulated drones (default: 3)")
    plant: str = argument("point", "their bodies", choices=("point", "crazyflow"))
    radio: float | None = argument(None, "--sitl over cflib's radio driver, with this loss")
    seed: int = argument(0, "of starts and noise", type=random_seed)
    episodes: int = argument(400, "of the statistics")
    jobs: int = argument(1, "processes of the statistics and of the faults")
    landmarks: Path | None = argument(None, "a file with x and y of a landmark in each line, m, for Spread")
    agents: int | None = argument(None, "how many agents of Spread (default: as many as landmarks)")
    source: str | None = argument(None, "positions from outside: udp:PORT or motioncapture:KIND@HOST", metavar="SOURCE")
    gamepad: bool = argument(False, "any button of a gamepad stops all motors; needs the extra gamepad")
    pursuers: int = argument(2, "how many pursuers")
    evaders: int = argument(1, "how many evaders")
    obstacles: Sequence[float] = argument((0.75, 0.3, -0.75, -0.3), "x y of each, m", nargs="*")

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
            if not draw(self.replay, self.out or self.replay[0].parent):
                raise ValueError("there is nothing to draw: none of these flights got as far as the run")
            return
        if self.faults:
            from legoswarm.deploy.faults import fly_faults

            fly_faults(self.out or Path("faults.json"), print, jobs=self.jobs, command=command_line)
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
            return
        obstacles = self.obstacles if self.landmarks is None or "obstacles" in given else ()
        fly(
            self.policy, setting, self.out or free_folder(Path("flights"), "flight"), crazyflies=self.crazyflies,
            simulation=Simulation(self.plant, self.dry_run, self.radio), seed=self.seed, command=command_line,
            trials=1 if self.crazyflies else 3 if self.trials is None else self.trials,
            obstacles=list(zip(obstacles[::2], obstacles[1::2], strict=True)), source=self.source, gamepad=self.gamepad,
        )  # fmt: skip
