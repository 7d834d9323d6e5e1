"""Snapshots that the current Iceberg metadata names: they do not expire, and `holds` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import CorruptFile, PlanStale
from lsm_core.maintenance.actions.expire_snapshots import apply_expiry, expiry_is_due, plan_expiry
from lsm_core.maintenance.history_health import read_history_health
from lsm_core.maintenance.holder_sizes import holds
from lsm_core.metadata import TableStore, snapshots
from tests.support.iceberg import ON, write_metadata

LATER = 1 << 42
ROWS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def _table(folder: Path) -> Table:
    """Return a table with 6 commits, of which the last has compacted all files."""
    catalog = Catalog(str(folder))
    catalog.create_database("shop")
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table("shop.t", ROWS, primary_keys=["k"], options=options)
    for number in range(5):
        table.write(pa.table({"k": [number], "v": ["a"]}, schema=ROWS))
    table.compact(full=True)
    return table


def _published(table: Table, ids: Sequence[int], refs: Sequence[int] = ()) -> TableStore:
    """Write Iceberg metadata that names the snapshots ``ids``; return the table with the option turned on."""
    write_metadata(Path(table.store.root) / "metadata", ids, refs)
    return table.store.copy(ON)


def test_named_snapshots_do_not_expire(tmp_path: Path) -> None:
    table = _table(tmp_path)
    store = _published(table, [4, 5, 6])

    plan = plan_expiry(store, retain_max=1, retain_min=1, older_than_ms=LATER)
    assert "Iceberg metadata v6 names snapshot 4" in plan.declined[0].text
    report = apply_expiry(store, plan).report
    assert snapshots.list_ids(store) == [4, 5, 6]
    assert report.expired == (1, 2, 3)
    again = plan_expiry(store, retain_max=1, retain_min=1, older_than_ms=LATER)
    assert not again.items


def test_the_same_snapshots_expire_once_the_metadata_leaves_them_out(tmp_path: Path) -> None:
    store = _published(_table(tmp_path), [6])
    apply_expiry(store, plan_expiry(store, retain_max=1, retain_min=1, older_than_ms=LATER))
    assert snapshots.list_ids(store) == [6]


def test_metadata_of_a_table_without_the_option_holds_nothing(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _published(table, [1, 6])
    apply_expiry(table.store, plan_expiry(table.store, retain_max=1, retain_min=1, older_than_ms=LATER))
    assert snapshots.list_ids(table.store) == [6]


def test_refs_hold_like_snapshots(tmp_path: Path) -> None:
    store = _published(_table(tmp_path), [5, 6], refs=[3])
    plan = plan_expiry(store, retain_max=1, retain_min=1, older_than_ms=LATER)
    assert "names snapshot 3" in plan.declined[0].text


def test_a_plan_is_stale_when_metadata_names_its_snapshots_since(tmp_path: Path) -> None:
    table = _table(tmp_path)
    store = _published(table, [5, 6])
    plan = plan_expiry(store, retain_max=1, retain_min=1, older_than_ms=LATER)
    _published(table, [2, 6])
    with pytest.raises(PlanStale, match="Iceberg metadata v6 names snapshot 2"):
        apply_expiry(store, plan)
    assert snapshots.list_ids(store) == [1, 2, 3, 4, 5, 6]


def test_damaged_metadata_stops_the_expiry(tmp_path: Path) -> None:
    store = _published(_table(tmp_path), [5, 6])
    (Path(store.root) / "metadata/v6.metadata.json").write_text("{")
    with pytest.raises(CorruptFile, match=r"v6\.metadata\.json"):
        plan_expiry(store, retain_max=1, retain_min=1, older_than_ms=LATER)
    assert snapshots.list_ids(store) == [1, 2, 3, 4, 5, 6]


def test_holds_show_the_metadata_and_its_bytes(tmp_path: Path) -> None:
    store = _published(_table(tmp_path), [4, 5, 6])
    rows = {row["holder"]: row for row in holds(store).to_pylist()}
    held = rows["Iceberg metadata v6, snapshots 4 to 6"]
    assert (held["kind"], held["since"].timestamp()) == ("iceberg", 7)
    assert held["bytes"] == rows["snapshot 5"]["bytes"] > 0
    assert held["files"] == 5


def test_held_snapshots_are_neither_due_nor_overdue(tmp_path: Path) -> None:
    tight = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.time-retained": "1 ms"}
    table = _table(tmp_path)
    free = table.store.copy(tight)
    store = _published(table, [1, 5, 6]).copy(tight)
    assert expiry_is_due(free)
    assert not expiry_is_due(store)
    assert read_history_health(free).overdue == 5
    assert read_history_health(store).overdue == 0
