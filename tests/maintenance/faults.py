"""Maintenance broken at every single I/O step: each step not applied, each change also applied but reported failed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from lsm_core import Catalog, Table
from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.maintenance.tables import NOW, content, strays, with_io

_CHANGES = {"write_exclusive", "overwrite", "delete", "mkdirs", "rename", "create", "write", "close"}


def opened_copy(template: Path, place: Path) -> Table:
    """Table db.t of a copy of the warehouse ``template / "wh"``."""
    shutil.copytree(template, place)
    return Catalog(place / "wh", clock=f"fixed:{NOW}").table("db.t")


def broken_at_every_step(
    fresh: Callable[[str], Table], maintain: Callable[[Table], object], is_done: Callable[[Table], bool], *, least: int
) -> None:
    """``maintain`` takes more than ``least`` steps; wherever it breaks the rows stay, no data file is left, and a retry ends it."""
    before = content(fresh("probe"))
    counting = FaultyFileIO(LocalFileIO())
    maintain(with_io(fresh("count"), counting))
    assert counting.steps > least
    unknown = 0
    for step, (name, path) in enumerate(counting.log, 1):
        for mode in ("before", "after") if name in _CHANGES else ("before",):
            table = fresh(f"{step}-{mode}")
            failed: Exception | None = None
            try:
                maintain(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
            except (OSError, DredgeError) as error:
                failed = error
            at = f"step {step} {mode}: {name} {path}"
            assert content(table) == before, at
            if failed is not None and mode == "before" and not isinstance(failed, CommitUnknown):
                left = {stray for stray in strays(table) if stray.startswith("data-")}
                assert not left or name == "delete", at
            unknown += isinstance(failed, CommitUnknown)
            maintain(table)
            assert content(table) == before, at
            assert is_done(table), at
            shutil.rmtree(table.store.root)
    assert unknown <= 2
