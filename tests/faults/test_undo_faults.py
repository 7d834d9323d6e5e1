"""Undoing broken at its I/O steps: the table reads as before, no copy is left behind, and a retry ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Schema, Table
from lsm_core.errors import CommitUnknown, DredgeError, PlanRefused
from lsm_core.storage import FaultyFileIO, LocalFileIO
from tests.faults.outcomes import Copies
from tests.faults.strides import strides
from tests.maintenance.faults import opened, opened_copy
from tests.maintenance.tables import NOW, catalog, content, keyed, rows, strays, with_io

_CHANGES = {"write_exclusive", "overwrite", "delete", "mkdirs", "rename", "create", "write", "close"}
_QUICK = {"commit__min_retry_wait": "1 ms", "commit__max_retry_wait": "1 ms", "commit__max_retries": "2"}


def _keyed(place: Path) -> Table:
    table = keyed(place, **_QUICK)
    for number in range(3):
        table.write(rows(range(number, number + 8), v=10 * number))
    return table


def _tagged(place: Path) -> Table:
    """Its snapshots are gone: the ledger and a tag tell what was compacted."""
    table = keyed(place, dredge__pre_compaction_tag="true", **_QUICK)
    for number in range(3):
        table.write(rows(range(number, number + 8), v=10 * number))
    return table


def _appended(place: Path) -> Table:
    options = {"bucket": "-1", "deletion-vectors.enabled": "true", "compaction.min.file-num": "2"}
    schema = Schema(pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())]), options=options)
    table = catalog(place).create_table("db.t", schema)
    for number in range(3):
        table.write(rows(range(10 * number, 10 * number + 6), v=number))
    table.delete([("k", "in", [1, 12])])
    return table


@strides(43)
@pytest.mark.parametrize("fill", [_keyed, _tagged, _appended])
def test_an_undo_broken_at_its_steps(tmp_path: Path, fill: Callable[[Path], Table], stride: int) -> None:
    template = tmp_path / "template"
    table = fill(template)
    run_id = table.compact(full=True).run_id
    if fill is _tagged:
        table.write(rows([99]))
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=NOW + 10**12)
        table.sweep_trash(now_ms=NOW + 10**12)
    before = content(table)
    counting = FaultyFileIO(LocalFileIO())
    with_io(opened_copy(template, tmp_path / "count"), counting).undo(run_id)
    assert counting.steps > 40
    chosen = [
        (k, mode)
        for k, (name, _) in enumerate(counting.log, 1)
        for mode in ("before", "after")
        if mode == "before" or name in _CHANGES
    ]
    copies = Copies(template, tmp_path)
    for step, mode in chosen[::stride]:
        broken = opened(copies.fresh())
        failed: Exception | None = None
        try:
            with_io(broken, FaultyFileIO(LocalFileIO(), fail_at=step, mode=mode)).undo(run_id)  # type: ignore[arg-type]
        except (OSError, DredgeError) as error:
            failed = error
        name, path = counting.log[step - 1]
        at = f"step {step} {mode}: {name} {path}"
        cleans_up = (
            failed is not None and mode == "before" and not isinstance(failed, CommitUnknown) and name != "delete"
        )
        if not copies.is_new(cleans_up):
            continue
        table = opened(copies.place)
        assert content(table) == before, at
        newest = table.latest_snapshot()
        done = newest is not None and (newest.properties or {}).get("dredge.undo-of") == run_id
        if cleans_up:
            assert not {stray for stray in strays(table) if stray.startswith(("data-", "index-"))}, at
        if done:
            with pytest.raises(PlanRefused, match="already-undone"):
                table.undo(run_id)
        else:
            table.undo(run_id)
        assert content(table) == before, at
        table.compact(full=True)
        assert content(table) == before, at
