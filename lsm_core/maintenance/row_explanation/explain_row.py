"""Explanation of one row: its stored versions, merged with the table's own engine, and the source of each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from lsm_core.format.manifest import SOURCE_COMPACT
from lsm_core.format.partitions import partition_text
from lsm_core.format.schema import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.maintenance.row_explanation.column_sources import Versions, supplies
from lsm_core.maintenance.row_explanation.stored_versions import (
    HIDDEN_BY_LOOKUP,
    StoredVersion,
    parse_key,
    places_of,
    versions_of,
)
from lsm_core.merge import FoldFunction, MergeFunction, merge_function
from lsm_core.merge.engines.expire_rows import RowExpiry
from lsm_core.merge.rows import Piece, Rows, merge_order
from lsm_core.merge.window import Merger
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable, require_sorted_keys
from lsm_core.read import resolve

_KINDS = ("+I", "-U", "+U", "-D")


@dataclass(frozen=True)
class RowVersion:
    """One stored version of a key.

    Attributes:
        number: rank in merge order, 1 for the newest. If several partitions have versions, numbering begins in the
            partition of the answer and continues in the others.
        file: name of the data file.
        level: level of the file.
        sequence: sequence number.
        kind: "+I", "-U", "+U" or "-D".
        position: row number in the file.
        values: values by column.
        written_ms: creation time of the file (epoch ms).
        hidden: reason why reads do not see the version, None if they do.
        note: remark about the version, or None.
        partition: directory of the partition ("" without partitions); only versions of one partition merge.
    """

    number: int
    file: str
    level: int
    sequence: int
    kind: str
    position: int
    values: Mapping[str, Any]
    written_ms: int | None = None
    hidden: str | None = None
    note: str | None = None
    partition: str = ""


@dataclass(frozen=True)
class ColumnExplanation:
    """Source of one column of the answer.

    Attributes:
        column: name of the column.
        value: value of the column in the answer.
        versions: numbers of the versions that supplied the value.
        why: reason for the choice.
        roles: effect of every visible version on the column, by number of the version.
    """

    column: str
    value: Any
    versions: tuple[int, ...]
    why: str
    roles: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RowExplanation:
    """Explanation of one key in one snapshot.

    If a key may move between partitions, answer and columns are those of the partition that has the row. If no or
    several partitions have a row of the key, answer and columns are those of the partition written last.

    Attributes:
        table: name of the table.
        key: primary key by column.
        snapshot_id: the snapshot, None for a table without snapshots.
        engine: name of the merge engine.
        summary: the explanation in one sentence.
        answer: row that a read returns, None if a read returns no row.
        versions: stored versions, newest first.
        columns: sources of the columns of the merged row, also if the merged row is a delete.
        files: number of opened files; by their metadata, no file that was not opened has the key.
    """

    table: str
    key: Mapping[str, Any]
    snapshot_id: int | None
    engine: str
    summary: str
    answer: Mapping[str, Any] | None
    versions: tuple[RowVersion, ...] = ()
    columns: tuple[ColumnExplanation, ...] = ()
    files: int = 0

    @property
    def exists(self) -> bool:
        """Whether any version of the key is stored."""
        return bool(self.versions)

    def column(self, name: str) -> ColumnExplanation:
        """Return the explanation of one column.

        Args:
            name: name of the column.

        Raises:
            KeyError: the column does not exist.
        """
        return {story.column: story for story in self.columns}[name]

    def to_object(self) -> dict[str, Any]:
        """Return the explanation as plain values for JSON."""
        return asdict(self)


def explain_row(store: TableStore, key: Mapping[str, Any], snapshot_id: int | None = None) -> RowExplanation:
    """Explain the row of a primary key. A key that is not stored has an explanation without versions.

    Only files that metadata does not rule out are opened.

    Args:
        store: the table.
        key: primary key by column.
        snapshot_id: the snapshot, None for the newest.

    Raises:
        ColumnNotFound: the key names an unknown column.
        InvalidFilter: the key does not fit the table.
        UnsupportedFeature: the table has no primary key.
        SnapshotNotFound: the snapshot does not exist.
        CorruptFile: a file cannot be read.
    """
    version = resolve(store, snapshot_id)
    store, snapshot = version.store, version.snapshot
    require_readable(store, snapshot)
    require_sorted_keys(store, "explanation of a row")
    key_scalars = parse_key(store, key)
    plain = {name: _plain(value) for name, value in key_scalars.items()}
    function = merge_function(store.schema, store.options.raw, store.name)
    if snapshot is None:
        return RowExplanation(store.name, plain, None, function.name, "nothing was committed to this table yet", None)
    places = places_of(store, snapshot, key_scalars)
    stored_by_partition = (
        (partition, list(versions_of(store, part, function.key_spec, key_scalars)))
        for partition, part in places.by_partition().items()
    )
    # Partitions with the row come first, then by their newest file; versions are numbered across partitions.
    partitions = sorted(
        (_PartitionVersions(store, function, partition, stored) for partition, stored in stored_by_partition if stored),
        key=lambda part: (part.answer() is not None, part.written),
        reverse=True,
    )
    before = 0
    for part in partitions:
        part.before = before
        before += len(part.stored)
    summary = _summary(partitions, len(places.entries), snapshot.id)
    answer, columns = (partitions[0].answer(), partitions[0].columns()) if partitions else (None, ())
    numbered = tuple(version for part in partitions for version in part.versions())
    return RowExplanation(
        store.name, plain, snapshot.id, function.name, summary, answer, numbered, columns, len(places.entries)
    )


class _PartitionVersions:
    """Versions of one partition in merge order, and the row that the merge engine computes from the visible versions.

    Attributes:
        before: number of versions of earlier listed partitions.
    """

    def __init__(
        self, store: TableStore, function: MergeFunction, partition: bytes, stored: Sequence[StoredVersion]
    ) -> None:
        self.store, self.function, self.before, spec = store, function, 0, function.key_spec
        self.partition = partition_text(store.schema, partition, store.options)
        self.names = list(store.schema.field_names)
        pieces = [Piece(version.row, spec.keys(version.row), version.file.level, version.age) for version in stored]
        order = merge_order(Rows.of(pieces), spec, sorted_runs=False).order.tolist()
        self.stored = self._hide_looked_up([stored[place] for place in order])
        self.seen = [place for place, version in enumerate(self.stored) if version.hidden is None]
        self.merged: pa.RecordBatch | None = None
        if self.seen:
            visible = [pieces[order[place]] for place in self.seen]
            batches = Merger(function, spec).merge(visible, open_end=False, sorted_runs=False)
            self.merged = batches[0] if batches else None

    def _hide_looked_up(self, stored: Sequence[StoredVersion]) -> list[StoredVersion]:
        """Mark all but one of the versions above level 0 as hidden, if the engine builds rows and looks keys up.

        The version on the lowest of these levels is not hidden: it is the newest and already includes the others.
        """
        lowest = min(
            (version.file.level for version in stored if version.hidden is None and version.file.level > 0), default=0
        )
        if not isinstance(self.function, FoldFunction) or not self.store.options.needs_lookup:
            return list(stored)
        return [
            replace(version, hidden=HIDDEN_BY_LOOKUP)
            if version.hidden is None and version.file.level > lowest
            else version
            for version in stored
        ]

    def number(self, place: int) -> int:
        """Return the number (`RowVersion.number`) of the version at index ``place`` of the merge order."""
        return self.before + len(self.stored) - place

    @property
    def written(self) -> int:
        """Creation time of the newest file with a version (epoch ms)."""
        return max(version.file.creation_time_ms or 0 for version in self.stored)

    @property
    def kind(self) -> str | None:
        """Row kind of the merged row ("+I", "-U", "+U" or "-D"), None if no row is left."""
        return None if self.merged is None else _KINDS[self.merged.column(VALUE_KIND)[0].as_py()]

    def answer(self) -> dict[str, Any] | None:
        """Return the row that a read returns, or None."""
        if self.merged is None or self.kind in {"-U", "-D"}:
            return None
        return {name: _plain(self.merged.column(name)[0]) for name in self.names}

    def versions(self) -> list[RowVersion]:
        """Return all versions, newest first."""
        expiry = RowExpiry.of(self.store.schema, self.store.options.raw, self.store.name)
        now_ms = self.store.clock.now_ms()
        versions = []
        for place in reversed(range(len(self.stored))):
            stored = self.stored[place]
            notes = []
            if self.before:
                notes.append(f"of partition {self.partition}: not merged with those above")
            if expiry is not None and expiry.expired(stored.row.column(expiry.field), now_ms)[0]:
                notes.append("expired: the next compaction of its file leaves it out")
            if stored.file.file_source == SOURCE_COMPACT and isinstance(self.function, FoldFunction):
                notes.append("may stand for older versions that a compaction merged")
            row_version = RowVersion(
                number=self.number(place),
                file=stored.file.file_name,
                level=stored.file.level,
                sequence=stored.row.column(SEQUENCE_NUMBER)[0].as_py(),
                kind=_KINDS[stored.row.column(VALUE_KIND)[0].as_py()],
                position=stored.position,
                values={name: _plain(stored.row.column(name)[0]) for name in self.names},
                written_ms=stored.file.creation_time_ms,
                hidden=stored.hidden,
                note="; ".join(notes) or None,
                partition=self.partition,
            )
            versions.append(row_version)
        return versions

    def columns(self) -> tuple[ColumnExplanation, ...]:
        """Return the source of each column of the merged row; () without a merged row."""
        if self.merged is None:
            return ()
        batch = pa.Table.from_batches([self.stored[place].row for place in self.seen]).combine_chunks().to_batches()[0]
        numbers = [self.number(place) for place in self.seen]
        stories = []
        for name, supply in supplies(self.function, Versions(batch), self.names):
            versions = tuple(numbers[place] for place in supply.places)
            roles = {numbers[place]: role for place, role in sorted(supply.roles.items(), reverse=True)}
            stories.append(ColumnExplanation(name, _plain(self.merged.column(name)[0]), versions, supply.why, roles))
        return tuple(stories)


def _summary(partitions: Sequence[_PartitionVersions], files: int, snapshot: int) -> str:
    """Return the explanation in one sentence: the stored versions, and the result of merging them."""
    where = f"{_count(files, 'file')} may hold this key in snapshot {snapshot}"
    if not partitions:
        return (
            f"no version of this key is stored: {where}, and none does"
            if files
            else f"no version is stored: no file may hold this key in snapshot {snapshot}"
        )
    stored = [version for part in partitions for version in part.stored]
    file_count = len({version.file.file_name for version in stored})
    hidden = len(stored) - sum(len(part.seen) for part in partitions)
    unseen = f", {hidden} of them hidden from reads" if hidden else ""
    apart = f" of {len(partitions)} partitions" if len(partitions) > 1 else ""
    stored_text = f"{_count(len(stored), 'version')} in {_count(file_count, 'file')}{apart}{unseen}"
    rows = [part.partition for part in partitions if part.answer() is not None]
    if rows:
        merged = f"{stored_text}; merged by {partitions[0].function.name}{f' in {rows[0]}' if apart else ''}"
        return f"{merged}; reads also give a row in {', '.join(rows[1:])}" if rows[1:] else merged
    if all(not part.seen for part in partitions):
        return f"{stored_text}; no row"
    return (
        f"{stored_text}; {'nothing is left of them' if all(part.merged is None for part in partitions) else 'deleted'}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except ValueError:  # nanoseconds that Python's own times cannot hold
        return str(value.cast(pa.string()).as_py())
