"""Damage files of every kind, kill training at any moment, fill disks, and count what happens.

    python tools/fuzz_files.py --files 10000 --out results/flight/files.json
    python tools/fuzz_files.py --kills 100 --jobs 8 --out results/flight/kills.json
    python tools/fuzz_files.py --disks 12 --out results/flight/disks.json

A damaged file must be read, or refused by an error of one sentence (FileError or ValueError); anything else, or more
than ten seconds, is counted as a failure. After a SIGKILL, and on a full disk, every file of the run must load, no row
of metrics and no checkpoint may be lost, and the run must go on to the very result of an uninterrupted one. Full disks
are small file systems in memory; to mount them one must be root, or run all of this under `unshare -rm`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from legoswarm.deploy.crazyflies import read_crazyflies
from legoswarm.deploy.flightlog import read_flight
from legoswarm.deploy.runtime import load_runtime
from legoswarm.files import FileError, write_json
from legoswarm.learn.folder import RunFolder
from legoswarm.learn.loop import make_programs
from legoswarm.policies.saved.file import load_policy
from legoswarm.provenance import provenance

HANG_SECONDS = 10
WAIT_SECONDS = 1200  # for a whole command, on a machine that is busy with others
# A run in which there is nearly always something being written.
TINY = "--agents 2 --width 8 --envs 4 --steps 10000 --eval-episodes 2 --evaluations 25 --checkpoint-seconds 0"
BEGIN = f"train spread --algorithm mappo {TINY} --out"
GO_ON = "train --checkpoint-seconds 0 --resume"
FLY = "fly --dry-run --trials 1 --horizon 3 --failure none --rate 10 --out"
SIZES = (4, 120)  # KB of the smallest and the largest disk, on which a whole run finds room
ROBOTS = """fileversion: 3
robots:
  cf1: {enabled: true, uri: radio://0/80/2M/E7E7E7E701, initial_position: [0.0, 0.5, 0.0], type: cf21}
  cf2: {enabled: true, uri: radio://0/80/2M/E7E7E7E702, initial_position: [0.0, -0.5, 0.0], type: cf21}
robot_types: {cf21: {battery: {voltage_warning: 3.8}, firmware_params: {stabilizer: {estimator: 2}}}}
all: {firmware_logging: {enabled: false}}
"""
WORDS = [b"NaN", b"1e999", b"-1", b"null", b"{}", b"[]", b'""', b"&a", b"*a", b"<<:", b"\x00", b"\xff\xfe"]
WORDS += [str(2**70).encode(), b"1" + b"0" * 400, b"[" * 2000]


# Damaged files


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Damage some bytes: flip, cut, insert, repeat, or put a nasty word somewhere."""
    text = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(6):
            case 0 if text:
                text[at % len(text)] ^= 1 << rng.randrange(8)
            case 1:
                del text[at:]
            case 2:
                del text[at : at + rng.randrange(1, 40)]
            case 3:
                text[at:at] = rng.randbytes(rng.randrange(1, 20))
            case 4:
                text[at:at] = text[at : at + rng.randrange(1, 200)]
            case _:
                text[at : at + rng.randrange(0, 8)] = rng.choice(WORDS)
    return bytes(text)


def attempt(read: Callable[[], Any]) -> str:
    """Read something; return whether that went well, was refused, or failed and how."""

    def hang(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(HANG_SECONDS)
    try:
        read()
    except (FileError, ValueError):
        return "refused"
    except TimeoutError:
        return "hung"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"[:200]
    finally:
        signal.alarm(0)
    return "read"


def fuzz(run: Path, flight: Path, count: int, seed: int, scratch: Path) -> dict[str, dict[str, int]]:
    """Damage each kind of file so many times in all; count outcomes."""
    robots, folder = scratch / "crazyflies.yaml", RunFolder(run)
    robots.write_text(ROBOTS)
    skeleton = make_programs(folder.read_config()).skeleton
    kinds: dict[str, tuple[Path, Callable[[], Any]]] = {
        "policy.safetensors": (run / "policy.safetensors", lambda: (load_runtime(run), load_policy(run))),
        "policy.json": (run / "policy.json", lambda: (load_runtime(run), load_policy(run))),
        "checkpoint.safetensors": (run / "checkpoint.safetensors", lambda: folder.load_checkpoint(skeleton)),
        "config.json": (run / "config.json", folder.read_config),
        "metrics.jsonl": (run / "metrics.jsonl", folder.curves),
        "crazyflies.yaml": (robots, lambda: read_crazyflies(robots)),
        "flight log": (flight, lambda: read_flight(flight)),
    }
    rng, outcomes = random.Random(seed), {}
    for kind, (path, read) in kinds.items():
        whole, counts = path.read_bytes(), Counter()
        for _ in range(-(-count // len(kinds))):
            path.write_bytes(mutate(whole, rng))
            counts[attempt(read)] += 1
        path.write_bytes(whole)
        outcomes[kind] = dict(counts)
        print(kind, dict(counts), flush=True)
    return outcomes


# Runs that are cut short


_ONE_AT_A_TIME = threading.Lock()  # JAX traces nothing in two threads at once


class Trial:
    """A run that is cut short again and again, beside one that nobody has disturbed."""

    def __init__(self, path: Path, whole: Path):
        self.path, self.whole = path, whole
        self._best = 0  # the newest checkpoint ever seen, as its iteration
        self._rows = rows(whole)
        with _ONE_AT_A_TIME:
            self._skeleton = make_programs(RunFolder(whole).read_config()).skeleton

    def start(self) -> subprocess.Popen[str]:
        """Begin, or go on where there is something to go on from."""
        begun = (self.path / "config.json").exists()
        return legoswarm(f"{GO_ON if begun else BEGIN} {self.path}")

    def look(self) -> tuple[str, int]:
        """Read every file; return what is wrong with them, or that nothing is, and how many rows there are."""
        folder = RunFolder(self.path)
        if not (self.path / "config.json").exists():
            return ("nothing lost" if not self._best else "all lost"), 0
        try:
            folder.read_config()
            found = rows(self.path)
            with _ONE_AT_A_TIME:
                checkpoint = folder.load_checkpoint(self._skeleton)
                if (self.path / "policy.json").exists():
                    load_policy(self.path)
        except (FileError, ValueError) as error:
            return f"damaged: {error}"[:200], 0
        done = 0 if checkpoint is None else int(checkpoint.iteration.max())
        before, self._best = self._best, max(done, self._best)
        if done < before:
            return "a checkpoint was lost", len(found)
        kept = [row for row in found if row["iteration"] <= done]
        expected = [row for row in self._rows if row["iteration"] <= done]
        return ("nothing lost" if kept == expected else "rows were lost"), len(found)

    @property
    def finished(self) -> bool:
        """Return whether the run has got to its end."""
        return self._best == self._rows[-1]["iteration"]

    def result(self) -> str:
        """Say whether a run that has finished is what an undisturbed one is."""
        names = ("policy.safetensors", "policy.json", "checkpoint.safetensors")
        files = all((self.path / name).read_bytes() == (self.whole / name).read_bytes() for name in names)
        return "as an undisturbed run" if files and rows(self.path) == self._rows else "another result"


def rows(run: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run, without what a clock has measured."""
    clock = ("seconds", "steps_per_second")
    return [{name: row[name] for name in row if name not in clock} for row in RunFolder(run).read_metrics()]


def kill(scratch: Path, whole: Path, count: int, seed: int, jobs: int) -> dict[str, Any]:
    """Kill training at moments spread over the whole run, go on from there, and look at every file in between.

    Several runs are killed side by side, each of them again and again until it has ended.
    """
    shares = [count // jobs + (at < count % jobs) for at in range(jobs)]

    def work(at: int) -> tuple[Counter[str], Counter[str], list[int]]:
        return _kill_often(scratch / f"killed-{at}", whole, shares[at], random.Random(seed + at))

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        chains = list(pool.map(work, range(jobs)))
    counts, results, progress = Counter[str](), Counter[str](), []
    for found in chains:
        counts, results, progress = counts + found[0], results + found[1], progress + found[2]
    quarters = Counter(min(4 * done // len(rows(whole)), 3) for done in progress if done)
    spread = {"before the first row": progress.count(0)}
    spread |= {f"in quarter {at + 1} of the run": quarters[at] for at in range(4)}
    about = {"kills": len(progress), "tracebacks": counts.pop("traceback", 0)}
    found = {**about, **counts, **spread, "runs that ended": dict(results)}
    print(found, flush=True)
    return found


def _kill_often(
    path: Path, whole: Path, count: int, rng: random.Random
) -> tuple[Counter[str], Counter[str], list[int]]:
    """Kill a run so many times; return counts of what was found and how runs ended, and how many rows there were.

    One in five kills comes while the program starts, the others soon after some further row of metrics was written.
    """
    counts, results, progress, trial, done = Counter(), Counter(), [], Trial(path, whole), 0
    while len(progress) < count:
        starts, goal, begun = rng.random() < 0.2, done + rng.randrange(1, 25), time.monotonic()
        late = rng.uniform(0.0, 5.0 if starts else 0.2)  # s
        process = trial.start()
        while not starts and process.poll() is None and _lines(path) < goal:
            time.sleep(0.01)
            assert time.monotonic() - begun < WAIT_SECONDS, "a run hangs"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(late)
        killed = process.poll() is None
        process.kill()
        _, errors = process.communicate()
        state, done = trial.look()
        counts["traceback"] += "Traceback" in errors
        if killed:
            counts[state] += 1
            progress.append(done)
            print(f"{path.name}: {state} after {done} rows", flush=True)
            continue
        results[trial.result() if trial.finished else f"ended: {errors.strip()}"[:200]] += 1
        shutil.rmtree(path, ignore_errors=True)
        trial, done = Trial(path, whole), 0
    return counts, results, progress


def _lines(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[], None]]:
    """Mount a small file system in memory at a folder; give a function that makes it large."""
    folder.mkdir(exist_ok=True)
    options = ["mount", "-t", "tmpfs", "tmpfs", str(folder), "-o"]
    subprocess.run([*options, f"size={kilobytes}k"], check=True)

    def grow() -> None:
        subprocess.run([*options, "remount,size=64m"], check=True)

    try:
        yield grow
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(scratch: Path, whole: Path, count: int) -> dict[str, Any]:
    """Train and fly on disks that get full at some point; go on once there is room."""
    trains, flights, disk = Counter(), Counter(), scratch / "disk"
    low, high = SIZES
    for size in [low + (high - low) * at // max(count - 1, 1) for at in range(count)]:
        with small_disk(disk, size) as grow:
            trial = Trial(disk / "run", whole)
            trains[end(trial.start())] += 1
            trains[trial.look()[0]] += 1
            grow()
            if not trial.finished:
                end(trial.start())
                trial.look()
            trains[trial.result() if trial.finished else "did not go on"] += 1
        with small_disk(disk, size):
            flights[end(legoswarm(f"{FLY} {disk / 'flight'}"))] += 1
            for log in disk.glob("flight/*.jsonl"):
                flights[f"log: {attempt(functools.partial(read_flight, log))}"] += 1
    found = {"disks": count, "KB": list(SIZES), "trainings": dict(trains), "flights": dict(flights)}
    print(found, flush=True)
    return found


def end(process: subprocess.Popen[str]) -> str:
    """Wait for a command and say how it ended."""
    try:
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "hung"
    if "Traceback" in errors:
        return f"traceback: {errors.strip().splitlines()[-1]}"[:200]
    if process.returncode == 2 and errors.splitlines()[-1].startswith("legoswarm "):
        return "refused in one sentence"
    return "finished" if process.returncode == 0 else f"exit code {process.returncode}"


def legoswarm(words: str) -> subprocess.Popen[str]:
    """Start a command line of legoswarm."""
    line = [sys.executable, "-m", "legoswarm.cli", *words.split()]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def main() -> None:
    """Damage, kill and fill as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--disks", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="how many runs are killed side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    begun, parts = time.time(), {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        # Compiled programs are kept from the first run on, and no other training on this machine is waited for.
        os.environ.update(XDG_CACHE_HOME=str(scratch / "cache"), TMPDIR=str(scratch))
        whole = scratch / "whole"
        print("an undisturbed run:", end(legoswarm(f"{BEGIN} {whole}")), flush=True)
        if args.files:
            end(legoswarm(f"{FLY} {scratch / 'flights'}"))
            flight = scratch / "flights/trial-1.jsonl"
            parts["files"] = fuzz(whole, flight, args.files, args.seed, scratch)
        if args.kills:
            parts["kills"] = kill(scratch, whole, args.kills, args.seed, args.jobs)
        if args.disks:
            parts["full disks"] = fill(scratch, whole, args.disks)
    about = {"command": " ".join(["python", *sys.argv]), "seconds": round(time.time() - begun)}
    write_json(args.out, json.loads(json.dumps({**about, **parts, **provenance()})))


if __name__ == "__main__":
    main()
