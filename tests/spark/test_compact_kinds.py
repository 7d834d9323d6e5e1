"""Spark compacts tables that look keys up, tell changes and mark rows: the same rows and changes as one process, and as Java."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.errors import CorruptFile, SparkFailed
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.spark import compact_table
from tests.spark.tables import data_files, make_table
from tests.support.samples import one_in
from tests.support.spark import TracedSession, kill_when
from tests.support.stores import live_files

pytestmark = pytest.mark.spark
Java = Callable[..., dict[str, Any]]
Changes = list[dict[int, list[tuple[Any, ...]]]]
NAMES = ("k", "a", "b")
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.string())])
LOOKUP, VECTORS = {"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}
PARTIAL = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
KINDS: dict[str, dict[str, str]] = {
    "lookup": LOOKUP,
    "full-compaction": {"changelog-producer": "full-compaction"},
    "vectors": VECTORS,
    "vectors and lookup": {**LOOKUP, **VECTORS},
    "first-row": {**LOOKUP, "merge-engine": "first-row", "ignore-delete": "true"},
    "partial-update, lookup": {**LOOKUP, **PARTIAL},
    "partial-update, full-compaction, no repeats": {
        "changelog-producer": "full-compaction", "changelog-producer.row-deduplicate": "true", **PARTIAL,
    },
}  # fmt: skip


def written(root: Path, options: dict[str, str], size: int = 12) -> Table:
    """A run on the top level, one on a level between (where keys are looked up), and two files of level 0."""
    table = make_table(
        root, fields=FIELDS, options={"bucket": "1", "num-sorted-run.compaction-trigger": "4", **options}
    )

    def write(keys: range, step: int, *, delete: int = 0) -> None:
        kinds = pa.array(["-D" if delete and k % delete == 0 else "+I" for k in keys])
        a = [None if k % 3 == step % 3 else step * 1000 + k for k in keys]
        table.write(
            pa.table({"k": keys, "a": pa.array(a, pa.int64()), "b": [f"{step}" for _ in keys]}), row_kinds=kinds
        )

    write(range(4 * size), 0)
    table.compact(full=True)
    write(range(4 * size - size // 2, 4 * size + 2), 1)
    table.compact()
    if "full-compaction" not in options.values():
        assert sorted({f.level for f in live_files(table.store)[EMPTY_ROW, 0]}) == [3, 4]
    write(range(2 * size), 2, delete=5)
    write(range(size, 5 * size), 3, delete=7)
    return table


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().select(NAMES).to_pylist())


def changes_of(table: Table) -> Changes:
    """Per snapshot and key, in order."""
    stream, records = table.new_stream_scan(from_snapshot=1), []
    while (batch := stream.next()) is not None:
        records.append(by_key([{"_kind": row.pop("_ROW_KIND"), **row} for row in batch.to_arrow().to_pylist()]))
    return records


def by_key(rows: list[dict[str, Any]]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row["k"], []).append((row["_kind"], *(row[name] for name in NAMES)))
    return found


def replayed(changes: Changes) -> list[tuple[Any, ...]]:
    """The rows that changes make of nothing; what is taken back must be what is there."""
    held: dict[int, tuple[Any, ...]] = {}
    for snapshot in changes:
        for key, item in snapshot.items():
            for kind, *values in item:
                if kind in ("-U", "-D"):
                    assert held.pop(key, None) == tuple(values)
                else:
                    assert key not in held
                    held[key] = tuple(values)
    return sorted(held.values())


def copied(table: Table, place: Path) -> Table:
    shutil.copytree(Path(table.store.root).parents[1], place)
    return Catalog(str(place)).table("db.t")


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    ("kind", "full"),
    one_in(
        3,
        [
            *((kind, False) for kind in KINDS if "full-compaction" not in kind),
            *((kind, True) for kind in KINDS if "full-compaction" in kind or kind == "vectors and lookup"),
        ],
    ),
)
def test_spark_one_process_and_java_say_the_same(spark: Any, tmp_path: Path, java: Java, kind: str, full: bool) -> None:
    table = written(tmp_path / "here", KINDS[kind])
    on_spark, theirs = copied(table, tmp_path / "spark"), copied(table, tmp_path / "java")
    reports = table.compact(full=full), compact_table(spark, on_spark, full=full)
    java("compact", tmp_path / "java", full=full)
    assert [report.verification.level for report in reports] == ["V2", "V2"]
    assert reports[0].numbers()["rows_dropped"] == reports[1].numbers()["rows_dropped"]
    expected = sorted(tuple(row[name] for name in NAMES) for row in java("read", tmp_path / "java")["rows"])
    assert rows_of(table) == rows_of(on_spark) == rows_of(theirs) == expected
    lines = [by_key(event["rows"]) for event in java("stream_read", tmp_path / "java", from_snapshot=1)["events"]]
    assert changes_of(table) == changes_of(on_spark) == lines
    if KINDS[kind].get("changelog-producer"):
        assert replayed(lines) == expected
    for place in ("spark", "here"):
        assert sorted(tuple(row[n] for n in NAMES) for row in java("read", tmp_path / place)["rows"]) == expected


def test_pieces_of_a_bucket_tell_each_change_and_mark_each_row_once(spark: Any, tmp_path: Path) -> None:
    """A lone bucket in several tasks, whose marks and changes become those of one compaction."""
    table = written(tmp_path / "here", {**KINDS["vectors and lookup"], "dredge.compaction.piece-size": "1 kb"}, 6_000)
    on_spark = copied(table, tmp_path / "spark")
    report = compact_table(spark, on_spark)
    table.compact()
    assert report.files_out > 1
    assert rows_of(table) == rows_of(on_spark)
    assert changes_of(table) == changes_of(on_spark)
    assert replayed(changes_of(on_spark)) == rows_of(on_spark)


def test_a_bucket_that_fails_takes_the_changes_and_marks_of_the_others_with_it(spark: Any, tmp_path: Path) -> None:
    table = written(tmp_path, {**KINDS["vectors and lookup"], "bucket": "2"})
    newest = max(live_files(table.store)[EMPTY_ROW, 1], key=lambda file: file.max_sequence_number)
    victim = Path(table.store.data_path(EMPTY_ROW, 1, newest))
    victim.write_bytes(victim.read_bytes()[:-50])
    before = {path for path in tmp_path.rglob("*") if path.is_file() and "ledger" not in path.parts}
    with pytest.raises(CorruptFile, match=victim.name):
        compact_table(spark, table)
    assert {path for path in tmp_path.rglob("*") if path.is_file() and "ledger" not in path.parts} == before


@pytest.mark.parametrize("prefix", one_in(2, ["changelog-", "data-"], 1))
def test_a_killed_compaction_loses_and_doubles_no_change(traced: TracedSession, tmp_path: Path, prefix: str) -> None:
    table = written(tmp_path, KINDS["vectors and lookup"])
    before, result, files = rows_of(table), changes_of(table), data_files(tmp_path)
    known, place = {str(path) for path in tmp_path.rglob("*")}, str(tmp_path)

    def begins(line: dict[str, Any]) -> bool:
        path = line["path"]
        new = path.startswith(place) and path not in known and path.rpartition("/")[2].startswith(prefix)
        return new and line["event"] == "begin"

    killer = kill_when(traced.trace, begins)
    with pytest.raises(SparkFailed, match="Python worker exited"):
        compact_table(traced.spark, table)
    killer.join(5)
    assert len(killer.killed) == 1  # type: ignore[attr-defined]
    assert (rows_of(table), changes_of(table)) == (before, result)
    assert files <= data_files(tmp_path)
    compact_table(traced.spark, table)
    assert replayed(changes_of(table)) == rows_of(table)
    now = changes_of(table)
    assert (len(now), now[:-1]) == (len(result) + 1, result)
