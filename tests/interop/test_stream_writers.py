"""A long-lived writer of ours and Java's on one table: Java reads and compacts between our commits, and holds writers open itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table

Java = Callable[..., dict[str, Any]]
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
OPTIONS = {"bucket": "2", "num-sorted-run.compaction-trigger": "2"}


def rows(first: int, count: int, value: int) -> pa.Table:
    return pa.table([pa.array(np.arange(first, first + count)), pa.array(np.full(count, value))], schema=FIELDS)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """An empty table."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    catalog.create_table("db.t", Schema(FIELDS, primary_keys=["k"], options=OPTIONS))
    return catalog.table("db.t")


def agree(table: Table, java: Java, expected: dict[int, int]) -> None:
    """Both readers say what a dictionary says."""
    assert {row["k"]: row["v"] for row in java("read")["rows"]} == expected
    found = table.to_arrow()
    assert dict(zip(found.column("k").to_pylist(), found.column("v").to_pylist(), strict=True)) == expected


@pytest.mark.paimon_java
def test_java_compacts_and_writes_between_the_commits_of_our_stream(table: Table, java: Java) -> None:
    commit, expected = table.new_stream_commit("job"), dict[int, int]()
    with table.new_stream_write("job") as writer:
        for number in range(9):
            writer.write(rows(7 * number, 20, number))
            expected |= dict.fromkeys(range(7 * number, 7 * number + 20), number)
            messages = writer.prepare_commit(wait_compaction=number % 2 == 0, commit_identifier=number)
            if number % 3 == 1:
                java("compact", full=True)
            commit.filter_and_commit({number: messages})
            if number % 3 == 2:
                java("write", rows=[{"k": 7 * number, "v": -number}], compact="none")
                expected[7 * number] = -number
            agree(table, java, expected)
    kinds = {(s.commit_user == "job", str(s.commit_kind)) for s in table.snapshots()}
    assert {(True, "COMPACT"), (False, "COMPACT"), (True, "APPEND"), (False, "APPEND")} <= kinds


@pytest.mark.paimon_java
def test_javas_open_writer_and_ours_take_turns(table: Table, java: Java) -> None:
    expected: dict[int, int] = {}
    for number in range(6):
        first = 5 * number
        if number % 2:
            given = [{"k": k, "v": number} for k in range(first, first + 15)]
            java("write", rows=given, writer="open", commit_user="java-job", identifier=number, compact="minor")
        else:
            with table.new_stream_write("job") as writer:
                writer.write(rows(first, 15, number))
                messages = writer.prepare_commit(wait_compaction=True, commit_identifier=number)
            table.new_stream_commit("job").commit(messages, number)
            java("close_writer", writer="open") if number else None
        expected |= dict.fromkeys(range(first, first + 15), number)
        agree(table, java, expected)
