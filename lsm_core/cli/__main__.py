"""`python -m lsm_core.cli`: the command `dredge` without its console script, for paths that contain spaces."""

from __future__ import annotations

from lsm_core.cli.app import main

if __name__ == "__main__":
    main()
