"""Read options choose the version, or are refused: one that is ignored would answer another question than the one asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import InvalidOption, SnapshotNotFound, TableNotFound, UnsupportedFeature


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three snapshots; snapshot n holds rows 1 to n."""
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    made = catalog.create_table("db.t", Schema(pa.schema([("a", pa.int32())])))
    for number in (1, 2, 3):
        made.write(pa.table({"a": pa.array([number], pa.int32())}))
    return made


def rows(table: Table, **options: str) -> list[int]:
    """What is read with ``options``, in which "_" stands for "-"."""
    named = {f"scan.{key.replace('_', '-')}": text for key, text in options.items()}
    return sorted(table.copy(named).to_arrow().column("a").to_pylist())


def test_an_option_pins_the_snapshot(table: Table) -> None:
    assert rows(table, snapshot_id="2") == [1, 2]
    assert rows(table, snapshot_id="1", mode="from-snapshot-full") == [1]
    assert rows(table, mode="latest-full") == [1, 2, 3]


def test_an_argument_wins_over_the_option(table: Table) -> None:
    assert table.copy({"scan.snapshot-id": "1"}).to_arrow(snapshot_id=3).num_rows == 3


def test_a_snapshot_out_of_range_is_not_found(table: Table) -> None:
    for number in ("0", "4"):
        with pytest.raises(SnapshotNotFound):
            rows(table, snapshot_id=number)


@pytest.mark.parametrize("options", [{"mode": "full", "snapshot_id": "1"}, {"mode": "from-snapshot"}])
def test_a_mode_that_contradicts_the_rest_is_named(table: Table, options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match=r"scan\.mode"):
        rows(table, **options)


@pytest.mark.parametrize(
    ("key", "text"),
    [("incremental-between", "1,2"), ("scan.creation-time-millis", "1"), ("scan.mode", "incremental")],
)
def test_other_reads_are_refused_by_name(table: Table, key: str, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=key):
        table.copy({key: text}).to_arrow()


def test_a_table_that_was_dropped_or_renamed_is_not_an_empty_one(table: Table, tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.rename_table("db.t", "db.u")
    with pytest.raises(TableNotFound, match=r"db\.t was dropped or renamed"):
        table.to_arrow()
    renamed = catalog.table("db.u")
    assert renamed.to_arrow().num_rows == 3
    catalog.drop_table("db.u")
    with pytest.raises(TableNotFound):
        renamed.to_batches()
