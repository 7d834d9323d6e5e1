"""The writing half of the data source `dredge`: every Spark task writes the rows it has, and one commit publishes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lsm_core.commit import CommitMessage, Committer, abort, discard_on_failure
from lsm_core.commit.overwrite import asked_scope
from lsm_core.errors import DredgeError, InvalidOption, UnsupportedFeature
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.spark.jobs.failures import decode, encode
from lsm_core.write import TableWrite

# A data source cannot ask Spark for a shuffle, so several tasks may write one bucket: each counts in a range of its own, or two versions of a
# key could share a sequence number and their order would be left to chance (paimon 5872).
_SEQUENCES_PER_TASK = 1 << 32

DYNAMIC_OVERWRITE: Final = "dynamic-partition-overwrite"
PARTITION_OVERWRITE_MODE: Final = "partitionoverwritemode"
"""Spark's name for the option of one write that stands before the session's `spark.sql.sources.partitionOverwriteMode`; keys come in lower case."""
IN_CATALOG: Final = (
    "tables of Spark's own catalog (CREATE TABLE ... USING dredge, saveAsTable): Spark hands their options on to no read. Use "
    "CREATE TEMPORARY VIEW name USING dredge OPTIONS (warehouse '...', table 'db.table') and save(); tables are created by "
    "lsm_core.Catalog.create_table. DROP TABLE removes an entry that is there already, and no data"
)
MODE_OF_SESSION: Final = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """Commit messages of one task, as their versioned bytes; or the ``failure`` that ended it (then its own files are gone)."""

    messages: tuple[bytes, ...] = ()
    failure: bytes = b""
    overwrite_mode: str = ""
    """`spark.sql.sources.partitionOverwriteMode` of the session that writes: only tasks are told."""


class TableWriter(DataSourceArrowWriter):
    """Writes a DataFrame as one commit; ``overwrite`` replaces what `overwrite_scope` says.

    Row order between tasks is the order of the DataFrame's partitions. `write_table` makes fewer files: it shuffles by bucket first.
    """

    def __init__(self, store: TableStore, overwrite: bool, overwrite_mode: str | None = None) -> None:
        """``overwrite_mode``: "static" or "dynamic", in place of the session's. Raises InvalidOption, UnsupportedFeature."""
        if overwrite_mode is not None and overwrite_mode.lower() not in {"static", "dynamic"}:
            raise InvalidOption("partitionOverwriteMode", overwrite_mode, "static or dynamic", store.name)
        require_writable(store)
        self._store_text, self._overwrite, self._overwrite_mode = store.to_json(), overwrite, overwrite_mode

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one Spark partition. An error is handed to `commit`: raised here, Spark would kill the other tasks, and their files stay."""
        context = TaskContext.get()
        assert context is not None
        number, store = int(context.partitionId()), TableStore.from_json(self._store_text)
        if _makes_a_catalog_table(context):
            return TaskMessage(failure=encode(UnsupportedFeature(IN_CATALOG, store.name)))
        write = TableWrite(
            store,
            overwrite=self._overwrite,
            sequence_offset=number * _SEQUENCES_PER_TASK,
        )
        try:
            for batch in iterator:
                write.write(batch)
            messages = tuple(message.to_bytes() for message in write.prepare_commit())
            return TaskMessage(messages, overwrite_mode=context.getLocalProperty(MODE_OF_SESSION) or "")
        except Exception as error:  # noqa: BLE001  (raised by commit)
            write.abort()
            return TaskMessage(failure=encode(error))
        except BaseException:
            write.abort()
            raise

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all tasks' files as one snapshot, or raise what a task met (InvalidData, ColumnNotFound, StorageFull ...).

        Raises CommitConflict too; after all of them the job's files are deleted. CommitUnknown: they are kept.
        """
        store = TableStore.from_json(self._store_text)
        found = _messages(messages)
        with discard_on_failure(store, found):
            for message in messages:
                if isinstance(message, TaskMessage) and message.failure:
                    raise decode(message.failure, f"writing table {store.name}")
            if self._overwrite:
                told = [message.overwrite_mode for message in messages if isinstance(message, TaskMessage)]
                Committer(store).overwrite(found, overwrite_scope(store, self._overwrite_mode or max(told, default="")))
            else:
                Committer(store).commit(found)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what finished tasks wrote. Spark calls this after a failed commit too; that one has cleaned up as far as is safe."""
        if all(message is not None for message in messages):
            return
        with suppress(DredgeError, OSError):
            abort(TableStore.from_json(self._store_text), _messages(messages))


def overwrite_scope(store: TableStore, mode: str) -> dict[str, object] | None:
    """What an overwrite of no named partition replaces, for `Committer.overwrite`: None the partitions that get rows, ``{}`` all.

    Dynamic when either says so: Spark's ``mode`` ("dynamic"), or the table's option `dynamic-partition-overwrite` (true unless set).
    """
    if mode.lower() == "dynamic":
        return None
    scope = asked_scope(store, None)
    return None if scope is None else dict(scope)


def _makes_a_catalog_table(context: TaskContext) -> bool:
    """Whether Spark writes for a CREATE TABLE AS SELECT (`saveAsTable`): a query inside another, but for those of streams."""
    own, outer = (context.getLocalProperty(f"spark.sql.execution.{key}") for key in ("id", "root.id"))
    return own != outer and context.getLocalProperty("sql.streaming.queryId") is None


def _messages(found: list[WriterCommitMessage | None]) -> list[CommitMessage]:
    return [
        CommitMessage.from_bytes(data)
        for message in found
        if isinstance(message, TaskMessage)
        for data in message.messages
    ]


__all__ = [
    "DYNAMIC_OVERWRITE",
    "IN_CATALOG",
    "MODE_OF_SESSION",
    "PARTITION_OVERWRITE_MODE",
    "TableWriter",
    "TaskMessage",
    "overwrite_scope",
]
