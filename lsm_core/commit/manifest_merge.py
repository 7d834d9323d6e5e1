"""Merge of manifests at every commit, which keeps their number small.

Source: Paimon `ManifestFileMerger`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.changes import IDENTITY, partitions_of
from lsm_core.errors import DredgeError
from lsm_core.format.manifest import DELETE, Cancelling, HashesMeet, ManifestFileMeta, has_unknown, merge_entries
from lsm_core.metadata import manifests
from lsm_core.metadata.manifests import NO_ENTRIES, prune
from lsm_core.metadata.store import TableStore

_NEEDED = ("kind", *IDENTITY)


def merge_manifests(
    store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore | None = None
) -> list[ManifestFileMeta]:
    """Return the base manifests of the next snapshot from all manifests of the last one (base then delta, in order).

    Live entries do not change. Manifests with unknown fields are never rewritten.

    Args:
        store: the table.
        metas: manifests of the last snapshot.
        writer: state through which new manifests are written; None for ``store``.
    """
    full = full_merge(store, metas, store.options.manifest_target_size, store.options.manifest_full_threshold, writer)
    if full is not None:
        return full
    return minor_merge(store, metas, store.options.manifest_target_size, store.options.manifest_merge_min_count, writer)


class NothingToMerge(DredgeError):
    """No manifest can be merged: the snapshot keeps its manifests."""


def compacted(
    store: TableStore, metas: Sequence[ManifestFileMeta], writer: TableStore | None = None
) -> list[ManifestFileMeta]:
    """Return the manifests after a merge of all that are small or hold deletions, however few.

    Raises NothingToMerge when none changes.

    Source: Paimon `compactManifest`.
    """
    target = store.options.manifest_target_size
    merged = full_merge(store, metas, target, 1, writer)
    if merged is None:
        merged = minor_merge(store, metas, target, 1, writer)
    if {meta.file_name for meta in merged} == {meta.file_name for meta in metas}:
        raise NothingToMerge(f"table {store.name} has no manifests to merge")
    return merged


def full_merge(
    store: TableStore,
    metas: Sequence[ManifestFileMeta],
    target: int,
    threshold: int,
    writer: TableStore | None = None,
) -> list[ManifestFileMeta] | None:
    """Rewrite all manifests that hold deletions, are affected by them, or are small.

    Deletions never survive, so kept manifests may come first in the result. Memory is that of the deletions and of two
    manifests.

    Returns:
        The manifests, or None where a rewrite is not worth it.
    """
    must = [meta for meta in metas if meta.num_deleted_files > 0 or meta.file_size < target]
    if not must or sum(meta.file_size for meta in must) < threshold:
        return None
    chosen = {meta.file_name for meta in must}
    deletions = pa.concat_tables(
        [NO_ENTRIES.select(_NEEDED)]
        + [
            manifests.read_manifest(store, meta, lambda part: _of_kind(part, DELETE).select(_NEEDED))
            for meta in must
            if meta.num_deleted_files
        ]
    )
    deleted_names, deleted_partitions = pc.unique(deletions.column("file_name")), partitions_of(deletions)
    kept: list[ManifestFileMeta] = []
    rewritten: list[ManifestFileMeta] = []
    for meta in metas:
        if meta.file_name in chosen:
            rewritten.append(meta)
            continue
        # A large manifest is rewritten only when a deletion cancels one of its additions.
        if deletions.num_rows and prune([meta], store.schema.partition_types, deleted_partitions, None, None):
            names = manifests.read_manifest(store, meta, lambda part: part.select(["file_name"])).column("file_name")
            if pc.any(pc.is_in(names, deleted_names)).as_py():
                rewritten.append(meta)
                continue
        kept.append(meta)
    if len(rewritten) <= 1:
        return None
    try:
        return kept + manifests.write_manifests(writer or store, _live(store, rewritten, Cancelling(deletions)))
    except (_UnknownFields, HashesMeet):
        return None


class _UnknownFields(ValueError):
    """A manifest has entries with unknown fields, which could not be written again."""


def _live(store: TableStore, metas: Sequence[ManifestFileMeta], cancelling: Cancelling) -> Iterator[pa.Table]:
    """Yield the live entries of manifests, one manifest after another."""
    for meta in metas:
        entries = manifests.read_manifest(store, meta)
        if has_unknown(entries) is not None:
            raise _UnknownFields(meta.file_name)
        yield cancelling.survivors(entries)


def minor_merge(
    store: TableStore,
    metas: Sequence[ManifestFileMeta],
    target: int,
    min_count: int,
    writer: TableStore | None = None,
) -> list[ManifestFileMeta]:
    """Merge neighbours into files of the target size, in order; the tail only if it has ``min_count`` files."""
    result: list[ManifestFileMeta] = []
    group: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        group.append(meta)
        size += meta.file_size
        if size >= target:
            result += _merge_group(store, group, writer)
            group, size = [], 0
    return result + (_merge_group(store, group, writer) if len(group) >= max(min_count, 1) else group)


def _merge_group(
    store: TableStore, group: Sequence[ManifestFileMeta], writer: TableStore | None
) -> list[ManifestFileMeta]:
    if len(group) == 1:
        return list(group)
    tables = [manifests.read_manifest(store, meta) for meta in group]
    result: list[ManifestFileMeta] = []
    together: list[int] = []
    for place in range(len(group) + 1):
        # Entries with fields that this version does not know stay where they are, and so does the order around them.
        if place < len(group) and has_unknown(tables[place]) is None:
            together.append(place)
            continue
        if len(together) == 1:
            result.append(group[together[0]])
        elif together:
            merged = merge_entries(pa.concat_tables([tables[number] for number in together]))
            result += manifests.write_manifests(writer or store, merged) if merged.num_rows else []
        together = []
        result += group[place : place + 1]
    return result


def _of_kind(entries: pa.Table, kind: int) -> pa.Table:
    return entries.filter(pc.equal(entries.column("kind"), kind))
