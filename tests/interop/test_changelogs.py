"""Changelogs that Dredge writes beside those that Java writes of the same rows: every engine's stream of either table tells the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from tests.support.samples import one_in

Java = Callable[..., dict[str, Any]]
Change = tuple[str, tuple[Any, ...]]

FIELDS = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "INT"}, {"name": "s", "type": "STRING"}]
SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int32()), ("s", pa.string())])
NAMES = SCHEMA.names
COMMITS: list[list[tuple[str, int, int | None]]] = [
    [("+I", 3, 10), ("+I", 1, 10), ("+I", 1, 7), ("-U", 1, 1), ("+U", 8, 80)],
    [("+U", 1, 11), ("-D", 2, 20), ("+I", 4, None), ("-D", 1, 11), ("+I", 1, 12)],
    [("+I", 2, 22), ("+U", 1, 12), ("+I", 3, 30), ("-D", 9, 1)],
]


def rows_of(commit: list[tuple[str, int, int | None]]) -> list[dict[str, Any]]:
    return [{"_kind": kind, "k": k, "v": v, "s": f"s{v}"} for kind, k, v in commit]


def streamed(java: Java, table: Table, name: str) -> list[list[Change]]:
    """What Java and Dredge stream of a table, snapshot by snapshot, in file order; both the same."""
    theirs = [
        [(row["_kind"], tuple(row[n] for n in NAMES)) for row in event["rows"]]
        for event in java("stream_read", table=name, from_snapshot=1)["events"]
    ]
    ours = []
    stream = table.new_stream_scan(from_snapshot=1)
    while (batch := stream.next()) is not None:
        ours.append([(row.pop("_ROW_KIND"), tuple(row.values())) for row in batch.to_arrow().to_pylist()])
    assert ours == theirs
    return ours


def twins(java: Java, tmp_path: Path, options: dict[str, str]) -> tuple[Table, Table]:
    """Two empty tables of the same schema: Java's to write, and ours."""
    for name in ("db.theirs", "db.ours"):
        java("create", table=name, schema={"fields": FIELDS, "primaryKeys": ["k"], "options": options})
    catalog = Catalog(tmp_path)
    return catalog.table("db.theirs"), catalog.table("db.ours")


INPUT: dict[str, dict[str, str]] = {
    "plain": {},
    "own format": {
        "changelog-file.format": "avro",
        "changelog-file.prefix": "cl-",
        "changelog-file.stats-mode": "none",
    },
    "codec": {"changelog-file.compression": "lz4", "file.suffix.include.compression": "true"},
    "levels": {"file.format.per.level": "0:orc", "metadata.stats-mode.per.level": "0:none"},
    "thin": {"data-file.thin-mode": "true", "file-index.bloom-filter.columns": "s"},
    "sequence": {"sequence.field": "v"},
    "ignored": {"ignore-delete": "true"},
    "sums": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.ignore-retract": "true",
    },
}


@pytest.mark.paimon_java
@pytest.mark.parametrize("case", one_in(3, INPUT))
def test_input_rows_are_told_as_java_tells_them(tmp_path: Path, java: Java, case: str) -> None:
    theirs, ours = twins(java, tmp_path, {"bucket": "1", "changelog-producer": "input", **INPUT[case]})
    for number, commit in enumerate(COMMITS):
        rows = rows_of(commit)
        java("write", table="db.theirs", rows=rows, compact="none")
        ours.write(
            pa.Table.from_pylist([{n: row[n] for n in NAMES} for row in rows], schema=SCHEMA),
            pa.array([row["_kind"] for row in rows]),
        )
        if number == 1:
            java("compact", table="db.theirs", full=True)
            ours.compact(full=True)
    changes = streamed(java, theirs, "db.theirs")
    assert streamed(java, ours, "db.ours") == changes
    assert java("read", table="db.ours")["rows"] == java("read", table="db.theirs")["rows"]
    known = (
        "row_count",
        "delete_row_count",
        "level",
        "min_seq",
        "max_seq",
        "file_source",
        "min_key",
        "max_key",
        "value_stats",
    )
    files = [
        [[file[name] for name in known] for file in java("files", table=name, kind="changelog", snapshot=1)["files"]]
        for name in ("db.theirs", "db.ours")
    ]
    assert files[0] == files[1]


def replayed(changes: list[list[Change]]) -> list[tuple[Any, ...]]:
    """The rows that changes make of nothing; what is taken back must be what is there."""
    held: dict[Any, tuple[Any, ...]] = {}
    for kind, row in (change for snapshot in changes for change in snapshot):
        if kind in ("-U", "-D"):
            assert held.pop(row[0]) == row
        else:
            assert row[0] not in held
            held[row[0]] = row
    return sorted(held.values())


LIVES: dict[str, dict[str, str]] = {
    "lookup": {"changelog-producer": "lookup"},
    "lookup sums": {
        "changelog-producer": "lookup",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.ignore-retract": "true",
    },
    "forced": {"force-lookup": "true", "merge-engine": "partial-update", "ignore-delete": "true"},
    "first row": {"changelog-producer": "lookup", "merge-engine": "first-row", "ignore-delete": "true"},
    "full": {"changelog-producer": "full-compaction"},
    "every second": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "2"},
}


@pytest.mark.paimon_java
@pytest.mark.parametrize("case", one_in(4, LIVES))
def test_a_long_lived_writer_tells_its_changes_with_its_commits(tmp_path: Path, java: Java, case: str) -> None:
    """Twelve commits of our stream writer, a few rows each; Java compacts in between, and streams the same as we do."""
    options = LIVES[case]
    java("create", schema={"fields": FIELDS, "primaryKeys": ["k"], "options": {"bucket": "1", **options}})
    table = Catalog(tmp_path).table("db.t")
    commit, told_at = table.new_stream_commit("job"), []
    with table.new_stream_write("job") as writer:
        for number in range(1, 13):
            keys = [(number * 7 + i) % 11 for i in range(5)]
            rows = pa.table({"k": keys, "v": [number] * 5, "s": [f"s{number}"] * 5}, schema=SCHEMA)
            kinds = ["+I", "+U", "+I", "+I", "-D" if "sums" not in case else "+I"]
            writer.write(rows, pa.array(kinds))
            commit.filter_and_commit({number: writer.prepare_commit(commit_identifier=number)})
            last = table.snapshots()[-1]
            if last.changelog_record_count:
                told_at.append(last.commit_identifier)
            if number == 6 and case != "every second":
                java("compact", full=True)
    changes = streamed(java, table, "db.t")
    ours = sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
    assert ours == sorted(tuple(row[n] for n in NAMES) for row in java("read")["rows"])
    if case == "every second":
        assert told_at == [2, 4, 6, 8, 10, 12]
    elif case in ("lookup", "lookup sums", "full"):
        assert told_at == list(range(1, 13))
    if case != "forced":
        assert replayed(changes) == ours
