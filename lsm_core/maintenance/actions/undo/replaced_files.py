"""What a compaction replaced, learned from its snapshot, or from the ledger and a tag, and whether that can still be put back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.conflicts import Rescan, blame
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, InvalidOption, PlanRefused, RefusalRule
from lsm_core.format.file_meta import ADD, DELETE, DataFileMeta, table_to_entries
from lsm_core.format.manifest import IndexFileMeta
from lsm_core.format.partition_path import partition_text
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import PLAN_PROPERTY, bucket_name
from lsm_core.maintenance.actions.compact.compaction import expiry_clock
from lsm_core.maintenance.record import DONE, UNKNOWN, LedgerEntry, find_entry, read_ledger
from lsm_core.metadata import manifests, snapshots, support, tags
from lsm_core.metadata.indexes import DeletionFile, deletion_files, vector_files
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.metadata.tree_files import bucket_groups
from lsm_core.read.compacted import compacted_only
from lsm_core.read.prune.expired_files import expiry_of

UNDO_PROPERTY: Final = "dredge.undo-of"
"""Snapshot property: the run that the snapshot undid."""
_COMPACTING: Final = frozenset({"compact", "recover"})
_RUNS_SHOWN: Final = 5
_TAG_ADVICE: Final = (
    "a tag on the snapshot before keeps them: 'dredge.pre-compaction-tag' = 'true' makes one at each compaction"
)
Place = tuple[bytes, int]
_Named = tuple[str, int]


@dataclass(frozen=True)
class ReplacedFiles:
    """What a compaction did to one bucket, and the bucket as it is now.

    ``inputs`` went and are in no snapshot since, ``outputs`` came; ``moved`` changed only their level: each as it is now, and as it was.
    ``left``: (name, level) of all files that the compaction left in the bucket. ``vectors``: deletion vectors of the bucket before it, by
    data file. ``live`` and ``index_files``: data files and those of deletion vectors now.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    inputs: tuple[DataFileMeta, ...]
    outputs: tuple[DataFileMeta, ...]
    moved: tuple[tuple[DataFileMeta, DataFileMeta], ...]
    left: frozenset[_Named]
    vectors: Mapping[str, DeletionFile]
    live: tuple[DataFileMeta, ...] = ()
    index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def place(self) -> Place:
        """Where it is."""
        return self.partition, self.bucket

    @property
    def made(self) -> frozenset[_Named]:
        """(name, level) of the files that it brought or moved."""
        return frozenset((file.file_name, file.level) for file in (*self.outputs, *(now for now, _ in self.moved)))


@dataclass(frozen=True)
class UndoneCompaction:
    """What an undo took back: the compaction that ``snapshot_id`` published (None: nobody knows any more), ``whole``: of all buckets that it changed."""

    snapshot_id: int | None
    whole: bool


def undone_by(store: TableStore, snapshot: Snapshot) -> UndoneCompaction | None:
    """Return which compaction ``snapshot`` undid, None where it is no undo's. Raises CorruptFile for snapshots and manifests, not for the ledger."""
    run_id = (snapshot.properties or {}).get(UNDO_PROPERTY)
    if run_id is None:
        return None
    try:
        number = _compaction_entry(store, run_id).snapshot_id
    except (CorruptFile, InvalidOption):  # the ledger was deleted, or is another's
        return UndoneCompaction(None, whole=False)
    compaction = None if number is None else snapshots.try_read(store, number)
    if compaction is None:
        return UndoneCompaction(number, whole=False)
    return UndoneCompaction(number, whole=_places(store, compaction) <= _places(store, snapshot))


def _places(store: TableStore, snapshot: Snapshot) -> set[Place]:
    """The buckets that a snapshot changed."""
    changed = manifests.delta_entries(store, snapshot)
    return set(zip(changed.column("partition").to_pylist(), changed.column("bucket").to_pylist(), strict=True))


@dataclass(frozen=True)
class Unfit:
    """A bucket whose compaction cannot be undone: the safety rule, and one sentence."""

    place: Place
    rule: RefusalRule
    text: str


@dataclass(frozen=True)
class Compaction:
    """A compaction that may be undone: its snapshot's id, the buckets that can be put back, and those that cannot.

    ``clock``: epoch ms at which its rows expired (record-level expiry).
    """

    run_id: str
    snapshot_id: int
    clock: int
    buckets: tuple[ReplacedFiles, ...]
    unfit: tuple[Unfit, ...]


def find_compaction(store: TableStore, run_id: str, *, allow_changes: bool = False) -> Compaction:
    """What the compaction of ``run_id`` did, bucket by bucket, and what of it can be undone now. Reads metadata only.

    ``allow_changes``: also where a writer that is open now might give its rows sequence numbers which files that come back have.

    Raises InvalidOption for what is no run of a compaction, PlanRefused where nothing can be known of it any more, or it was undone
    already, CorruptFile, WriterStale.
    """
    entry = _compaction_entry(store, run_id)
    latest = snapshots.latest(store)
    if latest is None:
        raise _refused(store, RefusalRule.HISTORY_CHANGED, "the table has no snapshot any more")
    number = entry.snapshot_id
    if number is None or number > latest.id:
        raise _refused(
            store, RefusalRule.HISTORY_CHANGED, f"snapshot {number}, which it published, is gone: rolled back"
        )
    snapshot = snapshots.try_read(store, number)
    if snapshot is not None:
        if (snapshot.properties or {}).get(PLAN_PROPERTY) != entry.plan_hash:
            why = f"snapshot {number} is not the one that this run published: the table was rolled back"
            raise _refused(store, RefusalRule.HISTORY_CHANGED, why)
        before, unfit = _from_snapshot(store, snapshot, latest)
        clock = expiry_clock(snapshot)
    else:
        before, unfit = _from_ledger(store, entry, number, latest)
        clock = entry.time_ms
    partitions = sorted({bucket.partition for bucket in before})
    live = manifests.live_entries(store, latest, partitions=partitions, buckets=sorted({b.bucket for b in before}))
    support.require_current(store, live, "undoing a compaction")
    groups = {(partition, bucket): table for partition, bucket, _, table in bucket_groups(live)}
    vectors = vector_files(store, latest, partitions)
    fit = []
    for bucket in before:
        table = groups.get(bucket.place)
        files = () if table is None else tuple(one.file for one in table_to_entries(table))
        now = replace(bucket, live=files, index_files=vectors.get(bucket.place, ()))
        wrong = _why_unfit(store, latest, now, snapshot, allow_changes)
        fit += [] if wrong else [now]
        unfit += [wrong] if wrong else []
    if unfit:
        later = [one for one in snapshots.list_ids(store) if one > number]
        for one in snapshots.iterate(store, later):
            if (one.properties or {}).get(UNDO_PROPERTY) == run_id:
                raise _refused(store, RefusalRule.ALREADY_UNDONE, f"snapshot {one.id} undid run {run_id}")
    return Compaction(run_id, number, clock, tuple(fit), tuple(unfit))


def _compaction_entry(store: TableStore, run_id: str) -> LedgerEntry:
    """The run, with the snapshot that it published. Raises InvalidOption for another run, naming the newest compactions."""
    try:
        entry = find_entry(store, run_id)
    except InvalidOption as error:
        raise InvalidOption("run_id", run_id, _known_runs(store), store.name) from error
    if entry.action not in _COMPACTING:
        raise InvalidOption("run_id", run_id, f"{_known_runs(store)}; this one did {entry.action!r}", store.name)
    number = entry.snapshot_id
    if number is None and entry.outcome == UNKNOWN:
        ids = [found for found in snapshots.list_ids(store) if found > (entry.base_snapshot or 0)]
        mine = [
            s.id for s in snapshots.iterate(store, ids) if (s.properties or {}).get(PLAN_PROPERTY) == entry.plan_hash
        ]
        number = mine[-1] if mine else None
    if number is None:
        raise InvalidOption("run_id", run_id, f"{_known_runs(store)}; this one published nothing", store.name)
    return replace(entry, snapshot_id=number)


def _known_runs(store: TableStore) -> str:
    newest = [
        entry.run_id
        for entry in read_ledger(store, 100, heads=True)
        if entry.action in _COMPACTING and entry.outcome == DONE and entry.snapshot_id is not None
    ]
    return f"a run that compacted: {', '.join(newest[-_RUNS_SHOWN:])}" if newest else "no run compacted this table"


def _from_snapshot(store: TableStore, snapshot: Snapshot, latest: Snapshot) -> tuple[list[ReplacedFiles], list[Unfit]]:
    """What the compaction's own snapshot tells."""
    delta = manifests.delta_entries(store, snapshot)
    if (
        snapshot.commit_kind is not CommitKind.COMPACT
        or pc.any(pc.equal(delta.column("bucket"), POSTPONE_BUCKET)).as_py()
    ):
        raise _refused(store, RefusalRule.NOT_A_COMPACTION, f"snapshot {snapshot.id} gave postponed rows their buckets")
    told = set()
    if snapshot.changelog_manifest_list:
        listed = manifests.changelog_list(store, snapshot)
        # Which buckets told their changes is unknown where the changelog expired: all may have done so.
        changes = delta if listed is None else manifests.entries_of(store, listed)
        told = set(zip(changes.column("partition").to_pylist(), changes.column("bucket").to_pylist(), strict=True))
    partitions = sorted(set(delta.column("partition").to_pylist()))
    after = {
        (p, b): table
        for p, b, _, table in bucket_groups(manifests.live_entries(store, snapshot, partitions=partitions))
    }
    base = _exactly(store, snapshot.id - 1)
    vectors = {} if base is None else vector_files(store, base, partitions)
    since = vector_files(store, snapshot, partitions)
    now = vector_files(store, latest, partitions)
    found, unfit = [], []
    for partition, bucket, total, table in bucket_groups(delta):
        place = (partition, bucket)
        entries = table_to_entries(table)
        gone = {entry.file.file_name: entry.file for entry in entries if entry.kind == DELETE}
        came = {entry.file.file_name: entry.file for entry in entries if entry.kind == ADD}
        if place in told:
            unfit.append(_changes_told(store, place))
            continue
        if base is None and store.options.deletion_vectors_enabled:
            unfit.append(_vectors_unknown(snapshot.id, place))
            continue
        # Of a keyed bucket every vector belongs to one state of all its files; those of append files stand alone.
        if store.has_primary_key and now.get(place, ()) != since.get(place, ()):
            text = "rows of its files were marked as deleted since (deletion vectors)"
            unfit.append(Unfit(place, RefusalRule.OUTPUTS_USED, text))
            continue
        found.append(
            ReplacedFiles(
                *(partition, bucket, total),
                inputs=tuple(file for name, file in gone.items() if name not in came),
                outputs=tuple(file for name, file in came.items() if name not in gone),
                moved=tuple((came[name], file) for name, file in gone.items() if name in came),
                left=_named(after.get(place)),
                vectors=deletion_files(store, *place, vectors.get(place, ())),
            )
        )
    return found, unfit


def _from_ledger(
    store: TableStore, entry: LedgerEntry, number: int, latest: Snapshot
) -> tuple[list[ReplacedFiles], list[Unfit]]:
    """The same, once the snapshot has expired: names from the ledger, the files' metadata from the newest tag before it."""
    tagged = [snapshot for snapshot in tags.list_tags(store).values() if snapshot.id < number]
    if not tagged:
        text = f"snapshot {number} has expired, and no tag names an earlier one that held the files it replaced; {_TAG_ADVICE}"
        raise _refused(store, RefusalRule.FILES_ARE_GONE, text)
    tag = max(tagged, key=lambda snapshot: snapshot.id)
    lines = [line for line in entry.lines if line.get("event") == "compacted"]
    places = [_place_of(line) for line in lines]
    if not lines or None in places:
        text = f"snapshot {number} has expired, and the run's entry in the ledger does not name the files that it wrote"
        raise _refused(store, RefusalRule.FILES_ARE_GONE, text)
    partitions = sorted({place[0] for place in places if place is not None})
    tables = {
        (p, b): (total, t)
        for p, b, total, t in bucket_groups(manifests.live_entries(store, tag, partitions=partitions))
    }
    written = pa.array([name for line in lines for name, _ in _listed(line, "outputs")], pa.string())
    live = manifests.live_entries(store, latest, partitions=partitions)
    kept = table_to_entries(live.filter(pc.is_in(live.column("file_name"), written)))
    living = {(entry.file.file_name, entry.file.level): entry.file for entry in kept}
    found, unfit = [], []
    for line, place in zip(lines, places, strict=True):
        assert place is not None
        if line.get("changes_told") or store.options.changelog_producer in {"lookup", "full-compaction"}:
            unfit.append(_changes_told(store, place))
            continue
        if store.options.deletion_vectors_enabled:
            unfit.append(_vectors_unknown(number, place))
            continue
        total, table = tables.get(place, (0, None))
        before = {} if table is None else {(e.file.file_name, e.file.level): e.file for e in table_to_entries(table)}
        gone, came = _listed(line, "inputs"), _listed(line, "outputs")
        missing = [name for name, level in gone if (name, level) not in before]
        if missing:
            text = f"{missing[0]}, which it replaced, is in no snapshot, nor in a tag; {_TAG_ADVICE}"
            unfit.append(Unfit(place, RefusalRule.FILES_ARE_GONE, text))
            continue
        lost = [name for name, level in came if (name, level) not in living]
        if lost:
            unfit.append(_used(store, latest, place, lost))
            continue
        earlier, later = (
            {name: before[name, level] for name, level in gone},
            {name: living[name, level] for name, level in came},
        )
        found.append(
            ReplacedFiles(
                *(*place, total),
                inputs=tuple(file for name, file in earlier.items() if name not in later),
                outputs=tuple(file for name, file in later.items() if name not in earlier),
                moved=tuple((later[name], file) for name, file in earlier.items() if name in later),
                left=frozenset((before.keys() - set(gone)) | set(came)),
                vectors={},
            )
        )
    return found, unfit


def _place_of(line: Mapping[str, Any]) -> Place | None:
    """The bucket that a line of the ledger tells of; None where it does not say it as it should (an older Dredge, or somebody else)."""
    try:
        partition, bucket = line["place"]
        _listed(line, "inputs"), _listed(line, "outputs")
        return bytes.fromhex(partition), int(bucket)
    except (KeyError, TypeError, ValueError):
        return None


def _listed(line: Mapping[str, Any], name: str) -> list[_Named]:
    return [(str(file), int(level)) for file, level in line[name]]


def _exactly(store: TableStore, number: int) -> Snapshot | None:
    """Snapshot ``number``, or a tag of it."""
    found = snapshots.try_read(store, number)
    return found or next((tag for tag in tags.list_tags(store).values() if tag.id == number), None)


def _named(table: pa.Table | None) -> frozenset[_Named]:
    if table is None:
        return frozenset()
    return frozenset(zip(table.column("file_name").to_pylist(), table.column("level").to_pylist(), strict=True))


def _why_unfit(
    store: TableStore, latest: Snapshot, bucket: ReplacedFiles, snapshot: Snapshot | None, allow_changes: bool
) -> Unfit | None:
    """Why the bucket cannot be put back; None when it can."""
    live = frozenset((file.file_name, file.level) for file in bucket.live)
    changed = not_on_top(store, bucket, live)
    if changed:
        return _used(store, latest, bucket.place, changed)
    if store.has_primary_key and bucket.inputs:
        newest = max(file.max_sequence_number for file in bucket.inputs)
        taken = numbers_taken(store, bucket, ((f.file_name, f.level, f.min_sequence_number) for f in bucket.live))
        if taken:
            text = (
                f"{taken[0]} was written since, with sequence numbers that rows which the compaction dropped have: these would win over "
                "newer ones if they came back"
            )
            return Unfit(bucket.place, RefusalRule.NUMBERS_TAKEN, text)
        kept = max((f.max_sequence_number for f in bucket.live if (f.file_name, f.level) in bucket.left), default=-1)
        if newest > kept and _may_have_dropped_the_last_word(store, bucket) and not allow_changes:
            text = (
                "it dropped the rows with the largest sequence numbers (deletes, or rows that were over): a writer opened since may be giving "
                "them to newer rows, which would lose against the ones that come back; with no such writer open allow_changes undoes it"
            )
            return Unfit(bucket.place, RefusalRule.NUMBERS_TAKEN, text)
    if not store.has_primary_key:
        names = {name for name, _ in bucket.made}
        marked = [
            one.data_file
            for file in bucket.index_files
            for one in file.deletion_vectors or ()
            if one.data_file in names
        ]
        if marked:
            text = f"rows of {marked[0]}, which it wrote, were marked as deleted since (deletion vectors)"
            return Unfit(bucket.place, RefusalRule.OUTPUTS_USED, text)
    returning = (*bucket.inputs, *(old for _, old in bucket.moved))
    if store.has_primary_key and compacted_only(store) and any(file.level == 0 for file in returning):
        text = (
            "it replaced files of level 0, whose rows readers of this table see compacted alone: they would be hidden until the next "
            "compaction; roll the table back to the snapshot before it, if nothing was written since"
        )
        return Unfit(bucket.place, RefusalRule.ROWS_WOULD_HIDE, text)
    for file in bucket.inputs:
        for path in store.data_paths(bucket.partition, bucket.bucket, file):
            if not store.file_io.exists(path):
                return Unfit(bucket.place, RefusalRule.FILES_ARE_GONE, f"{path} was deleted; {_TAG_ADVICE}")
    if snapshot is not None:
        for one in {vector.path for vector in bucket.vectors.values()}:
            if not store.file_io.exists(one):
                return Unfit(bucket.place, RefusalRule.FILES_ARE_GONE, f"{one} was deleted; {_TAG_ADVICE}")
    return None


def not_on_top(store: TableStore, bucket: ReplacedFiles, live: Collection[_Named]) -> list[str]:
    """Names of files by which the bucket differs from what the compaction left there, as far as that matters.

    New files of level 0 may have come. In a keyed bucket all others must be as they were left, since a newer version of a key may not lie
    below an older one; files of append tables stand alone, so only those that the compaction wrote matter.
    """
    live = frozenset(live)
    gone = (bucket.left if store.has_primary_key else bucket.made) - live
    came = {(name, level) for name, level in live - bucket.left if level > 0} if store.has_primary_key else set()
    # What it wrote itself is told first.
    return [name for name, _ in (*sorted(gone & bucket.made), *sorted(gone - bucket.made), *sorted(came))]


def _may_have_dropped_the_last_word(store: TableStore, bucket: ReplacedFiles) -> bool:
    """Whether the compaction can have dropped the winning row of a key: a delete, or a row that was over.

    Rows that lost against one which it kept lose against it once more when they come back, whatever numbers newer rows have. Files
    that do not count their deletes may have some.
    """
    return expiry_of(store) is not None or any(f.delete_row_count != 0 for f in bucket.inputs)


def numbers_taken(store: TableStore, bucket: ReplacedFiles, live: Iterable[tuple[str, int, int]]) -> list[str]:
    """Those of the ``live`` files (name, level, least sequence number) that came since and have numbers of rows that are to come back.

    A delete that a compaction dropped leaves its number to the next row that is written; once it is back it would win over that row.
    """
    if not store.has_primary_key or not bucket.inputs or not _may_have_dropped_the_last_word(store, bucket):
        return []
    newest = max(file.max_sequence_number for file in bucket.inputs)
    return [name for name, level, least in live if (name, level) not in bucket.left and least <= newest]


def still_on_top(store: TableStore, buckets: Sequence[ReplacedFiles], entries: pa.Table) -> Rescan:
    """``entries`` of the undo as long as nobody changed what the compaction left; asked at every attempt of the commit.

    The source raises :class:`CommitConflict` naming the commit in the way.
    """
    partitions = sorted({bucket.partition for bucket in buckets})

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        if latest is None:
            raise CommitConflict(ConflictKind.BASE_GONE, reason=f"table {store.name} has no snapshot any more")
        live = manifests.live_entries(store, latest, partitions=partitions)
        groups = {(partition, bucket): table for partition, bucket, _, table in bucket_groups(live)}
        for bucket in buckets:
            table = groups.get(bucket.place)
            changed = not_on_top(store, bucket, _named(table))
            if table is not None and not changed:
                columns = (table.column(name).to_pylist() for name in ("file_name", "level", "min_sequence_number"))
                changed = numbers_taken(store, bucket, zip(*columns, strict=True))
            if changed:
                user, number = _who(store, latest, changed)
                reason = f"table {store.name}: files that are to be put back were used by another commit"
                raise CommitConflict(ConflictKind.BUCKET_CHANGED, changed, user, number, reason)
        return live, entries

    return source


def _who(store: TableStore, latest: Snapshot | None, names: Sequence[str]) -> tuple[str | None, int | None]:
    user, number = blame(store, latest, set(names), DELETE)
    return (user, number) if number is not None else blame(store, latest, set(names), ADD)


def _used(store: TableStore, latest: Snapshot | None, place: Place, names: Sequence[str]) -> Unfit:
    user, number = _who(store, latest, names)
    by = f"snapshot {number} (by {user})" if number is not None else "a later commit"
    text = f"{by} built on what it left: {names[0]} is not as it was; to undo that one first, see `dredge ledger`, or compact again"
    return Unfit(place, RefusalRule.OUTPUTS_USED, text)


def _changes_told(store: TableStore, place: Place) -> Unfit:
    text = (
        f"it told its changes to streams (changelog-producer {store.options.changelog_producer}), and compacting again would tell "
        "them a second time"
    )
    return Unfit(place, RefusalRule.CHANGES_TOLD, text)


def _vectors_unknown(number: int, place: Place) -> Unfit:
    text = f"which rows deletion vectors marked before snapshot {number} is not known any more; {_TAG_ADVICE}"
    return Unfit(place, RefusalRule.FILES_ARE_GONE, text)


def _refused(store: TableStore, rule: RefusalRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, table=store.name, detail=detail)


def place_text(store: TableStore, place: Place) -> str:
    """How people call the bucket: "dt=1/bucket-0"."""
    return bucket_name(partition_text(store.schema, place[0], store.options), place[1])


def vectors_of(bucket: ReplacedFiles, store: TableStore) -> dict[str, DeletionFile]:
    """Deletion vectors of the bucket's files now, by data file. Raises CorruptFile."""
    return deletion_files(store, *bucket.place, bucket.index_files)


__all__ = [
    "UNDO_PROPERTY",
    "Compaction",
    "ReplacedFiles",
    "UndoneCompaction",
    "Unfit",
    "find_compaction",
    "not_on_top",
    "numbers_taken",
    "place_text",
    "still_on_top",
    "undone_by",
    "vectors_of",
]
