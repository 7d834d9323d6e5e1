"""Errors of users in any Spark session: the expected messages, and a check that nothing is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from lsm_core import Catalog, Schema
from lsm_core.locks.file_lock import FileLock
from lsm_core.spark import await_query, compact_table, read_table, write_table
from lsm_core.storage import LocalFileIO

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
SAID = {
    "a type that does not fit": r"^InvalidData: .*db\.t.*column 'v': values of type list<.*> do not fit STRING",
    "a column that is not there": r"^ColumnNotFound: .*db\.t has no column 'nope'; it has k, v",
    "a name twice": r"^InvalidData: .*column 'k': the rows have the column twice: k, k",
    "a null key": r"^InvalidData: .*db\.t.*column 'k'",
    "a null key, by the format": r"InvalidData.*db\.t.*column 'k'|column 'k'.*null",
    "a table that is not there": r"db\.none",
    "an option that is not there": r"'colums'.*cannot be 'k'",
    "a table that is held": r"^LockTimeout: lock \S+ still held by the nightly job since 20.* after [\d.]+ s$",
    "a table that is held, by the format": r"still held by the nightly job since 20",
    "a compaction of a table that is held": r"^LockTimeout: lock \S+ still held by the nightly job",
    "a version that is not there": r"^SnapshotNotFound: .*db\.t.*77",
    "a worker that dies": r"^SparkFailed: Spark failed at writing table db\.t: Python worker exited",
    "a start that has expired": r"^SnapshotNotFound: a stream of table db\.old cannot begin at snapshot 1, which has expired: the table keeps 3 and later",
}
"""Pattern of the error of each case, see `refused`. Dredge's errors have one line; Spark's errors contain the text."""


def dies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Kill the process that reads the first batch."""
    for _ in batches:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from ()


def refused(spark: Any, root: Path) -> dict[str, str]:
    """Execute all cases; return the error "Type: text" of each, and the new files under the key "left"."""
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    options = {
        "bucket": "1",
        "dredge.lock": "file",
        "dredge.lock.acquire-timeout": "50 ms",
        "dredge.lock.lease": "10 min",
    }

    def made(name: str, **more: str) -> Any:
        return catalog.create_table(f"db.{name}", Schema(FIELDS, primary_keys=["k"], options={"bucket": "1", **more}))

    table, held, old = made("t"), made("held", **options), made("old")
    for number in range(3):
        old.write(pa.table({"k": [number], "v": ["a"]}, schema=FIELDS))
        held.write(pa.table({"k": [number], "v": ["a"]}, schema=FIELDS))
    old.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**60)
    FileLock(LocalFileIO(), f"{held.store.root}/dredge/lock", "the nightly job", 600_000, held.store.clock).acquire()

    def query(text: str) -> Any:
        return spark.sql(f"SELECT {text}")

    def form(half: Any, name: str, **more: str) -> Any:
        return half.format("dredge").options(warehouse=str(root), table=name, **more)

    def begin() -> None:
        stream = form(spark.readStream, "db.old", **{"scan.snapshot-id": "1"}).load()
        console = stream.writeStream.format("console").option("checkpointLocation", str(root / "checkpoint"))
        running = console.start()
        try:
            await_query(running, 120)
        finally:
            running.stop()

    good, null = "1L k, 'a' v", "IF(id = 3, NULL, id) k, 'a' v FROM range(0, 5, 1, 1)"
    cases: dict[str, Callable[[], object]] = {
        "a type that does not fit": lambda: write_table(query("1L k, array(1) v"), table),
        "a column that is not there": lambda: write_table(query("1L k, 2 nope"), table),
        "a name twice": lambda: write_table(query("1L k, 2L k"), table),
        "a null key": lambda: write_table(query(null), table),
        "a null key, by the format": lambda: form(query(null).write.mode("append"), "db.t").save(),
        "a table that is not there": lambda: form(spark.read, "db.none").load().collect(),
        "an option that is not there": lambda: form(spark.read, "db.t", colums="k").load().collect(),
        "a table that is held": lambda: write_table(query(good), held),
        "a table that is held, by the format": lambda: form(query(good).write.mode("append"), "db.held").save(),
        "a compaction of a table that is held": lambda: compact_table(spark, held, full=True),
        "a version that is not there": lambda: read_table(spark, table, snapshot_id=77),
        "a worker that dies": lambda: write_table(query(good).mapInArrow(dies, "k BIGINT, v STRING"), table),
        "a start that has expired": begin,
    }
    before = _there(root)
    values = {}
    for name, case in cases.items():
        try:
            case()
        except Exception as error:
            values[name] = f"{type(error).__name__}: {error}"
        else:
            values[name] = "nothing was raised"
    values["left"] = ", ".join(sorted(_there(root) - before))
    return values


def _there(root: Path) -> set[str]:
    """Return the paths of snapshots, data files and staged files of writes."""
    return {
        str(path.relative_to(root))
        for pattern in ("*/*/snapshot/snapshot-*", "*/*/bucket-*/data-*", "*/*/dredge/staged/*")
        for path in root.glob(pattern)
    }
