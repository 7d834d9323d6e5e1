"""`python -m lsm_core.cli`: the same command without its console script, for environments in folders with spaces."""

from __future__ import annotations

from lsm_core.cli.app import main

if __name__ == "__main__":
    main()
