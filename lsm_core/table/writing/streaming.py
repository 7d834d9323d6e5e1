"""Long-lived writers and their commits as callers see them: numbered commits of one user, each of which happens once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lsm_core.commit import CommitMessage, Committer
from lsm_core.format.partition_path import partition_bytes
from lsm_core.maintenance.actions.one_bucket import bucket_task
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.write import Compactor, Rows, StreamTableWrite


def compactor(store: TableStore, *, automatic: bool) -> Compactor:
    """Units are picked as maintenance picks them, and outcomes judged by the reference (V0, V1, V2)."""
    return Compactor(store, bucket_task, ReferenceJudge(), automatic=automatic and not store.options.write_only)


class StreamWrite:
    """A writer that lives for many commits and compacts its buckets in the background, unless the table is `write-only`.

    Leaving its ``with`` block, by an error or not, deletes what was not handed out by :meth:`prepare_commit`. After an error
    of any method but InvalidData and RetractNotSupported of :meth:`write`, close it and open another.
    """

    def __init__(self, store: TableStore, commit_user: str) -> None:
        self.commit_user = commit_user
        self._store = store
        self._write = StreamTableWrite(store, commit_user, compactor(store, automatic=True))

    def write(self, data: Rows, row_kinds: pa.Array | None = None) -> None:
        """Add rows. Raises InvalidData naming the column of a null key, RetractNotSupported, StorageFull, what compactions failed with."""
        self._write.write(data, row_kinds)

    def compact(self, partition: Mapping[str, Any], bucket: int, full: bool = False) -> None:
        """Flush a bucket and start its compaction (``full``: of everything). ``partition``: typed values, ``{}`` without partitions."""
        self._write.compact(partition_bytes(self._store.schema, partition, self._store.name), bucket, full)

    def prepare_commit(
        self, wait_compaction: bool = False, commit_identifier: int | None = None
    ) -> list[CommitMessage]:
        """Finish the files of commit ``commit_identifier`` (the next number when None), which must grow from commit to commit.

        Compactions that have ended since the last call are in the messages, too; ``wait_compaction`` waits for those under
        way. Raises InvalidData, WriterStale, StorageFull, VerificationFailed: nothing was handed out then.
        """
        number = self._write.last_identifier + 1 if commit_identifier is None else commit_identifier
        return self._write.checkpoint(wait_compaction, number)

    def close(self) -> None:
        """End the background work and delete what was written and not handed out."""
        self._write.abort()

    abort = close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StreamCommit:
    """Publishes the numbered commits of one user; each happens once, however often it is asked for."""

    def __init__(self, store: TableStore, commit_user: str) -> None:
        self._committer = Committer(store, commit_user)

    def filter_and_commit(self, committables: Mapping[int, Sequence[CommitMessage]]) -> list[int]:
        """Commit, in order of identifier, what this user has not committed yet; the ids of the new snapshots.

        Safe to repeat after a crash or CommitUnknown. A compaction whose inputs others took is left out, its rows being in
        the table anyway. Raises CorruptFile when files of a commit are gone, CommitConflict, CommitUnknown.
        """
        return self._committer.filter_and_commit(committables)

    def commit(self, messages: Sequence[CommitMessage], commit_identifier: int) -> list[int]:
        """As :meth:`filter_and_commit`, for one commit."""
        return self.filter_and_commit({commit_identifier: messages})


__all__ = ["StreamCommit", "StreamWrite", "compactor"]
