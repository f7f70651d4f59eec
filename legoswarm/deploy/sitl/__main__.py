"""Serve simulated drones: `python -m legoswarm.deploy.sitl --positions "[[0, 0], [1, 0]]"`.

The first line of output is a JSON object with the drones' URIs and the port of the air for a stand-in radio. A line
of input such as {"drone": 0, "faults": {"mute": true}} or {"air": {"loss": 0.2}} injects faults; each line is answered
with a report, or with an error. When the input ends, the world goes on until nobody's motors run, a minute at most:
what was flown can be killed and the drones be watched. `--track FILE` has it write where everybody truly is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from typing import Any, TextIO

from legoswarm.deploy.sitl.endpoint import PLANTS, Endpoint

LINGER_SECONDS = 60.0
TRACK_SECONDS = 0.1


def main() -> None:
    """Serve drones that stand at the positions of the command line."""
    parser = argparse.ArgumentParser(prog="python -m legoswarm.deploy.sitl", description="Serve simulated drones.")
    parser.add_argument("--positions", default="[[0, 0]]", metavar="JSON", help="where the drones stand, m")
    parser.add_argument("--obstacles", default="[]", metavar="JSON", help="where poles stand, m")
    parser.add_argument("--plant", choices=PLANTS, default="point", help="their bodies (default: point)")
    parser.add_argument(
        "--port", type=int, default=19850, metavar="N", help="the first one's UDP port; 0: free ones (default: 19850)"
    )
    parser.add_argument(
        "--loss", type=float, default=0.0, metavar="X", help="share of packets the radio loses each way"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of noise and losses (default: 0)")
    parser.add_argument("--cameras", type=int, metavar="PORT", help="a UDP port to which poses are sent")
    parser.add_argument("--track", metavar="FILE", help="where to write the true positions")
    args = vars(parser.parse_args())
    track, places, poles = (args.pop(name) for name in ("track", "positions", "obstacles"))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # some libraries have something to say when they are imported
            endpoint = Endpoint(json.loads(places), obstacles=json.loads(poles), **args)
        file = None if track is None else open(track, "w", encoding="utf-8")  # noqa: SIM115
    except (TypeError, ValueError, OSError) as error:  # JSON's errors are ValueErrors
        parser.exit(2, f"{parser.prog}: {error}\n")
    with endpoint, contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        if file is not None:
            threading.Thread(target=_follow, args=(endpoint, file), daemon=True).start()
        print(json.dumps({"uris": endpoint.uris, "air": endpoint.air}), flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(endpoint, line)), flush=True)
        deadline = time.monotonic() + LINGER_SECONDS
        while not endpoint.standing and endpoint.error is None and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.5 if file else 0.0)  # what falls comes to rest


def _follow(endpoint: Endpoint, file: TextIO) -> None:
    """Write where everybody is and what has happened, again and again."""
    while True:
        line = {"t": round(time.monotonic(), 3), "places": endpoint.places, "room": endpoint.airspace.report()}
        file.write(json.dumps(line) + "\n")
        file.flush()
        time.sleep(TRACK_SECONDS)


def _answer(endpoint: Endpoint, line: str) -> list[dict[str, Any]] | dict[str, str]:
    """Return a report of all drones, or what is wrong with the line."""
    try:
        request = json.loads(line)
        if "faults" in request:
            endpoint.inject(request["drone"], **request["faults"])
        endpoint.disturb(**request.get("air", {}))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        return {"error": str(error)}
    return endpoint.report()


if __name__ == "__main__":
    main()
