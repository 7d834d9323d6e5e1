"""Row tracking with Java: both engines append, compact and read one table, and every row keeps its id and its snapshot."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Table
from lsm_core.metadata import snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.storage import LocalFileIO
from lsm_core.table.system import SYSTEM_TABLES
from lsm_core.write.row_changes import delete_rows, update_rows
from tests.support.samples import one_in
from tests.support.stores import write

Java = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.paimon_java
Story = dict[int, tuple[int, str, int]]


def by_java(java: Java) -> Story:
    rows = java("read", table="db.t$row_tracking")["rows"]
    story = {row["_ROW_ID"]: (row["k"], row["s"], row["_SEQUENCE_NUMBER"]) for row in rows}
    assert len(story) == len(rows)
    return story


def by_us(store: TableStore) -> Story:
    rows = SYSTEM_TABLES["row_tracking"](store).to_pylist()
    return {row["_ROW_ID"]: (row["k"], row["s"], row["_SEQUENCE_NUMBER"]) for row in rows}


@pytest.mark.parametrize("seed", one_in(3, range(4)))
def test_both_engines_take_turns(tmp_path: Path, java: Java, seed: int) -> None:
    rng = random.Random(seed)
    options = {"bucket": "-1", "row-tracking.enabled": "true", "compaction.min.file-num": "2"}
    options["deletion-vectors.enabled"] = "true" if seed % 2 else "false"
    options["file.format"] = ("parquet", "parquet", "orc", "orc")[seed]  # Java reads no row ids from Avro files
    fields = [{"name": "k", "type": "INT"}, {"name": "s", "type": "STRING"}]
    java("create", schema={"fields": fields, "options": options})
    store = TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")
    story: Story = {}
    next_id = 0
    for step in range(12):
        before = snapshots.latest_id(store) or 0
        what = rng.choice(["write", "write", "compact", "delete", "update"])
        ours = rng.random() < 0.5
        picked = rng.sample(range(20), 3)
        if what == "write":
            keys = [rng.randrange(20) for _ in range(rng.randrange(1, 9))]
            texts = [f"s{step}" for _ in keys]
            if ours:
                write(store, pa.table({"k": pa.array(keys, pa.int32()), "s": texts}))
            else:
                java("write", rows=[{"k": k, "s": s} for k, s in zip(keys, texts, strict=True)])
            story |= {next_id + i: (key, f"s{step}", before + 1) for i, key in enumerate(keys)}
            next_id += len(keys)
        elif what == "compact":
            if ours:
                Table(store).compact(full=True)
            elif story:
                java("compact")
        elif what == "delete":
            delete_rows(store, [("k", "in", picked)])
            story = {i: row for i, row in story.items() if row[0] not in picked}
        else:
            update_rows(store, [("k", "in", picked)], {"s": f"u{step}"})
            story = {i: (k, f"u{step}", before + 1) if k in picked else (k, s, n) for i, (k, s, n) in story.items()}
        assert by_us(store) == story, (step, what, ours)
        if story:
            assert by_java(java) == story, (step, what, ours)
        latest = snapshots.latest(store)
        assert latest is None or latest.next_row_id == next_id
