"""Which files are still needed: asked by references from every snapshot, tag, branch, changelog and pending restore.

Never by listing data directories, and always failing closed: what cannot be read might need anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.json_reader import parse_json
from lsm_core.maintenance.action import Runner, TaskRunner
from lsm_core.maintenance.trash import DELETED_BRANCH, EXPIRED_CHANGELOGS, TrashRecord
from lsm_core.metadata import branches, changelogs, manifests, snapshots, tags
from lsm_core.metadata.store import TableStore
from lsm_core.options import TableOptions

LOOKED_AT_HERE: Final = 256
"""So many snapshots, tags and changelogs at most are looked at by the process that asks, whoever runs parts."""
SNAPSHOTS_A_PART: Final = 32
_BYTES_A_NAME: Final = 120


@dataclass(frozen=True)
class Lineage:
    """Snapshots that follow each other on one line of history, oldest first; ``holder`` names it for people.

    ``changelog``: they have expired, and only what their changelogs tell is needed. ``deltas``: what their changelogs will tell is needed
    too, files of writers that they dropped. ``pending``: they are in a deletion record
    that can still be restored, so they need their files for that long only. ``store``: the branch whose options say what a changelog
    keeps, None for the one that is asked about.
    """

    holder: str
    snapshots: tuple[Snapshot, ...]
    changelog: bool = False
    deltas: bool = False
    pending: bool = False
    store: TableStore | None = None


@dataclass
class Used:
    """File name -> what needs it, for the candidates asked about; bare names, so that a doubt keeps the file.

    ``waiting``: those that nothing needs but a deletion record which can still be restored.
    """

    holders: dict[str, str] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)

    def add(self, names: Iterable[str], holder: str, candidates: AbstractSet[str], *, pending: bool = False) -> None:
        """Remember the candidates among ``names``; the first holder found is the one shown, pending ones come last."""
        for name in names:
            if name in candidates and name not in self.holders:
                self.holders[name] = holder
                if pending:
                    self.waiting.add(name)


def read_lineages(
    store: TableStore,
    *,
    without: AbstractSet[int] = frozenset(),
    without_changelogs: AbstractSet[int] = frozenset(),
    without_branch: str | None = None,
    without_tags: AbstractSet[str] = frozenset(),
    dropped: AbstractSet[int] = frozenset(),
    pending: Sequence[TrashRecord] = (),
) -> list[Lineage]:
    """Everything that may need a file: snapshots, changelogs and tags of every branch, pending records.

    Of the branch that ``store`` is on the snapshots but the ids in ``without``, which are changelogs from now on where the table keeps
    these longer, and those in ``dropped``, which are gone altogether; the changelogs but those of ``without_changelogs``, the tags but
    ``without_tags``. ``without_branch`` is left out whole. Raises CorruptFile when any of them cannot be read, TableNotFound for a branch
    without schema.
    """
    found = branch_lineages(
        store, without=without, without_changelogs=without_changelogs, without_tags=without_tags, dropped=dropped
    )
    for other in branches.other_stores(store, excluded=without_branch):
        found += branch_lineages(other, f"branch {other.branch} ")
    for record in pending:
        holder = f"trash {record.trash_id} (can be restored)"
        if record.action == DELETED_BRANCH:
            found += deleted_branch_lineages(store, record, holder)
            continue
        kept = [
            Snapshot.from_json(text.encode(), f"{record.trash_id}: snapshot {n}")
            for n, text in sorted(record.snapshots.items())
        ]
        if record.action == EXPIRED_CHANGELOGS:
            found += _told(f"{holder} changelog", kept, pending=True)
        else:
            found += split_at_gaps(store, [as_it_is(store, one) for one in kept], f"{holder} snapshot", pending=True)
        for path, data in record.snapshot_files():
            name = path.rpartition("/")[2]
            one = Snapshot.from_json(data, f"{record.trash_id}: {name}")
            if name.startswith(changelogs.PREFIX):
                found += _told(f"{holder} changelog", [one], pending=True)
            else:
                found.append(Lineage(f"{holder} {name}", (as_it_is(store, one),), pending=True))
    return found


def branch_lineages(
    store: TableStore,
    prefix: str = "",
    *,
    without: AbstractSet[int] = frozenset(),
    without_changelogs: AbstractSet[int] = frozenset(),
    without_tags: AbstractSet[str] = frozenset(),
    dropped: AbstractSet[int] = frozenset(),
) -> list[Lineage]:
    """What needs files on the branch that ``store`` is on; see :func:`read_lineages`. ``prefix``: how its holders' names begin."""
    ids = snapshots.list_ids(store)
    keeps = store.options.changelog_decoupled
    kept = _read_all(store, [number for number in ids if number not in without and number not in dropped])
    found = split_at_gaps(store, kept, f"{prefix}snapshot", deltas=keeps and changelogs.keeps_deltas(store))
    tagged = [(name, tag) for name, tag in sorted(tags.list_tags(store).items()) if name not in without_tags]
    found += [Lineage(f"{prefix}tag {name}", (as_it_is(store, tag),)) for name, tag in tagged]
    turning = set(without) & set(ids) if keeps else set()
    told = [*_read_all(store, sorted(turning)), *_changelogs(store, without_changelogs | turning)]
    found += _told(f"{prefix}changelog", told)
    return [replace(one, store=store) for one in found]


def deleted_branch_lineages(store: TableStore, record: TrashRecord, holder: str) -> list[Lineage]:
    """What a branch needs that can be put back. Raises CorruptFile for a record whose copies cannot be read."""
    metadata = {path.partition(f"branch-{record.branch}/")[2]: data for path, data in record.metadata.items()}
    schema = max(
        (name for name in metadata if name.startswith("schema/schema-")), key=lambda n: int(n.rpartition("-")[2])
    )
    parsed = TableSchema.from_json(metadata[schema], f"{record.trash_id}: {schema}")
    options = TableOptions.usable(parsed.options, store.name)
    view = TableStore(store.file_io, store.root, store.name, parsed, options, store.clock, record.branch)
    kinds: dict[str, list[Snapshot]] = {"snapshot": [], "tag": [], "changelog": []}
    for name, data in metadata.items():
        kind, _, last = name.partition("/")
        if kind in kinds and last.startswith(f"{kind}-") and "/" not in last:
            kinds[kind].append(Snapshot.from_json(data, f"{record.trash_id}: {name}"))
    deltas = options.changelog_decoupled and changelogs.keeps_deltas(view)
    ordered = sorted((as_it_is(view, one) for one in kinds["snapshot"]), key=lambda one: one.id)
    found = split_at_gaps(view, ordered, f"{holder} snapshot", deltas=deltas, pending=True)
    found += [Lineage(f"{holder} tag", (as_it_is(view, one),), pending=True) for one in kinds["tag"]]
    found += _told(f"{holder} changelog", kinds["changelog"], pending=True)
    return [replace(one, store=view) for one in found]


def as_it_is(store: TableStore, expired: Snapshot) -> Snapshot:
    """Without its changelog where that is gone: other engines expire changelogs and know nothing of what tags and deletion records need."""
    listed = expired.changelog_manifest_list
    if listed is None or store.file_io.exists(store.manifest_path(listed)):
        return expired
    return replace(expired, changelog_manifest_list=None, changelog_manifest_list_size=None)


def still_used(
    store: TableStore, lineages: Sequence[Lineage], candidates: AbstractSet[str], runner: Runner | None = None
) -> Used:
    """Those of ``candidates`` (bare file names) that a lineage needs: data and extra files, and all metadata files.

    ``runner``: where it runs parts elsewhere (`TaskRunner`), these look at some of very many snapshots each; the answer is the same.
    """
    used = Used()
    asked = [(line, place) for line, lineage in enumerate(lineages) for place in range(len(lineage.snapshots))]
    if not isinstance(runner, TaskRunner) or len(asked) <= LOOKED_AT_HERE:
        wanted = pa.array(sorted(candidates), pa.string())
        for line, place in asked:
            _look_at(used, store, lineages[line], place, candidates, wanted)
        return used
    size = max(SNAPSHOTS_A_PART, -(-len(asked) // (4 * runner.slots())))
    parts = [json.dumps(asked[at : at + size]).encode() for at in range(0, len(asked), size)]
    work = partial(_used_part, store, tuple(lineages), frozenset(candidates))
    for answer in runner.run_parts(f"looking for files in use of table {store.name}", work, parts):
        for holder, names, pending in parse_json(answer):
            used.add(names, holder, candidates, pending=pending)
    return used


def _used_part(store: TableStore, lineages: Sequence[Lineage], candidates: AbstractSet[str], payload: bytes) -> bytes:
    """One part: what some snapshots need, as a list of holder, names, and whether it is pending, in the snapshots' order."""
    used = Used()
    wanted = pa.array(sorted(candidates), pa.string())
    for line, place in parse_json(payload):
        _look_at(used, store, lineages[line], place, candidates, wanted)
    found: dict[tuple[str, bool], list[str]] = {}
    for name, holder in used.holders.items():
        found.setdefault((holder, name in used.waiting), []).append(name)
    return json.dumps([[holder, names, pending] for (holder, pending), names in found.items()]).encode()


def _look_at(
    used: Used, store: TableStore, lineage: Lineage, place: int, candidates: AbstractSet[str], wanted: pa.Array
) -> None:
    """Remember what one snapshot of a lineage needs, beside what those before it do."""
    view, snapshot = lineage.store or store, lineage.snapshots[place]
    numbered = lineage.holder.endswith(("snapshot", "changelog"))
    holder = f"{lineage.holder} {snapshot.id}" if numbered else lineage.holder
    if lineage.changelog:
        named = (name for name, _, _ in changelog_files(view, snapshot))
        used.add(named, holder, candidates, pending=lineage.pending)
        names = names_of(changelogs.kept_entries(view, snapshot))
    elif place == 0:
        used.add(metadata_names(view, snapshot), holder, candidates, pending=lineage.pending)
        names = _data_names(
            view, snapshot, manifests.live_entries(view, snapshot, columns=["file_name", "extra_files"]), lineage
        )
    else:
        # After the first of a lineage its own additions say all there is to say. The lists of a snapshot are immutable.
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.changelog_manifest_list)
        key = ("needs", view.root, *lists, snapshot.index_manifest, snapshot.statistics, lineage.deltas)
        needs: tuple[list[str], pa.Array] | None = store.kept.get(key)
        if needs is None:
            delta = added(manifests.delta_entries(view, snapshot))
            needs = list(metadata_names(view, snapshot)), _data_names(view, snapshot, delta, lineage)
            store.kept.put(key, needs, needs[1].nbytes + _BYTES_A_NAME * len(needs[0]))
        used.add(needs[0], holder, candidates, pending=lineage.pending)
        names = needs[1]
    used.add(names.filter(pc.is_in(names, wanted)).to_pylist(), holder, candidates, pending=lineage.pending)


def _data_names(store: TableStore, snapshot: Snapshot, entries: pa.Table, lineage: Lineage) -> pa.Array:
    """Return the names of the files of ``entries``, and of those that the changelog of a snapshot needs."""
    parts = [names_of(entries)]
    if lineage.deltas:
        parts.append(names_of(removed_by_writers(store, snapshot)))
    if snapshot.changelog_manifest_list:
        parts.append(names_of(manifests.changelog_entries(store, snapshot)))
    return pa.concat_arrays(parts)


def metadata_names(store: TableStore, snapshot: Snapshot) -> Iterator[str]:
    """Names of the manifest-side files of one snapshot: lists, manifests, index manifest, index files, statistics."""
    for name, _, _ in metadata_files(store, snapshot):
        yield name


def metadata_files(store: TableStore, snapshot: Snapshot) -> Iterator[tuple[str, str, int]]:
    """(name, kind, size in bytes, 0 when the format does not record it) of one snapshot's manifest-side files."""
    lists: list[tuple[str, int | None, list[ManifestFileMeta]]] = [
        (name, size, manifests.read_list(store, name, size))
        for name, size in (
            (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        )
    ]
    changelog = manifests.changelog_list(store, snapshot)
    if snapshot.changelog_manifest_list and changelog is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size, changelog))
    for name, size, metas in lists:
        yield name, "manifest-list", size or 0
        for meta in metas:
            yield meta.file_name, "manifest", meta.file_size
    if snapshot.index_manifest:
        yield snapshot.index_manifest, "index-manifest", 0
        for entry in manifests.index_entries(store, snapshot):
            yield entry.file_name, "index", entry.file_size
    if snapshot.statistics:
        yield snapshot.statistics, "statistics", 0


def changelog_files(store: TableStore, changelog: Snapshot) -> Iterator[tuple[str, str, int]]:
    """As :func:`metadata_files`, of an expired snapshot whose changelog is kept: its lists that are there, and their manifests."""
    for name, size in changelogs.kept_lists(store, changelog):
        yield name, "manifest-list", size or 0
        for meta in manifests.read_list(store, name, size):
            yield meta.file_name, "manifest", meta.file_size


def names_of(entries: pa.Table) -> pa.Array:
    """File names of entries together with their extra files (file indexes)."""
    extra = pc.list_flatten(one_array(entries.column("extra_files")))
    return pa.concat_arrays([one_array(entries.column("file_name")), extra])


def added(entries: pa.Table) -> pa.Table:
    """The ADD entries."""
    return entries.filter(pc.equal(entries.column("kind"), 0))


def removed(entries: pa.Table) -> pa.Table:
    """DELETE entries whose file the same delta does not add again (an upgrade does)."""
    gone = entries.filter(pc.equal(entries.column("kind"), 1))
    kept = names_of(added(entries))
    return gone.filter(pc.invert(pc.is_in(gone.column("file_name"), kept)))


def removed_by_writers(store: TableStore, snapshot: Snapshot) -> pa.Table:
    """Entries of files that a writer made and the snapshot dropped: streams of tables without changelog producer read them later."""
    gone = removed(manifests.delta_entries(store, snapshot))
    return gone.filter(changelogs.is_written(gone))


def _read_all(store: TableStore, ids: Sequence[int]) -> list[Snapshot]:
    found = []
    for number in ids:
        try:
            found.append(snapshots.read(store, number))
        except SnapshotNotFound:
            # Expired by somebody else between the listing and this read: nothing needs it any more.
            continue
    return found


def _changelogs(store: TableStore, without: AbstractSet[int] = frozenset()) -> list[Snapshot]:
    found = []
    for number in changelogs.list_changelogs(store):
        if number not in without:
            with suppress(SnapshotNotFound):  # expired between the listing and this read
                found.append(changelogs.read_changelog(store, number))
    return found


def _told(holder: str, found: Sequence[Snapshot], *, pending: bool = False) -> list[Lineage]:
    """Each changelog tells of itself, whatever became of those before it."""
    return [Lineage(holder, (changelog,), changelog=True, pending=pending) for changelog in found]


def split_at_gaps(
    store: TableStore, ordered: Sequence[Snapshot], holder: str, *, deltas: bool = False, pending: bool = False
) -> list[Lineage]:
    """Split snapshots into lines of history, within which the delta of each adds up to the next.

    Neighbours in number are not always neighbours in history: after a rollback or a fast-forward a snapshot may follow one that it was
    not made from. So a line goes on only where the base of a snapshot is exactly what the snapshot before it left. A snapshot
    that merged manifests begins a line, too, which costs a look at all of its entries.

    Args:
        store: the table or branch that the snapshots are of.
        ordered: the snapshots, by number.
        holder: the name of the lines, for people.
        deltas: whether what writers' snapshots dropped counts as used.
        pending: whether the snapshots wait in the trash.

    Returns:
        The lines, in order.

    Raises:
        CorruptFile: a manifest list cannot be read.
    """
    lines: list[list[Snapshot]] = []
    left: set[str] = set()
    for snapshot in ordered:
        base, delta = (
            {meta.file_name for meta in manifests.read_list(store, name, size)}
            for name, size in (
                (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
                (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
            )
        )
        if lines and lines[-1][-1].id + 1 == snapshot.id and base == left:
            lines[-1].append(snapshot)
        else:
            lines.append([snapshot])
        left = base | delta
    return [Lineage(holder, tuple(line), deltas=deltas, pending=pending) for line in lines]
