"""Overwrites through the facade: static, by prefix, dynamic and whole, with rows and without, on every kind of table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from lsm_core.errors import ColumnNotFound, InvalidData, InvalidOption
from lsm_core.metadata import snapshots

COLUMNS = pa.schema(
    [
        pa.field("dt", pa.date32(), nullable=False),
        pa.field("h", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
    ]
)
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "keyed": (["dt", "h", "k"], {"bucket": "2"}),
    "unaware": ([], {}),
    "bucketed": ([], {"bucket": "2", "bucket-key": "k"}),
}


def rows(*listed: tuple[int, int, int]) -> pa.Table:
    days, hours, keys = zip(*listed, strict=True) if listed else ((), (), ())
    return pa.table(
        [pa.array(days, pa.int32()).cast(pa.date32()), pa.array(hours, pa.int32()), pa.array(keys, pa.int64())],
        schema=COLUMNS,
    )


def content(table: Table) -> list[tuple[int, int, int]]:
    found = table.to_arrow()
    days = found["dt"].cast(pa.int32()).to_pylist()
    return sorted(zip(days, found["h"].to_pylist(), found["k"].to_pylist(), strict=True))


@pytest.fixture(params=KINDS)
def table(request: Any, tmp_path: Path) -> Table:
    keys, options = KINDS[request.param]
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    made = catalog.create_table("db.t", Schema(COLUMNS, keys, ["dt", "h"], options))
    made.write(rows(*((d, h, k) for d in (1, 2) for h in (0, 1) for k in (7, 8))))
    return made


def test_a_partition_a_prefix_the_touched_ones_and_everything(table: Table) -> None:
    rest = [(d, h, k) for d in (1, 2) for h in (0, 1) for k in (7, 8)]
    table.write(rows((1, 0, 9)), overwrite={"dt": "1970-01-02", "h": 0})
    rest = [(1, 0, 9), *(row for row in rest if row[:2] != (1, 0))]
    assert content(table) == sorted(rest)
    table.write(rows((2, 1, 5), (2, 3, 5)), overwrite={"dt": "1970-01-03"})
    rest = [(2, 1, 5), (2, 3, 5), *(row for row in rest if row[0] != 2)]
    assert content(table) == sorted(rest)
    table.write(rows((1, 1, 4)), overwrite=True)
    rest = [(1, 1, 4), *(row for row in rest if row[:2] != (1, 1))]
    assert content(table) == sorted(rest)
    table.write(rows((3, 0, 1)))
    table.compact(full=True)
    table.copy({"dynamic-partition-overwrite": "false"}).write(rows((1, 0, 2)), overwrite=True)
    assert content(table) == [(1, 0, 2)]


def test_nothing_in_place_of_a_partition_deletes_it(table: Table) -> None:
    table.write(rows(), overwrite={"h": 1})
    assert content(table) == [(1, 0, 7), (1, 0, 8), (2, 0, 7), (2, 0, 8)]
    assert table.write(rows(), overwrite=True) is None  # touches no partition
    table.drop_partitions([{"dt": "1970-01-02"}])
    assert content(table) == [(2, 0, 7), (2, 0, 8)]
    assert table.write(rows(), overwrite={}) is None  # as True
    assert content(table) == [(2, 0, 7), (2, 0, 8)]
    whole = table.copy({"dynamic-partition-overwrite": "false"})
    whole.write(rows(), overwrite={})
    assert content(table) == []
    assert whole.write(rows(), overwrite={}) is None


@pytest.mark.parametrize("how", ["write", "new_commit"])
def test_an_empty_spec_replaces_what_gets_rows_and_everything_only_where_the_option_says_so(
    table: Table, how: str
) -> None:
    def overwrite(chosen: Table, data: pa.Table) -> None:
        if how == "write":
            chosen.write(data, overwrite={})
            return
        writer = chosen.new_write()
        writer.write(data)
        chosen.new_commit().overwrite(writer.prepare_commit(), {})

    rest = [(d, h, k) for d in (1, 2) for h in (0, 1) for k in (7, 8)]
    overwrite(table, rows((1, 0, 9)))
    assert content(table) == [(1, 0, 9), *(row for row in rest if row[:2] != (1, 0))]
    overwrite(table.copy({"dynamic-partition-overwrite": "false"}), rows((1, 0, 5)))
    assert content(table) == [(1, 0, 5)]


def test_what_does_not_fit_changes_nothing(table: Table) -> None:
    before = content(table)
    with pytest.raises(InvalidData, match="lie outside"):
        table.write(rows((1, 0, 1)), overwrite={"dt": "1970-01-03"})
    with pytest.raises(ColumnNotFound, match="'k'"):
        table.write(rows(), overwrite={"k": 1})
    with pytest.raises(ColumnNotFound, match="'k'"):
        table.drop_partitions([{"dt": "1970-01-02"}, {"k": 1}])
    with pytest.raises(InvalidOption, match="truncate"):
        table.drop_partitions([])
    assert content(table) == before
    assert snapshots.latest_id(table.store) == 1
