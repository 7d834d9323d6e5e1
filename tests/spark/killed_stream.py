"""Query that copies the changes of a table to a second table, in a process that is killed at a named point."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema

from lsm_core.spark.data_source import TableSource
from lsm_core.spark.spark_stream_read import StreamReader
from lsm_core.spark.spark_stream_write import StreamWriter
from tests.spark.streams import task
from tests.support.spark import JAVA_OPTIONS

DIE_AT, GROUP = "DREDGE_TEST_DIE_AT", "DREDGE_TEST_GROUP"
START = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "read.stream.maxFilesPerTrigger": "1"}


class Point(StrEnum):
    """Points of an epoch, in Spark's order, at which a query can be killed."""

    OFFSET_FOUND = "offset-found"
    """The end of the epoch is known, but not in the checkpoint."""
    PREVIOUS_RECORDED = "previous-recorded"
    """The end is in the checkpoint, and the consumer has the progress of the previous epoch."""
    PLANNED = "planned"
    """The tasks are planned."""
    ROWS_READ = "rows-read"
    """A task has read its rows."""
    FILES_WRITTEN = "files-written"
    """A task has written its files."""
    COMMIT_BEGUN = "commit-begun"
    """All tasks have ended."""
    PUBLISHED = "published"
    """The snapshot exists, but the checkpoint does not have the commit."""
    LOGGED = "logged"
    """The checkpoint has the commit of the epoch. Only a query without Spark can be killed here."""


def reached(point: Point) -> None:
    """Kill the process group when a point is reached for the n-th time.

    `DREDGE_TEST_DIE_AT` has the form "point:n:path", with the path of the file that counts.
    """
    wanted, _, rest = os.environ.get(DIE_AT, "").partition(":")
    if wanted != point:
        return
    turn, _, counted = rest.partition(":")
    with Path(counted).open("a+") as count:
        count.write(".")
        count.flush()
        if count.tell() == int(turn):
            os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
            signal.pause()


class DyingReader(StreamReader):
    """Reader that calls `reached` at its points."""

    def partitions(self, start: Any, end: Any) -> Any:
        """See StreamReader."""
        found = super().partitions(start, end)
        reached(Point.PLANNED)
        return found

    def latestOffset(self, start: Any, limit: Any) -> Any:
        """See StreamReader."""
        found = super().latestOffset(start, limit)
        if found != start:
            reached(Point.OFFSET_FOUND)
        return found

    def commit(self, end: Any) -> None:
        """See StreamReader."""
        super().commit(end)
        reached(Point.PREVIOUS_RECORDED)

    def read(self, partition: Any) -> Iterator[Any]:
        """See StreamReader."""
        yield from super().read(partition)
        reached(Point.ROWS_READ)


class DyingWriter(StreamWriter):
    """Writer that calls `reached` at its points."""

    def write(self, iterator: Any) -> Any:
        """See StreamWriter."""
        found = super().write(iterator)
        reached(Point.FILES_WRITTEN)
        return found

    def commit(self, messages: Any, batchId: int) -> None:
        """See StreamWriter."""
        reached(Point.COMMIT_BEGUN)
        super().commit(messages, batchId)
        reached(Point.PUBLISHED)


class DyingSource(TableSource):
    """Data source with `DyingReader` and `DyingWriter`."""

    def streamReader(self, schema: Any) -> Any:
        """See TableSource."""
        made = DyingReader.__new__(DyingReader)
        made.__dict__.update(super().streamReader(schema).__dict__)
        return made

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """See TableSource."""
        made = DyingWriter.__new__(DyingWriter)
        made.__dict__.update(super().streamWriter(schema, overwrite).__dict__)
        return made


def places(root: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of reader and writer: changes of db.a from snapshot 1 to db.b, one file per epoch."""
    read = {"warehouse": root, "table": "db.a", "consumer-id": "copy", **START}
    return read, {"warehouse": root, "table": "db.b", "checkpointLocation": f"{root}/at"}


def copy(spark: Any, root: str) -> Any:
    """Start the query in Spark."""
    read, write = places(root)
    changes = spark.readStream.format("dredge").options(**read).load()
    return changes.writeStream.format("dredge").options(**write).trigger(availableNow=True).start()


def copy_without_spark(root: str, die_at: str = "", run: str = "last") -> None:
    """Run the query as Spark does: log the end of an epoch, execute the epoch, log the commit.

    Args:
        root: warehouse, which also has the logs.
        die_at: value of `DREDGE_TEST_DIE_AT`, or "" to finish.
        run: name of the run.
    """
    if die_at:
        os.setpgid(0, 0)
        os.environ |= {GROUP: str(os.getpid()), DIE_AT: die_at}
    read, write = (DyingSource(options) for options in places(root))
    source = read.streamReader(from_arrow_schema(read._stream().target))
    source.prepareForTriggerAvailableNow()
    offsets, done = (Path(root) / name for name in ("offsets", "done"))
    ends = [json.loads(line) for line in offsets.read_text().splitlines()] if offsets.exists() else []
    committed = len(done.read_text()) if done.exists() else 0
    while True:
        epoch, start = committed, ends[committed - 1] if committed else source.initialOffset()
        if len(ends) == committed:
            end = source.latestOffset(start, source.getDefaultReadLimit())
            if end == start:
                return
            ends.append(end)
            with offsets.open("a") as log:
                log.write(json.dumps(end) + "\n")
            if committed:
                source.commit(start)
        tasks, records = source.partitions(start, ends[epoch]), []
        columns = from_arrow_schema(read._stream().target)
        shipped = pickle.dumps((source, write.streamWriter(columns, overwrite=False)))
        for number, part in enumerate(tasks or [None]):
            with task("query", run, number):
                reading, writing = pickle.loads(shipped)
                records.append(writing.write(iter(reading.read(part) if part else ())))
        write.streamWriter(columns, overwrite=False).commit(records, epoch)
        with done.open("a") as log:
            log.write(".")
        reached(Point.LOGGED)
        committed += 1


def kill_each(runs: str) -> None:
    """Fork a driver for each run, one after the other, and print their exit codes as JSON.

    Call this function in a new process, which has no other threads.

    Args:
        runs: JSON list of the arguments of `copy_without_spark`.
    """
    ended = []
    for root, die_at, run in json.loads(runs):
        pid = os.fork()
        if not pid:
            copy_without_spark(root, die_at, run)
            os._exit(0)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(json.dumps(ended))


def main(root: str) -> None:
    """Run the query in Spark until all data is copied, or until the process is killed."""
    from lsm_core.spark import spark_session

    os.environ[GROUP] = str(os.getpgid(0))
    conf = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, "spark.sql.warehouse.dir": f"{root}/spark"}
    spark = spark_session(master="local[1]", conf=conf)
    spark.dataSource.register(DyingSource)
    copy(spark, root).awaitTermination()
