"""Every door without Spark leaves the same table after the same writes: the cells of docs/semantics.md 4.5. Those of Spark are in tests/spark/test_inline.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Table
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner
from lsm_core.table.writing import StreamCommit, StreamWrite
from tests.support.table_kinds import KINDS, WRITES, TableKind, batch, create, expected, state

Door = Callable[[Table, pa.Table, int], object]


def commit_batch(table: Table, rows: pa.Table, _: int) -> None:
    with table.new_write() as writer:
        writer.write(rows)
        messages = writer.prepare_commit()
    table.new_commit().commit(messages)


def run_sql(table: Table, text: str) -> None:
    catalog = Catalog(str(Path(table.store.root).parents[1]))
    StatementRunner(Session(catalog), LocalEngine()).run(text)


def values(rows: pa.Table) -> str:
    return ", ".join(f"({row['k']}, {row['v']})" for row in rows.to_pylist())


def insert(table: Table, rows: pa.Table, _: int) -> None:
    run_sql(table, f"INSERT INTO {table.name} VALUES {values(rows)}")


def merge(table: Table, rows: pa.Table, _: int) -> None:
    source = f"(SELECT * FROM (VALUES {values(rows)}) AS given(k, v))"
    matched = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
    run_sql(table, f"MERGE INTO {table.name} AS t USING {source} AS s ON t.k = s.k {matched}")


class Stream:
    """One stream for all writes of a test, as streams are used."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._open: tuple[StreamWrite, StreamCommit] | None = None

    def __call__(self, table: Table, rows: pa.Table, number: int) -> None:
        if self._open is None:
            writer = self._stack.enter_context(table.new_stream_write("stream"))
            self._open = writer, table.new_stream_commit("stream")
        writer, commit = self._open
        writer.write(rows)
        identifier = number + 1  # as Flink counts its checkpoints
        commit.commit(writer.prepare_commit(wait_compaction=True, commit_identifier=identifier), identifier)


@pytest.fixture
def doors() -> Iterator[dict[str, Door]]:
    with ExitStack() as stack:
        yield {
            "Table.write": lambda table, rows, _: table.write(rows),
            "batch commit": commit_batch,
            "stream commit": Stream(stack),
            "upsert": lambda table, rows, _: table.upsert(rows),
            "INSERT": insert,
            "MERGE": merge,
        }


_UPDATING = ("upsert", "MERGE")
PAIRS = [
    (door, kind)
    for kind in KINDS
    for door in ("Table.write", "batch commit", "stream commit", "upsert", "INSERT", "MERGE")
    if door not in _UPDATING or (kind.keyed and kind.upserts and kind.visible)
]
_LIKE = {("stream commit", "`dredge.compaction.inline` = never"): KINDS[0]}
"""Streams compact in the background whatever that option says, as they did before other writers did."""
SAMPLE = [
    ("Table.write", "full-compaction changelog"),
    ("Table.write", "`dredge.compaction.inline` = never"),
    ("batch commit", "`deletion-vectors.enabled`"),
    ("stream commit", "primary key"),
    ("stream commit", "`full-compaction.delta-commits` = 2"),
    ("stream commit", "append, `bucket` = -1"),
    ("stream commit", "append, buckets"),
    ("upsert", "lookup changelog"),
    ("INSERT", "first-row"),
    ("INSERT", "vectors, `write-only`"),
    ("MERGE", "`commit.force-compact`"),
]


@pytest.mark.parametrize(
    ("door", "kind"),
    [
        pytest.param(
            door,
            kind,
            marks=() if (door, kind.name) in SAMPLE else pytest.mark.soak,
            id=f"{door} into {kind.name}",
        )
        for door, kind in PAIRS
    ],
)
def test_every_door_leaves_what_the_page_says(
    tmp_path: Path, doors: dict[str, Door], door: str, kind: TableKind
) -> None:
    table = create(tmp_path, kind)
    for number in range(WRITES):
        doors[door](table.refresh(), batch(number), number)
    assert state(table) == expected(_LIKE.get((door, kind.name), kind))
