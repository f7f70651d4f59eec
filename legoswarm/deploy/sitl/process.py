"""Simulated drones in a process of their own: they keep time whatever their host does."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np


class EndpointProcess(contextlib.AbstractContextManager["EndpointProcess"]):
    """An `Endpoint` behind `python -m legoswarm.deploy.sitl`, with the same methods."""

    def __init__(self, positions: Sequence[Any] | np.ndarray, **options: Any):
        places = {name: np.array(options.pop(name, []), float).tolist() for name in ("obstacles",)}
        options = {"positions": np.array(positions, float).tolist(), "port": 0, **places, **options}
        given = [f"--{name}={value}" for name, value in options.items() if value is not None]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        # In a session of its own, so that Ctrl-C ends the flight and not the drones.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "legoswarm.deploy.sitl", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        about = self._read()
        self.uris: list[str] = about["uris"]
        self.air: int = about["air"]

    def inject(self, drone: int, **faults: Any) -> None:
        """Change some of a drone's faults (see `Faults`)."""
        self._ask({"drone": drone, "faults": faults})

    def disturb(self, **changes: float) -> None:
        """Change what the air loses and how long a transfer takes."""
        self._ask({"air": changes})

    def report(self) -> list[dict[str, Any]]:
        """Report for each drone what it saw and where it truly is."""
        return self._ask({})

    def settle(self, seconds: float = 6.0) -> None:
        """Wait until everybody has come to rest on the ground, but no longer than some seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(drone["position"][2] > 0.01 for drone in self.report()):
            time.sleep(0.1)
        time.sleep(0.2)  # the track has it by then

    def close(self) -> None:
        """End the world; when this process dies instead, it goes on until everybody's motors stand."""
        if self._process.returncode is None:
            self._process.terminate()
            self._process.communicate()
            self._errors.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: reading says why
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            self._process.communicate()
            with self._errors as file:
                file.seek(0)
                why = file.read().decode().strip().splitlines()
            raise ValueError(f"the simulated drones have ended: {why[-1] if why else 'they do not say why'}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise ValueError(answer["error"])
        return answer
