"""The writing half of the data source `dredge`: every Spark task writes the rows it has, and one commit publishes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lsm_core.commit import CommitMessage, Committer, abort
from lsm_core.errors import CommitUnknown, DredgeError
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_writable
from lsm_core.spark.jobs.failures import decode, encode
from lsm_core.write import TableWrite

# A data source cannot ask Spark for a shuffle, so several tasks may write one bucket: each counts in a range of its own, or two versions of a
# key could share a sequence number and their order would be left to chance (paimon 5872).
_SEQUENCES_PER_TASK = 1 << 32


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """Commit messages of one task, as their versioned bytes; or the ``failure`` that ended it (then its own files are gone)."""

    messages: tuple[bytes, ...] = ()
    failure: bytes = b""


class TableWriter(DataSourceArrowWriter):
    """Writes a DataFrame as one commit; with ``overwrite`` the whole table is replaced.

    Row order between tasks is the order of the DataFrame's partitions. `write_table` makes fewer files: it shuffles by bucket first.
    """

    def __init__(self, store_text: str, overwrite: bool) -> None:
        self._store_text, self._overwrite = store_text, overwrite
        require_writable(TableStore.from_json(store_text))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one Spark partition. An error is handed to `commit`: raised here, Spark would kill the other tasks, and their files stay."""
        context = TaskContext.get()
        number = int(context.partitionId()) if context is not None else 0
        write = TableWrite(
            TableStore.from_json(self._store_text),
            overwrite=self._overwrite,
            sequence_offset=number * _SEQUENCES_PER_TASK,
        )
        try:
            for batch in iterator:
                write.write(batch)
            return TaskMessage(tuple(message.to_bytes() for message in write.prepare_commit()))
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
        try:
            for message in messages:
                if isinstance(message, TaskMessage) and message.failure:
                    raise decode(message.failure, f"writing table {store.name}")
            if self._overwrite:
                Committer(store).overwrite(found, {})
            else:
                Committer(store).commit(found)
        except CommitUnknown:
            raise
        except Exception:
            abort(store, found)
            raise

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what finished tasks wrote. Spark calls this after a failed commit too; that one has cleaned up as far as is safe."""
        if all(message is not None for message in messages):
            return
        with suppress(DredgeError, OSError):
            abort(TableStore.from_json(self._store_text), _messages(messages))


def _messages(found: list[WriterCommitMessage | None]) -> list[CommitMessage]:
    return [
        CommitMessage.from_bytes(data)
        for message in found
        if isinstance(message, TaskMessage)
        for data in message.messages
    ]


__all__ = ["TableWriter", "TaskMessage"]
