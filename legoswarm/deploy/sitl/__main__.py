"""Serve simulated drones until the input ends: `python -m legoswarm.deploy.sitl --positions "[[0, 0], [1, 0]]"`.

The first line of output are the drones' URIs. A line of input such as {"drone": 0, "faults": {"mute": true}} injects
faults; each line is answered with a report, or with an error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import Any

from legoswarm.deploy.sitl.endpoint import PLANTS, Endpoint


def main() -> None:
    """Serve drones that stand at the positions of the command line until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m legoswarm.deploy.sitl", description="Serve simulated drones.")
    parser.add_argument("--positions", default="[[0, 0]]", metavar="JSON", help="where the drones stand, m")
    parser.add_argument("--plant", choices=PLANTS, default="point", help="their bodies (default: point)")
    parser.add_argument(
        "--port", type=int, default=19850, metavar="N", help="the first one's UDP port; 0: free ones (default: 19850)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of noise and losses (default: 0)")
    args = parser.parse_args()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # some libraries have something to say when they are imported
            endpoint = Endpoint(json.loads(args.positions), plant=args.plant, port=args.port, seed=args.seed)
    except (TypeError, ValueError) as error:  # JSON's errors are ValueErrors
        parser.exit(2, f"{parser.prog}: {error}\n")
    with endpoint, contextlib.suppress(KeyboardInterrupt):
        print(json.dumps(endpoint.uris), flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(endpoint, line)), flush=True)


def _answer(endpoint: Endpoint, line: str) -> list[dict[str, Any]] | dict[str, str]:
    """Return a report of all drones, or what is wrong with the line."""
    try:
        request = json.loads(line)
        if "faults" in request:
            endpoint.inject(request["drone"], **request["faults"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        return {"error": str(error)}
    return endpoint.report()


if __name__ == "__main__":
    main()
