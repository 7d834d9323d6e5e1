"""Faults at I/O steps of maintenance: a step is not applied, or a change is applied but reported as failed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from lsm_core import Catalog, Table
from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.faults.outcomes import Copies
from tests.faults.strides import points
from tests.maintenance.tables import NOW, content, strays, with_io


def opened_copy(template: Path, place: Path) -> Table:
    """Copy the folder ``template`` to ``place`` and open table db.t of the copied warehouse ``wh``."""
    shutil.copytree(template, place)
    return opened(place)


def opened(place: Path) -> Table:
    """Open table db.t of the warehouse ``place / "wh"``."""
    return Catalog(place / "wh", clock=f"fixed:{NOW}").table("db.t")


def broken_at_steps(
    template: Path,
    folder: Path,
    maintain: Callable[[Table], object],
    is_done: Callable[[Table], bool],
    *,
    least: int,
    stride: int,
) -> None:
    """Break maintenance of copies of a table at I/O steps, and assert that a retry completes the maintenance.

    After each fault, the rows are unchanged and no unreferenced data file remains.

    Args:
        template: folder with the original warehouse.
        folder: folder for the copies.
        maintain: the maintenance.
        is_done: returns whether the maintenance is complete.
        least: maintenance takes more I/O steps than this number.
        stride: every ``stride``-th point is broken.
    """
    before = content(opened(template))
    counting = FaultyFileIO(LocalFileIO())
    maintain(with_io(opened_copy(template, folder / "count"), counting))
    assert counting.steps > least
    unknown, copies = 0, Copies(template, folder)
    for step, mode in points(counting)[::stride]:
        name, path = counting.log[step - 1]
        table = opened(copies.fresh())
        failed: Exception | None = None
        try:
            maintain(with_io(table, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)))
        except (OSError, DredgeError) as error:
            failed = error
        unknown += isinstance(failed, CommitUnknown)
        cleans_up = failed is not None and mode == "before" and not isinstance(failed, CommitUnknown)
        if not copies.is_new((cleans_up, name == "delete")):
            continue
        at = f"step {step} {mode}: {name} {path}"
        assert content(table) == before, at
        if cleans_up:
            left = {stray for stray in strays(table) if stray.startswith("data-")}
            assert not left or name == "delete", at
        maintain(table)
        assert content(table) == before, at
        assert is_done(table), at
    assert unknown <= 2
