"""Explains one row: finds its versions, merges them with the table's own engine, and tells who supplied what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from lsm_core.format.file_meta import SOURCE_COMPACT
from lsm_core.format.kv_layout import SEQUENCE_NUMBER, VALUE_KIND
from lsm_core.format.partition_path import partition_text
from lsm_core.maintenance.row_story.column_supplies import Versions, supplies
from lsm_core.maintenance.row_story.stored_versions import TAKEN_UP, StoredVersion, places_of, typed_key, versions_of
from lsm_core.merge import FoldFunction, MergeFunction, merge_function
from lsm_core.merge.engines.expire_rows import RowExpiry
from lsm_core.merge.order import merge_order
from lsm_core.merge.rows import Piece, Rows
from lsm_core.merge.window import Merger
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.support import require_readable
from lsm_core.read import resolve

_KINDS = ("+I", "-U", "+U", "-D")


@dataclass(frozen=True)
class RowVersion:
    """One stored version of a key. ``number`` 1 is the newest, as merging orders them: partition by partition, the answer's first.

    ``kind`` is "+I", "-U", "+U" or "-D"; ``position`` the row's place in ``file``; ``written_ms`` when the file was made (epoch
    ms). ``hidden`` says why reads do not see the version, None = they do; ``note`` what else is to be known about it. ``partition``
    is its directory ("" without partitions): only versions of one partition merge.
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
class ColumnStory:
    """One column of the answer: its value, the numbers of the ``versions`` that supplied it, and why those.

    ``roles``: what every version that reads see did for the column, by its number.
    """

    column: str
    value: Any
    versions: tuple[int, ...]
    why: str
    roles: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RowStory:
    """The story of one key in one snapshot: ``versions`` newest first, ``answer`` what a read gives (None: no row).

    ``columns`` tell of the row that merging made, also of a deleted one. Where a key may move between partitions, answer and columns
    are those of the partition that has the row (the one written last, if none or several do). ``files``: how many were looked into; metadata rules the
    others out.
    """

    table: str
    key: Mapping[str, Any]
    snapshot_id: int | None
    engine: str
    summary: str
    answer: Mapping[str, Any] | None
    versions: tuple[RowVersion, ...] = ()
    columns: tuple[ColumnStory, ...] = ()
    files: int = 0

    @property
    def found(self) -> bool:
        """Whether any version of the key is stored."""
        return bool(self.versions)

    def column(self, name: str) -> ColumnStory:
        """The story of one column. Raises KeyError for one that is not there."""
        return {story.column: story for story in self.columns}[name]

    def to_object(self) -> dict[str, Any]:
        """The story as plain values (for JSON)."""
        return asdict(self)


def explain_row(store: TableStore, key: Mapping[str, Any], snapshot_id: int | None = None) -> RowStory:
    """The story of the row with primary key ``key`` in the newest snapshot (or ``snapshot_id``); a key that is not there has an empty one.

    Opens only files that metadata does not rule out. Raises ColumnNotFound, InvalidFilter for a key that does not fit,
    UnsupportedFeature, SnapshotNotFound, CorruptFile, and what reading the row raises.
    """
    version = resolve(store, snapshot_id)
    store, snapshot = version.store, version.snapshot
    require_readable(store, snapshot)
    typed = typed_key(store, key)
    plain = {name: _plain(value) for name, value in typed.items()}
    function = merge_function(store.schema, store.options.raw, store.name)
    if snapshot is None:
        return RowStory(store.name, plain, None, function.name, "nothing was committed to this table yet", None)
    places = places_of(store, snapshot, typed)
    found = (
        (partition, list(versions_of(store, part, function.key_spec, typed)))
        for partition, part in places.by_partition().items()
    )
    # Partitions that have the row before those that do not, each written last first; their versions are numbered through.
    partitions = sorted(
        (_PartitionVersions(store, function, partition, stored) for partition, stored in found if stored),
        key=lambda one: (one.answer() is not None, one.written),
        reverse=True,
    )
    before = 0
    for one in partitions:
        one.before = before
        before += len(one.stored)
    summary = _summary(partitions, len(places.entries), snapshot.id)
    answer, columns = (partitions[0].answer(), partitions[0].columns()) if partitions else (None, ())
    numbered = tuple(version for one in partitions for version in one.versions())
    return RowStory(
        store.name, plain, snapshot.id, function.name, summary, answer, numbered, columns, len(places.entries)
    )


class _PartitionVersions:
    """Versions of one partition in merge order, and what the engine makes of those that reads see.

    ``before``: versions of other partitions that are told before these.
    """

    def __init__(
        self, store: TableStore, function: MergeFunction, partition: bytes, stored: Sequence[StoredVersion]
    ) -> None:
        self.store, self.function, self.before, spec = store, function, 0, function.key_spec
        self.partition = partition_text(store.schema, partition, store.options)
        self.names = list(store.schema.field_names)
        pieces = [Piece(one.row, spec.keys(one.row), one.file.level, one.age) for one in stored]
        order = merge_order(Rows.of(pieces), spec, sorted_runs=False).order.tolist()
        self.stored = self._without_taken_up([stored[place] for place in order])
        self.seen = [place for place, one in enumerate(self.stored) if one.hidden is None]
        self.merged: pa.RecordBatch | None = None
        if self.seen:
            visible = [pieces[order[place]] for place in self.seen]
            batches = Merger(function, spec).merge(visible, open_end=False, sorted_runs=False)
            self.merged = batches[0] if batches else None

    def _without_taken_up(self, stored: Sequence[StoredVersion]) -> list[StoredVersion]:
        """Where engines that build rows look keys up, versions above the lowest level above 0 are hidden by that one's."""
        lowest = min((one.file.level for one in stored if one.hidden is None and one.file.level > 0), default=0)
        if not isinstance(self.function, FoldFunction) or not self.store.options.needs_lookup:
            return list(stored)
        return [
            replace(one, hidden=TAKEN_UP) if one.hidden is None and one.file.level > lowest else one for one in stored
        ]

    def number(self, place: int) -> int:
        """The number of the version at ``place`` of the merge order: the newest is the first."""
        return self.before + len(self.stored) - place

    @property
    def written(self) -> int:
        """When the newest file with a version was made (epoch ms)."""
        return max(one.file.creation_time_ms or 0 for one in self.stored)

    @property
    def kind(self) -> str | None:
        """Kind of the merged row; None if nothing is left."""
        return None if self.merged is None else _KINDS[self.merged.column(VALUE_KIND)[0].as_py()]

    def answer(self) -> dict[str, Any] | None:
        """The row that a read gives."""
        if self.merged is None or self.kind in {"-U", "-D"}:
            return None
        return {name: _plain(self.merged.column(name)[0]) for name in self.names}

    def versions(self) -> list[RowVersion]:
        """All versions, newest first."""
        expiry = RowExpiry.of(self.store.schema, self.store.options.raw, self.store.name)
        now_ms = self.store.clock.now_ms()
        found = []
        for place in reversed(range(len(self.stored))):
            one = self.stored[place]
            notes = []
            if self.before:
                notes.append(f"of partition {self.partition}: not merged with those above")
            if expiry is not None and expiry.expired(one.row.column(expiry.field), now_ms)[0]:
                notes.append("expired: the next compaction of its file leaves it out")
            if one.file.file_source == SOURCE_COMPACT and isinstance(self.function, FoldFunction):
                notes.append("may stand for older versions that a compaction merged")
            version = RowVersion(
                number=self.number(place),
                file=one.file.file_name,
                level=one.file.level,
                sequence=one.row.column(SEQUENCE_NUMBER)[0].as_py(),
                kind=_KINDS[one.row.column(VALUE_KIND)[0].as_py()],
                position=one.position,
                values={name: _plain(one.row.column(name)[0]) for name in self.names},
                written_ms=one.file.creation_time_ms,
                hidden=one.hidden,
                note="; ".join(notes) or None,
                partition=self.partition,
            )
            found.append(version)
        return found

    def columns(self) -> tuple[ColumnStory, ...]:
        """The columns of the merged row."""
        if self.merged is None:
            return ()
        batch = pa.Table.from_batches([self.stored[place].row for place in self.seen]).combine_chunks().to_batches()[0]
        numbers = [self.number(place) for place in self.seen]
        stories = []
        for name, supply in supplies(self.function, Versions(batch), self.names):
            versions = tuple(numbers[place] for place in supply.places)
            roles = {numbers[place]: role for place, role in sorted(supply.roles.items(), reverse=True)}
            stories.append(ColumnStory(name, _plain(self.merged.column(name)[0]), versions, supply.why, roles))
        return tuple(stories)


def _summary(partitions: Sequence[_PartitionVersions], files: int, snapshot: int) -> str:
    """The story in one sentence: what is stored, and what is left of it when merged."""
    where = f"{_count(files, 'file')} may hold this key in snapshot {snapshot}"
    if not partitions:
        return (
            f"no version of this key is stored: {where}, and none does"
            if files
            else f"no version is stored: no file may hold this key in snapshot {snapshot}"
        )
    stored = [one for part in partitions for one in part.stored]
    hidden = len(stored) - sum(len(part.seen) for part in partitions)
    unseen = f", {hidden} of them hidden from reads" if hidden else ""
    apart = f" of {len(partitions)} partitions" if len(partitions) > 1 else ""
    found = f"{_count(len(stored), 'version')} in {_count(len({one.file.file_name for one in stored}), 'file')}{apart}{unseen}"
    rows = [part.partition for part in partitions if part.answer() is not None]
    if rows:
        merged = f"{found}; merged by {partitions[0].function.name}{f' in {rows[0]}' if apart else ''}"
        return f"{merged}; reads also give a row in {', '.join(rows[1:])}" if rows[1:] else merged
    if all(not part.seen for part in partitions):
        return f"{found}; no row"
    return f"{found}; {'nothing is left of them' if all(part.merged is None for part in partitions) else 'deleted'}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except ValueError:  # nanoseconds that Python's own times cannot hold
        return str(value.cast(pa.string()).as_py())
