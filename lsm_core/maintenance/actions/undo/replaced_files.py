"""Files that a compaction replaced (from its snapshot, or from ledger and tag), and whether they can be restored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.conflicts import Rescan, blame
from lsm_core.errors import CommitConflict, ConflictKind, CorruptFile, InvalidOption, PlanRefused, RefusalRule
from lsm_core.format.manifest import ADD, DELETE, DataFileMeta, IndexFileMeta, table_to_entries
from lsm_core.format.partitions import partition_text
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.action import PLAN_PROPERTY, bucket_name
from lsm_core.maintenance.actions.compact.compaction import expiry_clock
from lsm_core.maintenance.ledger import DONE, UNKNOWN, LedgerEntry, find_entry, read_ledger
from lsm_core.metadata import manifests, snapshots, tags
from lsm_core.metadata.indexes import DeletionFile, deleted_rows, deletion_files, vector_files
from lsm_core.metadata.live_files import bucket_groups, compacted_only
from lsm_core.metadata.store import POSTPONE_BUCKET, TableStore
from lsm_core.metadata.support import require_current
from lsm_core.read.prune import expiry_of

UNDO_PROPERTY: Final = "dredge.undo-of"
"""Snapshot property: run of the compaction that the snapshot undid."""
_COMPACTING: Final = frozenset({"compact", "recover"})
_RUNS_SHOWN: Final = 5
_TAG_ADVICE: Final = (
    "a tag on the snapshot before keeps them: 'dredge.pre-compaction-tag' = 'true' makes one at each compaction"
)
Place = tuple[bytes, int]
_Named = tuple[str, int]


@dataclass(frozen=True)
class ReplacedFiles:
    """Changes of one bucket by a compaction, and the bucket's current state.

    A rollback by a new commit uses this class for the changes since the older snapshot, with an empty ``left``.

    Attributes:
        partition: partition in Paimon's binary form.
        bucket: number of the bucket.
        total_buckets: number of buckets of the partition.
        inputs: files that the compaction removed, with those that it moved from their level.
        outputs: files that the compaction added, with those that it moved to another level.
        left: (name, level) of all files in the bucket right after the compaction.
        vectors: deletion vectors before the compaction, by data file name.
        live: data files currently in the bucket.
        index_files: index files with the bucket's current deletion vectors.
        moved_vectors: number of rows that the compaction itself marked as deleted, by name of an output; only in tables
            with data evolution, whose compactions keep deleted rows.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    inputs: tuple[DataFileMeta, ...]
    outputs: tuple[DataFileMeta, ...]
    left: frozenset[_Named]
    vectors: Mapping[str, DeletionFile]
    live: tuple[DataFileMeta, ...] = ()
    index_files: tuple[IndexFileMeta, ...] = ()
    moved_vectors: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Partition and number of the bucket."""
        return self.partition, self.bucket

    @property
    def made(self) -> frozenset[_Named]:
        """(name, level) of the files that the compaction added or moved to a new level."""
        return frozenset((file.file_name, file.level) for file in self.outputs)


@dataclass(frozen=True)
class UndoneCompaction:
    """Compaction that an undo reverted.

    Attributes:
        snapshot_id: id of the compaction's snapshot, None if unknown.
        whole: whether the undo covered all buckets of the compaction.
    """

    snapshot_id: int | None
    whole: bool


def find_undone_compaction(store: TableStore, snapshot: Snapshot) -> UndoneCompaction | None:
    """Return the compaction that a snapshot undid, or None if the snapshot is not an undo.

    An unreadable ledger (record of maintenance runs) is not an error.

    Args:
        store: the table.
        snapshot: snapshot that may be an undo.

    Raises:
        CorruptFile: a snapshot or manifest cannot be read.
    """
    run_id = (snapshot.properties or {}).get(UNDO_PROPERTY)
    if run_id is None:
        return None
    try:
        number = _compaction_entry(store, run_id).snapshot_id
    except (CorruptFile, InvalidOption):  # the ledger was deleted or replaced
        return UndoneCompaction(None, whole=False)
    compaction = None if number is None else snapshots.try_read(store, number)
    if compaction is None:
        return UndoneCompaction(number, whole=False)
    return UndoneCompaction(number, whole=changed_places(store, compaction) <= changed_places(store, snapshot))


def changed_places(store: TableStore, snapshot: Snapshot) -> set[Place]:
    """Return the buckets whose files a snapshot changed, each as partition and bucket number.

    Args:
        store: the table.
        snapshot: the snapshot.

    Raises:
        CorruptFile: a manifest of the snapshot cannot be read.
    """
    changed = manifests.delta_entries(store, snapshot)
    return set(zip(changed.column("partition").to_pylist(), changed.column("bucket").to_pylist(), strict=True))


@dataclass(frozen=True)
class UndoObstacle:
    """Bucket whose compaction cannot be undone.

    Attributes:
        place: partition (serialised) and number of the bucket.
        rule: safety rule that would be violated.
        text: the reason, for people.
    """

    place: Place
    rule: RefusalRule
    text: str


@dataclass(frozen=True)
class Compaction:
    """Compaction that may be undone.

    Attributes:
        run_id: id of the compaction's run in the ledger.
        snapshot_id: id of the compaction's snapshot.
        clock: time that decided record-level expiry in the compaction (epoch ms).
        buckets: buckets that can be restored.
        unfit: buckets that cannot be restored, with the reasons.
    """

    run_id: str
    snapshot_id: int
    clock: int
    buckets: tuple[ReplacedFiles, ...]
    unfit: tuple[UndoObstacle, ...]


def find_compaction(store: TableStore, run_id: str, *, allow_changes: bool = False) -> Compaction:
    """Return the changes of a compaction by bucket, and which buckets can be undone now. Only metadata is read.

    Args:
        store: the table.
        run_id: id of the compaction's run in the ledger.
        allow_changes: accept buckets in which a newer row may have the sequence number of a restored row, or in which
            restored rows are hidden from readers until the next compaction.

    Raises:
        InvalidOption: the run does not exist, is not a compaction, or published no snapshot.
        PlanRefused: the compaction was rolled back or undone already, its metadata no longer exists, or its snapshot
            assigned postponed rows to buckets.
        CorruptFile: metadata cannot be read.
        WriterStale: the schema changed.
    """
    entry = _compaction_entry(store, run_id)
    latest = snapshots.latest(store)
    if latest is None:
        raise _refusal(store, RefusalRule.HISTORY_CHANGED, "the table has no snapshot any more")
    number = entry.snapshot_id
    if number is None or number > latest.id:
        raise _refusal(
            store, RefusalRule.HISTORY_CHANGED, f"snapshot {number}, which it published, is gone: rolled back"
        )
    snapshot = snapshots.try_read(store, number)
    if snapshot is not None:
        if (snapshot.properties or {}).get(PLAN_PROPERTY) != entry.plan_hash:
            why = f"snapshot {number} is not the one that this run published: the table was rolled back"
            raise _refusal(store, RefusalRule.HISTORY_CHANGED, why)
        before, unfit = _from_snapshot(store, snapshot, latest)
        clock = expiry_clock(snapshot)
    else:
        before, unfit = _from_ledger(store, entry, number, latest)
        clock = entry.time_ms
    partitions = sorted({bucket.partition for bucket in before})
    live = manifests.live_entries(store, latest, partitions=partitions, buckets=sorted({b.bucket for b in before}))
    require_current(store, live, "undoing a compaction")
    groups = {(partition, bucket): table for partition, bucket, _, table in bucket_groups(live)}
    vectors = vector_files(store, latest, partitions)
    fit = []
    for bucket in before:
        table = groups.get(bucket.place)
        files = () if table is None else tuple(entry.file for entry in table_to_entries(table))
        live = {(file.file_name, file.level): file for file in files}  # indexes may have been rewritten since
        now = replace(
            bucket,
            outputs=tuple(live.get((file.file_name, file.level), file) for file in bucket.outputs),
            live=files,
            index_files=vectors.get(bucket.place, ()),
        )
        unfit_bucket = _why_unfit(store, latest, now, snapshot, allow_changes)
        fit += [] if unfit_bucket else [now]
        unfit += [unfit_bucket] if unfit_bucket else []
    if unfit:
        later = [snapshot_id for snapshot_id in snapshots.list_ids(store) if snapshot_id > number]
        for undo in snapshots.iterate(store, later):
            if (undo.properties or {}).get(UNDO_PROPERTY) == run_id:
                raise _refusal(store, RefusalRule.ALREADY_UNDONE, f"snapshot {undo.id} undid run {run_id}")
    return Compaction(run_id, number, clock, tuple(fit), tuple(unfit))


def _compaction_entry(store: TableStore, run_id: str) -> LedgerEntry:
    """Return the ledger entry of the run ``run_id``, which must be a compaction that published a snapshot.

    Raises InvalidOption if the run is not such a compaction; the message names the newest compactions.
    """
    try:
        entry = find_entry(store, run_id)
    except InvalidOption as error:
        raise InvalidOption("run_id", run_id, _known_runs(store), store.name) from error
    if entry.action not in _COMPACTING:
        raise InvalidOption("run_id", run_id, f"{_known_runs(store)}; this one did {entry.action!r}", store.name)
    number = entry.snapshot_id
    if number is None and entry.outcome == UNKNOWN:
        ids = [snapshot_id for snapshot_id in snapshots.list_ids(store) if snapshot_id > (entry.base_snapshot or 0)]
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


def _from_snapshot(
    store: TableStore, snapshot: Snapshot, latest: Snapshot
) -> tuple[list[ReplacedFiles], list[UndoObstacle]]:
    """Return the changes by bucket, and the buckets that cannot be undone, from the compaction's ``snapshot``.

    ``latest`` is the table's newest snapshot, from which the current files of the buckets are read.

    Raises PlanRefused if the snapshot is not a compaction, or assigned postponed rows to buckets.
    """
    delta = manifests.delta_entries(store, snapshot)
    if (
        snapshot.commit_kind is not CommitKind.COMPACT
        or pc.any(pc.equal(delta.column("bucket"), POSTPONE_BUCKET)).as_py()
    ):
        raise _refusal(store, RefusalRule.NOT_A_COMPACTION, f"snapshot {snapshot.id} gave postponed rows their buckets")
    emitting = set()
    if snapshot.changelog_manifest_list:
        listed = manifests.changelog_list(store, snapshot)
        # If the changelog has expired, any bucket may have emitted changes.
        changes = delta if listed is None else manifests.entries_of(store, listed)
        emitting = set(zip(changes.column("partition").to_pylist(), changes.column("bucket").to_pylist(), strict=True))
    partitions = sorted(set(delta.column("partition").to_pylist()))
    after = {
        (p, b): table
        for p, b, _, table in bucket_groups(manifests.live_entries(store, snapshot, partitions=partitions))
    }
    number = snapshot.id - 1
    base = snapshots.try_read(store, number)
    base = base or next((tag for tag in tags.list_tags(store).values() if tag.id == number), None)
    vectors = {} if base is None else vector_files(store, base, partitions)
    since = vector_files(store, snapshot, partitions)
    now = vector_files(store, latest, partitions)
    buckets, unfit = [], []
    for partition, bucket, total, table in bucket_groups(delta):
        place = (partition, bucket)
        entries = table_to_entries(table)
        removed = {entry.file.file_name: entry.file for entry in entries if entry.kind == DELETE}
        added = {entry.file.file_name: entry.file for entry in entries if entry.kind == ADD}
        if place in emitting:
            unfit.append(_changelog_emitted(store, place))
            continue
        if base is None and store.options.deletion_vectors_enabled:
            unfit.append(_vectors_unknown(snapshot.id, place))
            continue
        # The vectors of a keyed bucket belong to one state of all its files; those of append files are independent.
        if store.has_primary_key and now.get(place, ()) != since.get(place, ()):
            text = "rows of its files were marked as deleted since (deletion vectors)"
            unfit.append(UndoObstacle(place, RefusalRule.OUTPUTS_USED, text))
            continue
        buckets.append(
            ReplacedFiles(
                *(partition, bucket, total),
                inputs=tuple(removed.values()),
                outputs=tuple(added.values()),
                left=_names_and_levels(after.get(place)),
                vectors=deletion_files(store, *place, vectors.get(place, ())),
                moved_vectors=deleted_rows(since.get(place, ())) if manifests.evolves(store) else {},
            )
        )
    return buckets, unfit


def _from_ledger(
    store: TableStore, entry: LedgerEntry, number: int, latest: Snapshot
) -> tuple[list[ReplacedFiles], list[UndoObstacle]]:
    """Return the changes by bucket, and the buckets that cannot be undone, of a compaction whose snapshot expired.

    ``entry`` is the ledger entry of the compaction, and ``number`` the id of its expired snapshot. File names come from
    the ledger. The metadata of the inputs comes from the newest tag before the compaction, the metadata of the outputs
    from ``latest``. Raises PlanRefused if there is no such tag, or the ledger names no files.
    """
    tagged = [snapshot for snapshot in tags.list_tags(store).values() if snapshot.id < number]
    if not tagged:
        text = (
            f"snapshot {number} has expired, and no tag names an earlier one that held the files it replaced; "
            f"{_TAG_ADVICE}"
        )
        raise _refusal(store, RefusalRule.FILES_ARE_GONE, text)
    tag = max(tagged, key=lambda snapshot: snapshot.id)
    lines = [line for line in entry.lines if line.get("event") == "compacted"]
    places = [_place_of(line) for line in lines]
    if not lines or None in places:
        text = f"snapshot {number} has expired, and the run's entry in the ledger does not name the files that it wrote"
        raise _refusal(store, RefusalRule.FILES_ARE_GONE, text)
    partitions = sorted({place[0] for place in places if place is not None})
    tables = {
        (p, b): (total, t)
        for p, b, total, t in bucket_groups(manifests.live_entries(store, tag, partitions=partitions))
    }
    written = pa.array([name for line in lines for name, _ in _listed(line, "outputs")], pa.string())
    live = manifests.live_entries(store, latest, partitions=partitions)
    kept = table_to_entries(live.filter(pc.is_in(live.column("file_name"), written)))
    living = {(entry.file.file_name, entry.file.level): entry.file for entry in kept}
    buckets, unfit = [], []
    for line, place in zip(lines, places, strict=True):
        assert place is not None
        if line.get("changes_told") or store.options.changelog_producer in {"lookup", "full-compaction"}:
            unfit.append(_changelog_emitted(store, place))
            continue
        if store.options.deletion_vectors_enabled:
            unfit.append(_vectors_unknown(number, place))
            continue
        total, table = tables.get(place, (0, None))
        before = {} if table is None else {(e.file.file_name, e.file.level): e.file for e in table_to_entries(table)}
        removed, added = _listed(line, "inputs"), _listed(line, "outputs")
        missing = [name for name, level in removed if (name, level) not in before]
        if missing:
            text = f"{missing[0]}, which it replaced, is in no snapshot, nor in a tag; {_TAG_ADVICE}"
            unfit.append(UndoObstacle(place, RefusalRule.FILES_ARE_GONE, text))
            continue
        lost = [name for name, level in added if (name, level) not in living]
        if lost:
            unfit.append(_outputs_used(store, latest, place, lost))
            continue
        earlier, later = (
            {name: before[name, level] for name, level in removed},
            {name: living[name, level] for name, level in added},
        )
        buckets.append(
            ReplacedFiles(
                *(*place, total),
                inputs=tuple(earlier.values()),
                outputs=tuple(later.values()),
                left=frozenset((before.keys() - set(removed)) | set(added)),
                vectors={},
            )
        )
    return buckets, unfit


def _place_of(line: Mapping[str, Any]) -> Place | None:
    """Return the bucket of a ledger line, or None if the line has no bucket and files (older Dredge versions)."""
    try:
        partition, bucket = line["place"]
        _listed(line, "inputs"), _listed(line, "outputs")
        return bytes.fromhex(partition), int(bucket)
    except (KeyError, TypeError, ValueError):
        return None


def _listed(line: Mapping[str, Any], name: str) -> list[_Named]:
    return [(str(file), int(level)) for file, level in line[name]]


def _names_and_levels(table: pa.Table | None) -> frozenset[_Named]:
    if table is None:
        return frozenset()
    return frozenset(zip(table.column("file_name").to_pylist(), table.column("level").to_pylist(), strict=True))


def _why_unfit(
    store: TableStore, latest: Snapshot, bucket: ReplacedFiles, snapshot: Snapshot | None, allow_changes: bool
) -> UndoObstacle | None:
    """Return the reason why the files of a bucket cannot be restored, or None if they can.

    Args:
        store: the table.
        latest: newest snapshot of the table.
        bucket: changes of the compaction in the bucket, with the bucket's current live files.
        snapshot: snapshot of the compaction, or None if it expired.
        allow_changes: accept that dropped rows had larger sequence numbers than the kept ones, and that rows of level
            0 are hidden from readers until the next compaction.
    """
    live = frozenset((file.file_name, file.level) for file in bucket.live)
    changed = find_changed_files(store, bucket, live)
    if changed:
        return _outputs_used(store, latest, bucket.place, changed)
    if store.has_primary_key and bucket.inputs:
        newest = max(file.max_sequence_number for file in bucket.inputs)
        conflicting = find_taken_numbers(
            store, bucket, ((f.file_name, f.level, f.min_sequence_number) for f in bucket.live)
        )
        if conflicting:
            text = (
                f"{conflicting[0]} was written since, with sequence numbers of rows that the compaction dropped: "
                "these would win over newer ones if they came back"
            )
            return UndoObstacle(bucket.place, RefusalRule.NUMBERS_TAKEN, text)
        kept = max((f.max_sequence_number for f in bucket.live if (f.file_name, f.level) in bucket.left), default=-1)
        if newest > kept and _may_have_dropped_winners(store, bucket) and not allow_changes:
            text = (
                "it dropped the rows with the largest sequence numbers (deletes, or expired rows): a writer opened "
                "since may assign them to newer rows, which would lose against the ones that come back; "
                "with no such writer open allow_changes undoes it"
            )
            return UndoObstacle(bucket.place, RefusalRule.NUMBERS_TAKEN, text)
    if not store.has_primary_key:
        names = {name for name, _ in bucket.made}
        marked = [
            name
            for name, rows in deleted_rows(bucket.index_files).items()
            if name in names and bucket.moved_vectors.get(name) != rows
        ]
        if marked:
            text = f"rows of {marked[0]}, which it wrote, were marked as deleted since (deletion vectors)"
            return UndoObstacle(bucket.place, RefusalRule.OUTPUTS_USED, text)
    hides = store.has_primary_key and compacted_only(store) and any(file.level == 0 for file in bucket.inputs)
    if hides and not allow_changes:
        text = (
            "it replaced files of level 0, whose rows readers of this table see only after a compaction: they would be "
            "hidden until the next one, which allow_changes accepts"
        )
        return UndoObstacle(bucket.place, RefusalRule.ROWS_WOULD_HIDE, text)
    for file in bucket.inputs:
        for path in store.data_paths(bucket.partition, bucket.bucket, file):
            if not store.file_io.exists(path):
                return UndoObstacle(bucket.place, RefusalRule.FILES_ARE_GONE, f"{path} was deleted; {_TAG_ADVICE}")
    if snapshot is not None:
        for path in {vector.path for vector in bucket.vectors.values()}:
            if not store.file_io.exists(path):
                return UndoObstacle(bucket.place, RefusalRule.FILES_ARE_GONE, f"{path} was deleted; {_TAG_ADVICE}")
    return None


def find_changed_files(store: TableStore, bucket: ReplacedFiles, live: Collection[_Named]) -> list[str]:
    """Return the names of files that changed after the compaction in a way that prevents the undo.

    In a primary-key table, new level-0 files are allowed, and all further files must be unchanged: a newer version of a
    key must not be on a higher level than an older version. Files of append tables are independent. There, only the
    files that the compaction wrote must be unchanged.

    Args:
        store: the table.
        bucket: files that the compaction replaced.
        live: (name, level) of the files currently in the bucket.
    """
    live = frozenset(live)
    missing = (bucket.left if store.has_primary_key else bucket.made) - live
    added = {(name, level) for name, level in live - bucket.left if level > 0} if store.has_primary_key else set()
    # Files that it wrote itself are reported first.
    return [name for name, _ in (*sorted(missing & bucket.made), *sorted(missing - bucket.made), *sorted(added))]


def _may_have_dropped_winners(store: TableStore, bucket: ReplacedFiles) -> bool:
    """Return whether the compaction may have dropped the newest row of a key: a delete record, or an expired row.

    Restoring only older rows of a key is safe: the compaction kept the newest row, so merging drops the older rows
    again. A file whose metadata does not count its delete records is assumed to have some.
    """
    return expiry_of(store) is not None or any(f.delete_row_count != 0 for f in bucket.inputs)


def find_taken_numbers(store: TableStore, bucket: ReplacedFiles, live: Iterable[tuple[str, int, int]]) -> list[str]:
    """Return the names of newer files whose rows may have the same sequence numbers as rows in the restored files.

    If a compaction drops a delete record, the record's sequence number can be given to a later row. If the record were
    restored, the record would win over the later row.

    Args:
        store: the table.
        bucket: files that the compaction replaced.
        live: files currently in the bucket, as (name, level, smallest sequence number).
    """
    if not store.has_primary_key or not bucket.inputs or not _may_have_dropped_winners(store, bucket):
        return []
    newest = max(file.max_sequence_number for file in bucket.inputs)
    return [name for name, level, least in live if (name, level) not in bucket.left and least <= newest]


def rescan_unchanged(store: TableStore, buckets: Sequence[ReplacedFiles], entries: pa.Table) -> Rescan:
    """Return a function that reads the live entries for each commit attempt of an undo, and checks the buckets again.

    Args:
        store: the table.
        buckets: files that the compaction replaced.
        entries: manifest entries of the undo.

    Returns:
        Function of the newest snapshot that returns the live entries of the buckets' partitions, and ``entries``. The
            function raises CommitConflict if another commit changed a bucket; the message names that commit.
    """
    partitions = sorted({bucket.partition for bucket in buckets})

    def source(latest: Snapshot | None) -> tuple[pa.Table, pa.Table]:
        if latest is None:
            raise CommitConflict(ConflictKind.BASE_GONE, reason=f"table {store.name} has no snapshot any more")
        live = manifests.live_entries(store, latest, partitions=partitions)
        groups = {(partition, bucket): table for partition, bucket, _, table in bucket_groups(live)}
        for bucket in buckets:
            table = groups.get(bucket.place)
            changed = find_changed_files(store, bucket, _names_and_levels(table))
            if table is not None and not changed:
                columns = (table.column(name).to_pylist() for name in ("file_name", "level", "min_sequence_number"))
                changed = find_taken_numbers(store, bucket, zip(*columns, strict=True))
            if changed:
                user, number = _who(store, latest, changed)
                reason = f"table {store.name}: files that are to be put back were used by another commit"
                raise CommitConflict(ConflictKind.BUCKET_CHANGED, changed, user, number, reason)
        return live, entries

    return source


def _who(store: TableStore, latest: Snapshot | None, names: Sequence[str]) -> tuple[str | None, int | None]:
    user, number = blame(store, latest, set(names), DELETE)
    return (user, number) if number is not None else blame(store, latest, set(names), ADD)


def _outputs_used(store: TableStore, latest: Snapshot | None, place: Place, names: Sequence[str]) -> UndoObstacle:
    user, number = _who(store, latest, names)
    by = f"snapshot {number} (by {user})" if number is not None else "a later commit"
    text = (
        f"{by} built on what it left: {names[0]} is not as it was; "
        "to undo that one first, see `dredge ledger`, or compact again"
    )
    return UndoObstacle(place, RefusalRule.OUTPUTS_USED, text)


def _changelog_emitted(store: TableStore, place: Place) -> UndoObstacle:
    text = (
        f"it emitted its changes to streams (changelog-producer {store.options.changelog_producer}), "
        "and compacting again would emit them a second time"
    )
    return UndoObstacle(place, RefusalRule.CHANGES_TOLD, text)


def _vectors_unknown(number: int, place: Place) -> UndoObstacle:
    text = f"which rows deletion vectors marked before snapshot {number} is not known any more; {_TAG_ADVICE}"
    return UndoObstacle(place, RefusalRule.FILES_ARE_GONE, text)


def _refusal(store: TableStore, rule: RefusalRule, detail: str) -> PlanRefused:
    return PlanRefused(rule, table=store.name, detail=detail)


def place_text(store: TableStore, place: Place) -> str:
    """Return the name of a bucket for people: "dt=1/bucket-0".

    Args:
        store: the table.
        place: partition bytes and number of the bucket.
    """
    return bucket_name(partition_text(store.schema, place[0], store.options), place[1])


def vectors_of(bucket: ReplacedFiles, store: TableStore) -> dict[str, DeletionFile]:
    """Return the current deletion vectors of the bucket's files, by data file.

    Args:
        bucket: files that the compaction replaced.
        store: the table.

    Raises:
        CorruptFile: an index file cannot be read.
    """
    return deletion_files(store, *bucket.place, bucket.index_files)
