"""A query that copies one table's changes into another, in a process that is killed at a named point."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from lsm_core.spark.data_source import TableSource
from lsm_core.spark.spark_stream_read import StreamReader
from lsm_core.spark.spark_stream_write import StreamWriter
from tests.support.spark import JAVA_OPTIONS

DIE_AT, GROUP = "DREDGE_TEST_DIE_AT", "DREDGE_TEST_GROUP"
START = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "read.stream.maxFilesPerTrigger": "1"}


class Point(StrEnum):
    """The steps of an epoch, in Spark's order; a query may die after each."""

    OFFSET_FOUND = "offset-found"
    """The epoch's end is known, and not in the checkpoint."""
    PREVIOUS_RECORDED = "previous-recorded"
    """The end is in the checkpoint, and the consumer has the progress of the epoch before."""
    PLANNED = "planned"
    """The tasks are planned."""
    ROWS_READ = "rows-read"
    """A task has read its rows."""
    FILES_WRITTEN = "files-written"
    """A task has written its files."""
    COMMIT_BEGUN = "commit-begun"
    """All tasks have ended."""
    PUBLISHED = "published"
    """The snapshot is there; the checkpoint does not know it."""


def reached(point: Point) -> None:
    """Kill the driver, JVM and all, the n-th time that the point of `DREDGE_TEST_DIE_AT` ("point:n:file of the count") is reached."""
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
    """A reader that may die."""

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
    """A writer that may die."""

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
    """The format, with readers and writers that may die."""

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


def copy(spark: Any, root: str) -> Any:
    """Start the query: the changes of db.a since its first snapshot go to db.b, one file an epoch."""
    place = {"warehouse": root, "table": "db.a", "consumer-id": "copy", **START}
    changes = spark.readStream.format("dredge").options(**place).load()
    target = changes.writeStream.format("dredge").options(warehouse=root, table="db.b", checkpointLocation=f"{root}/at")
    return target.trigger(availableNow=True).start()


def main(root: str) -> None:
    """Copy all there is, or die."""
    from lsm_core.spark import spark_session

    os.environ[GROUP] = str(os.getpgid(0))
    conf = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, "spark.sql.warehouse.dir": f"{root}/spark"}
    spark = spark_session(master="local[1]", conf=conf)
    spark.dataSource.register(DyingSource)
    copy(spark, root).awaitTermination()
