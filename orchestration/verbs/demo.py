"""`dredge demo`: a year of flights in small commits, maintained by a real Dagster with one shared Spark."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from lsm_core import __version__
from lsm_core.errors import DredgeError

_PORT: Final = 3000
_SCENARIO: Final = "dredge.assets.demo"


def demo(
    headless: Annotated[bool, typer.Option("--headless", help="Assert every expected number, then exit.")] = False,
    port: Annotated[
        int | None, typer.Option("--port", help=f"Port of the UI (default {_PORT}; headless: any).")
    ] = None,
    folder: Annotated[Path, typer.Option("--folder", help="Folder of the demo's files; it is emptied first.")] = Path(
        ".dredge/demo"
    ),
) -> None:
    """Play a year of flights and watch Dredge keep the tables healthy; the UI stays up until Ctrl-C."""
    if find_spec(_SCENARIO) is None:
        raise DredgeError(
            f"the demo is not in the wheel of dredge {__version__}, but in its source: unpack the source distribution "
            f"dredge-{__version__}.tar.gz or clone the repository, and run `make demo` there"
        )
    from dredge.orchestration.verbs.demo_run import run_demo  # the demo and Spark only when it runs

    run_demo(headless=headless, port=port if port is not None or headless else _PORT, folder=folder)
