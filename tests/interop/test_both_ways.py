"""Java Paimon and pypaimon read what Dredge wrote, and Dredge keeps what they wrote, row by row, at every stage of a table's life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from tests.interop.rows import ALL_TYPES, KEYS, canonical, canonical_java, java_rows, java_schema, rows_of
from tests.support.peers import PyPaimon
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
HOUR = 3_600_000


class Everybody:
    """Compares the three readers."""

    def __init__(self, table: Table, java: Java, pypaimon: PyPaimon) -> None:
        self.table, self.java, self.pypaimon = table, java, pypaimon

    def agree(self, expected: list[tuple[Any, ...]]) -> None:
        names = ALL_TYPES.names
        assert canonical(self.table.to_arrow(), names) == expected
        assert canonical_java(self.java("read")["rows"], ALL_TYPES) == expected
        assert canonical(self.pypaimon.read("db.t"), names) == expected


def model(*changes: tuple[pa.Table, str]) -> list[tuple[Any, ...]]:
    """The answer by a plain dictionary: the last change of a key wins."""
    state: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for table, kind in changes:
        for row in table.to_pylist():
            key = tuple(row[k] for k in KEYS)
            state.pop(key, None)
            if kind == "+I":
                state[key] = canonical(pa.Table.from_pylist([row], schema=ALL_TYPES))[0]
    return sorted(state.values(), key=repr)


def kinds(table: pa.Table, kind: str) -> pa.Array:
    return pa.array([kind] * table.num_rows)


@pytest.mark.paimon_java
@pytest.mark.pypaimon
@pytest.mark.parametrize("partitioned", one_in(2, [False, True], 1), ids=["plain", "partitioned"])
def test_peers_read_a_dredge_table_after_commits_compaction_and_expiry(
    tmp_path: Path, java: Java, pypaimon: PyPaimon, partitioned: bool
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    partition_keys = ["region"] if partitioned else []
    catalog.create_table(
        "db.t", Schema(ALL_TYPES, primary_keys=KEYS, partition_keys=partition_keys, options={"bucket": "2"})
    )
    table = catalog.table("db.t")
    everybody = Everybody(table, java, pypaimon)
    first, second, gone = rows_of(0, 60, 1), rows_of(30, 60, 2), rows_of(10, 25, 3, step=2)
    table.write(first)
    table.write(second)
    table.write(gone, row_kinds=kinds(gone, "-D"))
    expected = model((first, "+I"), (second, "+I"), (gone, "-D"))
    everybody.agree(expected)
    table.compact()
    everybody.agree(expected)
    table.compact(full=True)
    everybody.agree(expected)
    third = rows_of(55, 20, 4)
    table.write(third)
    expected = model((first, "+I"), (second, "+I"), (gone, "-D"), (third, "+I"))
    everybody.agree(expected)
    newest = table.latest_snapshot()
    assert newest is not None
    table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=newest.time_millis + HOUR)
    table.sweep_trash(now_ms=newest.time_millis + 100 * HOUR)
    assert len(table.snapshots()) == 1
    everybody.agree(expected)
    # The table stays alive in Java's hands: it writes, compacts, and we read it again.
    more = rows_of(200, 20, 5)
    java("write", rows=java_rows(more), compact="full")
    expected = model((first, "+I"), (second, "+I"), (gone, "-D"), (third, "+I"), (more, "+I"))
    everybody.table = catalog.table("db.t")
    everybody.agree(expected)


@pytest.mark.paimon_java
@pytest.mark.parametrize("options", one_in(2, [{}, {"sequence.field": "revision"}], 1), ids=["arrival", "sequence"])
def test_dredge_compacts_a_java_table_and_java_reads_it_again(
    tmp_path: Path, java: Java, options: dict[str, str]
) -> None:
    java(
        "create",
        schema={
            "fields": java_schema(ALL_TYPES), "primaryKeys": KEYS, "partitionKeys": ["region"],
            "options": {"bucket": "2", **options},
        },
    )  # fmt: skip
    history = [(rows_of(0, 40, 2), "+I"), (rows_of(20, 40, 3), "+I"), (rows_of(5, 20, 4, step=3), "-D")]
    for rows, kind in history:
        java("write", rows=java_rows(rows, kind), compact="none")
    expected = model(*history)
    table = Catalog(str(tmp_path)).table("db.t")
    assert canonical(table.to_arrow()) == expected
    report = table.compact(full=True)
    assert report.files_in > report.files_out
    assert canonical(table.to_arrow()) == expected
    assert canonical_java(java("read")["rows"], ALL_TYPES) == expected
    late = rows_of(0, 10, 1)
    java("write", rows=java_rows(late), compact="minor")
    after = expected if options else model(*history, (late, "+I"))
    if options:  # rows of a deleted key come back once its tombstone is gone: keep to keys that live
        live = {row[:3] for row in expected}
        returned = [row for row in canonical(late) if row[:3] not in live]
        after = sorted([*expected, *returned], key=repr)
    assert canonical_java(java("read")["rows"], ALL_TYPES) == after
    assert canonical(Catalog(str(tmp_path)).table("db.t").to_arrow()) == after


@pytest.mark.pypaimon
@pytest.mark.paimon_java
def test_dredge_compacts_a_pypaimon_table_and_both_peers_read_it_again(
    tmp_path: Path, java: Java, pypaimon: PyPaimon
) -> None:
    first, second = rows_of(0, 40, 1), rows_of(20, 40, 2)
    pypaimon.create("db.t", first, KEYS, ["region"], {"bucket": "2"})
    pypaimon.write("db.t", first)
    pypaimon.write("db.t", second)
    table = Catalog(str(tmp_path)).table("db.t")
    everybody = Everybody(table, java, pypaimon)
    expected = model((first, "+I"), (second, "+I"))
    everybody.agree(expected)
    table.compact(full=True)
    everybody.agree(expected)
    third = rows_of(50, 30, 3)
    pypaimon.write("db.t", third)
    everybody.table = Catalog(str(tmp_path)).table("db.t")
    everybody.agree(model((first, "+I"), (second, "+I"), (third, "+I")))


@pytest.mark.paimon_java
@pytest.mark.pypaimon
def test_an_append_table_is_read_by_all_before_and_after_compaction(
    tmp_path: Path, java: Java, pypaimon: PyPaimon
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    schema = pa.schema([pa.field(f.name, f.type) for f in ALL_TYPES])
    catalog.create_table("db.t", Schema(schema, partition_keys=["region"], options={"bucket": "-1"}))
    table = catalog.table("db.t")
    written = [rows_of(n * 30, 30, n).cast(schema) for n in range(6)]
    for rows in written:
        table.write(rows)
    java("write", rows=java_rows(rows_of(500, 30, 9)), compact="none")
    expected = canonical(pa.concat_tables([*written, rows_of(500, 30, 9).cast(schema)]))
    everybody = Everybody(catalog.table("db.t"), java, pypaimon)
    everybody.agree(expected)
    report = everybody.table.compact(full=True)
    assert report.files_out < report.files_in
    everybody.agree(expected)
