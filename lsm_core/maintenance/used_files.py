"""Which files are still needed: asked by references from every snapshot, tag, branch, changelog and pending restore.

Never by listing data directories, and always failing closed: what cannot be read might need anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import SnapshotNotFound
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.trash import EXPIRED_CHANGELOGS, TrashRecord
from lsm_core.metadata import branches, changelogs, manifests, snapshots, tags
from lsm_core.metadata.store import TableStore


@dataclass(frozen=True)
class Lineage:
    """Snapshots that follow each other on one line of history, oldest first; ``holder`` names it for people.

    ``changelog``: they have expired, and only what their changelogs tell is needed. ``deltas``: what their changelogs will tell is needed
    too, files of writers that they dropped. ``pending``: they are in a deletion record
    that can still be restored, so they need their files for that long only.
    """

    holder: str
    snapshots: tuple[Snapshot, ...]
    changelog: bool = False
    deltas: bool = False
    pending: bool = False


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
    pending: Sequence[TrashRecord] = (),
) -> list[Lineage]:
    """Everything that may need a file: main's snapshots and changelogs, tags, branches, pending records.

    Main's snapshots but the ids in ``without``, which are changelogs from now on where the table keeps these longer, and its
    changelogs but those of ``without_changelogs``. Raises CorruptFile when any of them cannot be read.
    """
    ids = snapshots.list_ids(store)
    later = store.options.changelog_decoupled and changelogs.keeps_deltas(store)
    found = _split_at_gaps(
        _read_all(store, [number for number in ids if number not in without]), "snapshot", deltas=later
    )
    found += [Lineage(f"tag {name}", (tag,)) for name, tag in sorted(tags.list_tags(store).items())]
    turning = set(without) & set(ids) if store.options.changelog_decoupled else set()
    found += _told("changelog", [*_read_all(store, sorted(turning)), *_changelogs(store, without_changelogs | turning)])
    for branch in branches.list_branches(store):
        branch_store = branches.open_branch(store, branch)
        found += _split_at_gaps(_read_all(branch_store, snapshots.list_ids(branch_store)), f"branch {branch} snapshot")
        for name, tag in sorted(tags.list_tags(branch_store).items()):
            found.append(Lineage(f"branch {branch} tag {name}", (tag,)))
        found += _told(f"branch {branch} changelog", _changelogs(branch_store))
    for record in pending:
        kept = [
            Snapshot.from_json(text.encode(), f"{record.trash_id}: snapshot {n}")
            for n, text in sorted(record.snapshots.items())
        ]
        holder = f"trash {record.trash_id} (can be restored)"
        if record.action == EXPIRED_CHANGELOGS:
            found += _told(f"{holder} changelog", kept, pending=True)
        else:
            found += _split_at_gaps([_as_it_is(store, one) for one in kept], f"{holder} snapshot", pending=True)
    return found


def _as_it_is(store: TableStore, expired: Snapshot) -> Snapshot:
    """Without its changelog where that is gone: other engines expire changelogs and know nothing of deletion records."""
    listed = expired.changelog_manifest_list
    if listed is None or store.file_io.exists(store.manifest_path(listed)):
        return expired
    return replace(expired, changelog_manifest_list=None, changelog_manifest_list_size=None)


def still_used(store: TableStore, lineages: Sequence[Lineage], candidates: AbstractSet[str]) -> Used:
    """Those of ``candidates`` (bare file names) that a lineage needs: data and extra files, and all metadata files."""
    used = Used()
    wanted = pa.array(sorted(candidates), pa.string())
    for lineage in lineages:
        numbered = lineage.holder.endswith(("snapshot", "changelog"))
        for position, snapshot in enumerate(lineage.snapshots):
            holder = f"{lineage.holder} {snapshot.id}" if numbered else lineage.holder
            if lineage.changelog:
                used.add(
                    (name for name, _, _ in changelog_files(store, snapshot)),
                    holder,
                    candidates,
                    pending=lineage.pending,
                )
                names = names_of(changelogs.kept_entries(store, snapshot))
            else:
                used.add(metadata_names(store, snapshot), holder, candidates, pending=lineage.pending)
                # After the first of a lineage its own additions say all there is to say.
                if position == 0:
                    entries = manifests.live_entries(store, snapshot, columns=["file_name", "extra_files"])
                else:
                    entries = added(manifests.delta_entries(store, snapshot))
                names = names_of(entries)
                if lineage.deltas:
                    names = pa.concat_arrays([names, names_of(removed_by_writers(store, snapshot))])
                if snapshot.changelog_manifest_list:
                    names = pa.concat_arrays([names, names_of(manifests.changelog_entries(store, snapshot))])
            used.add(names.filter(pc.is_in(names, wanted)).to_pylist(), holder, candidates, pending=lineage.pending)
    return used


def metadata_names(store: TableStore, snapshot: Snapshot) -> Iterator[str]:
    """Names of the manifest-side files of one snapshot: lists, manifests, index manifest, index files, statistics."""
    for name, _, _ in metadata_files(store, snapshot):
        yield name


def metadata_files(store: TableStore, snapshot: Snapshot) -> Iterator[tuple[str, str, int]]:
    """(name, kind, size in bytes, 0 when the format does not record it) of one snapshot's manifest-side files."""
    lists = (
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        (snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size),
    )
    for name, size in lists:
        if not name:
            continue
        yield name, "manifest-list", size or 0
        for meta in manifests.read_list(store, name, size):
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


def _split_at_gaps(
    found: Sequence[Snapshot], holder: str, *, deltas: bool = False, pending: bool = False
) -> list[Lineage]:
    """Lines of history: deltas only add up between neighbours, so every gap starts a new line."""
    lines: list[list[Snapshot]] = []
    for snapshot in found:
        if lines and lines[-1][-1].id + 1 == snapshot.id:
            lines[-1].append(snapshot)
        else:
            lines.append([snapshot])
    return [Lineage(holder, tuple(line), deltas=deltas, pending=pending) for line in lines]
