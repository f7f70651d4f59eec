"""Run the command line as `python -m legoswarm.cli`."""

from legoswarm.cli import main

raise SystemExit(main())
