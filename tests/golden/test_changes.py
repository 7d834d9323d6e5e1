"""What Java streamed of every golden table, and what it read of their changes, read by Dredge: row by row, with kinds."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.errors import InvalidSchema
from lsm_core.format.schema import TableSchema
from lsm_core.metadata import changelogs, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.read.table_versions import with_schema
from lsm_core.table.system import SYSTEM_TABLES
from tests.golden.cases import Case, cases, of_changes
from tests.golden.rows import same_rows, table_rows
from tests.support.samples import one_in

Rows = list[dict[str, Any]]
KINDS = ("+I", "-U", "+U", "-D")


# That the others are refused is told in test_golden.py.
READ = cases()


@pytest.mark.parametrize("case", one_in(3, READ), ids=lambda case: case.name)
def test_changes_of_a_table_of_java(case: Case, tmp_path: Path) -> None:
    story = case.story
    store = case.unpack(tmp_path)
    if story["stream"]:
        _streams_as_java(store, story)
    _reads_changes_as_java(store, story)


def _streams_as_java(store: TableStore, story: dict[str, Any]) -> None:
    """Java streamed while the table grew, so each snapshot is read with the schema of its time; what expired is gone."""
    kept = {snapshot.id: snapshot for snapshot in snapshots.iterate(store)}
    kept.update((number, changelogs.read_changelog(store, number)) for number in changelogs.list_changelogs(store))
    expected = {event["snapshot"]: event["rows"] for event in story["stream"] if event["snapshot"] in kept}
    assert set(expected) == {event["snapshot"] for event in story["stream"]} - _expired(story, kept)
    by_schema: dict[int, list[int]] = defaultdict(list)
    for number, snapshot in kept.items():
        by_schema[snapshot.schema_id].append(number)
    streamed: set[int] = set()
    for schema_id, numbers in by_schema.items():
        table = Table(with_schema(store, schema_id))
        found = _streamed(table, min(numbers), max(numbers))
        streamed |= set(found)
        for number, rows in found.items():
            same_changes(rows, expected[number], table.schema)
            same_changes(_as_rows(table.incremental(number - 1, number, _mode(table))), expected[number], table.schema)
    assert streamed == set(expected)


def _expired(story: dict[str, Any], kept: dict[int, Any]) -> set[int]:
    return {int(number) for number in story["snapshots"]} - set(kept)


def _mode(table: Table) -> str:
    """How Java streams the table: what it reads of each snapshot."""
    produced = bool(table.primary_keys) and table.options.get("changelog-producer", "none") != "none"
    return "changelog" if produced else "delta"


def _streamed(table: Table, first: int, last: int) -> dict[int, Rows]:
    found: dict[int, Rows] = {}
    stream = table.new_stream_scan(from_snapshot=first)
    while (stream.checkpoint() or first) <= last:
        try:
            batch = stream.next()
        except InvalidSchema:  # no change of ours is left, and the next one has values that this schema cannot tell
            break
        if batch is None or batch.snapshot_id > last:
            break
        assert not batch.initial
        assert batch.last
        found[batch.snapshot_id] = _as_rows(batch.to_arrow())
    return found


def _as_rows(changes: pa.Table) -> Rows:
    kinds = changes.column("_ROW_KIND").to_pylist()
    rows = table_rows(changes.drop_columns(["_ROW_KIND"]))
    return [{"_kind": kind, **row} for kind, row in zip(kinds, rows, strict=True)]


def same_changes(found: Rows, expected: Rows, schema: TableSchema) -> None:
    """The same rows of the same kinds."""
    assert {row["_kind"] for row in (*found, *expected)} <= set(KINDS)
    for kind in KINDS:
        same_rows([row for row in found if row["_kind"] == kind], [r for r in expected if r["_kind"] == kind], schema)


def _reads_changes_as_java(store: TableStore, story: dict[str, Any]) -> None:
    for asked in story["reads"]:
        command = asked["command"]
        if not of_changes(command):
            continue
        _, _, system = command.get("table", "db.t").partition("$")
        options = command.get("options") or {}
        if "incremental-between" in options:
            table = Table(store.copy(options))
            same_rows(table_rows(table.to_arrow()), asked["rows"], table.schema)
            a, b = options["incremental-between"].split(",")
            changes = _as_rows(Table(store).incremental(a, b))
            read = changes if a.isdigit() else [row for row in changes if row["_kind"] != "-D"]
            same_changes(read, asked["rows"], table.schema)
        if system == "ro":
            same_rows(table_rows(SYSTEM_TABLES["ro"](store)), asked["rows"], store.schema)
        if system == "audit_log":
            found = SYSTEM_TABLES["audit_log"](store)
            rows = _as_rows(found.rename_columns(["_ROW_KIND", *found.column_names[1:]]))
            java = [
                {k: v for k, v in row.items() if k != "rowkind"} | {"_kind": row["rowkind"]} for row in asked["rows"]
            ]
            same_changes(rows, java, store.schema)
