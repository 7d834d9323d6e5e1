"""Live files of a large table without all of them in memory: manifest by manifest, or some files found without reading every manifest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, one_array
from lsm_core.format.file_meta import ADD, DELETE, ENTRY_SCHEMA
from lsm_core.format.manifest import ManifestFileMeta, merge_entries
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

NameOnLevel: TypeAlias = tuple[str, int]
_KEPT_BYTES: Final = 1 << 22
"""Of manifests with deletions that are held while the others are read."""


def live_parts(
    store: TableStore,
    snapshot: Snapshot,
    *,
    columns: Sequence[str],
    partitions: Collection[bytes] | None = None,
    only: Collection[str] | None = None,
    keep: Callable[[pa.Table], pa.Table] = lambda part: part,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the live files of ``snapshot`` manifest by manifest, one held at a time: (name of the manifest, ``columns`` of its entries).

    Files that some manifest takes away come last, under the name "": what is left of them. ``partitions``:
    of these alone, None: of all. ``only``: names of the manifests to read; what comes last is then incomplete. ``keep`` chooses entries, each
    by itself, as they are decoded.
    That two manifests add one file is not noticed. Raises CorruptFile naming the list or manifest.
    """
    needed = [field.name for field in ENTRY_SCHEMA if field.name in {*columns, *manifests.IDENTITY_COLUMNS}]
    metas = manifests.data_manifests(store, snapshot)
    metas = manifests.prune(metas, store.schema.partition_types, partitions, None, None)
    gone, read = _taken_away(store, metas, needed)
    doubtful: list[pa.Table] = []

    def narrow(entries: pa.Table) -> pa.Table:
        """What is kept, and all that some manifest takes away."""
        part = manifests.keep_rows(entries.select(needed), partitions, None, None)
        if not len(gone):
            return keep(part)
        met = pc.is_in(part.column("file_name"), gone)
        return pa.concat_tables([keep(part.filter(pc.invert(met))), part.filter(met)])

    for meta in metas:
        if only is not None and meta.file_name not in only:
            continue
        part = read.pop(meta.file_name, None)
        part = manifests.read_manifest(store, meta, narrow) if part is None else narrow(part)
        if len(gone):
            met = pc.is_in(part.column("file_name"), gone)
            doubtful.append(part.filter(met))
            part = part.filter(pc.invert(met))
        # A decoder's arrays are views of larger buffers, or longer than what they hold.
        yield meta.file_name, part.select(list(columns)).combine_chunks()
    if doubtful:
        left = _added(merge_entries(pa.concat_tables(doubtful), store.snapshot_path(snapshot.id)))
        yield "", keep(left.select(list(columns)))


def _taken_away(
    store: TableStore, metas: Sequence[ManifestFileMeta], needed: list[str]
) -> tuple[pa.Array, dict[str, pa.Table]]:
    """Names of the files that manifests take away, and what small manifests among those hold, which are read again soon."""
    names, kept, room = [arrow_array([], pa.string())], {}, _KEPT_BYTES
    for meta in metas:
        if meta.num_deleted_files > 0:
            entries = manifests.read_manifest(store, meta, lambda part: part.select(needed))
            taken = entries.column("file_name").filter(pc.equal(entries.column("kind"), DELETE))
            names.append(one_array(taken, pa.string()))
            if meta.file_size <= room:
                kept[meta.file_name], room = entries, room - meta.file_size
    return pa.concat_arrays(names), kept


@dataclass(frozen=True)
class Search:
    """Live files to find: those of ``names`` in these partitions and buckets, and with ``tree`` all above level 0 there.

    ``sought`` (name, level) and ``anywhere`` (names, on whichever level): those of which it has to be known whether they are live;
    others come along where a manifest that is read lists them. ``columns`` of `ENTRY_SCHEMA`, the identity's among them.
    """

    partitions: list[bytes]
    buckets: list[int]
    names: list[str]
    sought: frozenset[NameOnLevel]
    columns: list[str]
    anywhere: frozenset[str] = frozenset()
    tree: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look for."""
        return not (self.sought or self.anywhere or self.tree)

    def keep(self, entries: pa.Table) -> pa.Table:
        """Those of ``entries`` that are looked for: chosen by their identity alone, so that additions and deletions go together."""
        entries = manifests.keep_rows(entries.select(self.columns), self.partitions, self.buckets, None)
        met = pc.is_in(entries.column("file_name"), arrow_array(self.names, pa.string()))
        return entries.filter(pc.or_(met, pc.greater(entries.column("level"), 0)) if self.tree else met)

    def is_done(self, live: set[NameOnLevel]) -> bool:
        """Whether all that is sought is among those found ``live``."""
        return self.sought <= live and self.anywhere <= {name for name, _ in live}


def find_live(
    store: TableStore, snapshot: Snapshot, search: Search, metas: Sequence[ManifestFileMeta] | None = None
) -> pa.Table:
    """The live entries that ``search`` looks for, in manifest order; what is sought and not live has none. ``metas``: its manifests, where they are known.

    Read are manifests that may hold its buckets: those with deletions, those that may list the tree, and of the others as many as it takes,
    from both ends: compactions take the newest files, recoveries the oldest. Raises CorruptFile naming the list or manifest.
    """
    if search.is_empty:
        return manifests.NO_ENTRIES.select(search.columns)
    metas = manifests.data_manifests(store, snapshot) if metas is None else metas
    may_hold = manifests.prune(metas, store.schema.partition_types, search.partitions, search.buckets, None)
    parts: dict[str, pa.Table] = {}
    others = []
    for meta in may_hold:
        if meta.num_deleted_files > 0 or (search.tree and (meta.max_level is None or meta.max_level > 0)):
            parts[meta.file_name] = manifests.read_manifest(store, meta, search.keep)
        else:
            others.append(meta)
    gone = _listed(parts.values(), DELETE)
    live = _listed(parts.values(), ADD) - gone  # all deletions are known
    for meta in _from_both_ends(others):
        if search.is_done(live):
            break
        part = parts[meta.file_name] = manifests.read_manifest(store, meta, search.keep)
        live |= _listed([part], ADD) - gone
    ordered = [parts[meta.file_name] for meta in may_hold if meta.file_name in parts]
    nothing = manifests.NO_ENTRIES.select(search.columns)
    return _added(merge_entries(pa.concat_tables([nothing, *ordered]), store.snapshot_path(snapshot.id)))


def _added(entries: pa.Table) -> pa.Table:
    return entries.filter(pc.equal(entries.column("kind"), ADD))


def _listed(parts: Iterable[pa.Table], kind: int) -> set[NameOnLevel]:
    """Files that entries of ``kind`` name: one tuple a file that is looked for."""
    found: set[NameOnLevel] = set()
    for part in parts:
        chosen = part.filter(pc.equal(part.column("kind"), kind))
        found.update(zip(chosen.column("file_name").to_pylist(), chosen.column("level").to_pylist(), strict=True))
    return found


def _from_both_ends(metas: Sequence[ManifestFileMeta]) -> Iterator[ManifestFileMeta]:
    """The newest, the oldest, the second newest and so on."""
    half = len(metas) // 2
    for newer, older in zip_longest(reversed(metas[half:]), metas[:half]):
        yield from (meta for meta in (newer, older) if meta is not None)


__all__ = ["NameOnLevel", "Search", "find_live", "live_parts"]
