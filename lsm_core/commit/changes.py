"""Manifest entries of commit messages: first those of writers, then those of compactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.index_changes import NO_CHANGE, IndexChange
from lsm_core.commit.message import CommitMessage
from lsm_core.format.manifest import ADD, DELETE, ENTRY_SCHEMA, DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.format.snapshot import CommitKind
from lsm_core.metadata.manifests import NO_ENTRIES

IDENTITY = ("partition", "bucket", "level", "file_name", "extra_files", "embedded_index", "external_path")
"""Columns that make two entries speak of one file (Java `FileEntry.Identifier`)."""


@dataclass(frozen=True)
class Parts:
    """Content of the two snapshots that messages may become; an empty table means that a snapshot is not needed.

    Attributes:
        append: entries of the first snapshot.
        compact: entries of the second snapshot.
        append_index: index files of the first snapshot.
        compact_index: index files of the second snapshot.
        append_changelog: changelog entries of the first snapshot.
        compact_changelog: changelog entries of the second snapshot.
    """

    append: pa.Table
    compact: pa.Table
    append_index: IndexChange = NO_CHANGE
    compact_index: IndexChange = NO_CHANGE
    append_changelog: pa.Table = field(default_factory=lambda: NO_ENTRIES)
    compact_changelog: pa.Table = field(default_factory=lambda: NO_ENTRIES)

    @property
    def has_append(self) -> bool:
        """Whether the first snapshot is needed."""
        return bool(self.append.num_rows or self.append_index or self.append_changelog.num_rows)

    @property
    def has_compact(self) -> bool:
        """Whether the second snapshot is needed."""
        return bool(self.compact.num_rows or self.compact_index or self.compact_changelog.num_rows)

    @property
    def append_kind(self) -> CommitKind:
        """Kind of the first snapshot: OVERWRITE if it removes files or rows, else APPEND."""
        takes = has_deletes(self.append) or self.append_index.takes_rows
        return CommitKind.OVERWRITE if takes else CommitKind.APPEND


def split(messages: Iterable[CommitMessage]) -> Parts:
    """Return the entries of messages, deletions before additions."""
    append: list[ManifestEntry] = []
    compact: list[ManifestEntry] = []
    append_changelog: list[ManifestEntry] = []
    compact_changelog: list[ManifestEntry] = []
    append_index = compact_index = NO_CHANGE
    for message in messages:
        append += _entries(message, message.deleted_files, DELETE) + _entries(message, message.new_files, ADD)
        compact += _entries(message, message.compact_before, DELETE) + _entries(message, message.compact_after, ADD)
        append_changelog += _entries(message, message.changelog_files, ADD)
        compact_changelog += _entries(message, message.compact_changelog, ADD)
        place = (message.partition, message.bucket)
        append_index += IndexChange.of(
            *place,
            message.new_index_files,
            message.deleted_index_files,
            message.index_state,
            message.keys_as_of,
            message.keys_after or (),
        )
        compact_index += IndexChange.of(*place, message.compact_new_index_files, message.compact_deleted_index_files)
    changelogs = _table(append_changelog), _table(compact_changelog)
    return Parts(_table(append), _table(compact), append_index, compact_index, *changelogs)


def _entries(message: CommitMessage, files: Sequence[DataFileMeta], kind: int) -> list[ManifestEntry]:
    return [ManifestEntry(kind, message.partition, message.bucket, message.total_buckets, file) for file in files]


def _table(entries: Sequence[ManifestEntry]) -> pa.Table:
    return entries_to_table(entries) if entries else NO_ENTRIES


def has_deletes(entries: pa.Table) -> bool:
    """Return whether any entry removes a file."""
    return bool(pc.any(pc.equal(entries.column("kind"), DELETE)).as_py())


def rows_of(entries: pa.Table, kind: int) -> int:
    """Return the number of rows in the files of all entries of a kind."""
    return int(pc.sum(entries.column("row_count").filter(pc.equal(entries.column("kind"), kind))).as_py() or 0)


def partitions_of(entries: pa.Table) -> list[bytes]:
    """Return the distinct partitions, in order of appearance."""
    return [bytes(value) for value in pc.unique(entries.column("partition")).to_pylist()]


def deletions_of(live: pa.Table) -> pa.Table:
    """Return entries that remove every file of ``live``, each exactly as it was added."""
    index = live.schema.get_field_index("kind")
    return live.set_column(index, ENTRY_SCHEMA.field("kind"), pa.array(np.full(live.num_rows, DELETE, np.int8)))


def identities(entries: pa.Table) -> list[tuple[object, ...]]:
    """Return the identity tuples of (few) entries."""
    columns = [entries.column(name).to_pylist() for name in IDENTITY]
    columns[4] = [tuple(extra or ()) for extra in columns[4]]
    return list(zip(*columns, strict=True))
