"""Batch writes as callers see them: a writer that makes messages, and a commit that publishes them or cleans up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lsm_core.commit import BATCH, CommitMessage, Committer, discard_on_failure, messages_of
from lsm_core.commit.overwrite import asked_scope
from lsm_core.errors import InvalidOption
from lsm_core.format.partition_path import partition_bytes
from lsm_core.metadata.store import TableStore
from lsm_core.table.writing.streaming import compactor
from lsm_core.write import Rows, TableWrite


class BatchWrite:
    """Collects rows for one commit. Leaving its ``with`` block by an error deletes what was written.

    It compacts only what :meth:`compact` asks for, or everything that it writes to with `commit.force-compact`.
    """

    def __init__(self, store: TableStore, overwrite: bool = False) -> None:
        self._store = store
        force = bool(store.options.get("commit.force-compact"))
        self._write = TableWrite(store, overwrite=overwrite, compactor=compactor(store, automatic=force))

    def write(self, data: Rows, row_kinds: pa.Array | None = None) -> None:
        """Add rows. Raises InvalidData naming the column of a null key, RetractNotSupported, UnsupportedFeature."""
        self._write.write(data, row_kinds)

    def compact(self, partition: Mapping[str, Any], bucket: int, full: bool = False) -> None:
        """Flush a bucket and compact it (``full``: all of it). ``partition``: typed values, ``{}`` without partitions.

        Raises InvalidOption for a full compaction under `write-only`, UnsupportedFeature for append tables.
        """
        self._write.compact(partition_bytes(self._store.schema, partition, self._store.name), bucket, full)

    def prepare_commit(self) -> list[CommitMessage]:
        """Finish the files and compactions and describe them."""
        return self._write.prepare_commit(wait_compaction=True)

    def abort(self) -> None:
        """Delete everything written so far."""
        self._write.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()


class BatchCommit:
    """Publishes messages as one commit."""

    def __init__(self, store: TableStore, commit_user: str | None = None) -> None:
        self._store, self._committer = store, Committer(store, commit_user)

    def commit(self, messages: Sequence[CommitMessage], commit_identifier: int | None = None) -> int | None:
        """Commit; returns the last snapshot id, None when there was nothing to do.

        Messages are committed once: again by the same named user and identifier they give the first commit's snapshot, by
        anybody else CommitConflict. Raises InvalidData for messages of another table. After a definite failure the messages'
        own files are deleted, unless the table knows them; after CommitUnknown nothing is.
        """
        identifier = BATCH if commit_identifier is None else commit_identifier
        mine = messages_of(self._store, messages)
        with discard_on_failure(self._store, mine):
            return _last(self._committer.commit(mine, commit_identifier=identifier).snapshot_ids)

    def overwrite(
        self, messages: Sequence[CommitMessage], partition_spec: Mapping[str, Any] | None = None
    ) -> int | None:
        """Commit in place of the given partition; without one, of what :meth:`Table.write` replaces for ``overwrite=True``."""
        mine = messages_of(self._store, messages)
        with discard_on_failure(self._store, mine):
            spec = asked_scope(self._store, partition_spec)
            return _last(self._committer.overwrite(mine, spec).snapshot_ids)


def write_once(
    store: TableStore,
    data: Rows,
    row_kinds: pa.Array | None,
    overwrite: bool | Mapping[str, Any] | None,
) -> int | None:
    """One batch write and its commit; nothing is left behind when either fails for certain."""
    if not (overwrite is None or isinstance(overwrite, (bool, Mapping))):
        raise InvalidOption("overwrite", overwrite, "True, or a mapping of partition columns to values", store.name)
    replacing = overwrite is not None and overwrite is not False
    with BatchWrite(store, overwrite=replacing) as writer:
        writer.write(data, row_kinds)
        messages = writer.prepare_commit()
    commit = BatchCommit(store)
    if not replacing:
        return commit.commit(messages)
    return commit.overwrite(messages, overwrite if isinstance(overwrite, Mapping) else None)


def _last(snapshot_ids: Sequence[int]) -> int | None:
    return snapshot_ids[-1] if snapshot_ids else None
