"""Files that a snapshot references, computed without the code that decides about deletions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore


def metadata_references(store: TableStore, snapshot: Snapshot) -> set[str]:
    """Return the bare names of all metadata files that ``snapshot`` uses: lists, manifests, indexes, statistics."""
    lists = [(snapshot.base_manifest_list, snapshot.base_manifest_list_size)]
    lists.append((snapshot.delta_manifest_list, snapshot.delta_manifest_list_size))
    if snapshot.changelog_manifest_list is not None:
        lists.append((snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size))
    names = {name for name, _ in lists}
    for name, size in lists:
        names.update(meta.file_name for meta in manifests.read_list(store, name, size))
    if snapshot.index_manifest is not None:
        names.add(snapshot.index_manifest)
        names.update(entry.file_name for entry in manifests.index_entries(store, snapshot))
    if snapshot.statistics is not None:
        names.add(snapshot.statistics)
    return names


def all_references(store: TableStore, snapshot: Snapshot) -> set[str]:
    """Return the bare names of all files that ``snapshot`` references: metadata, data files and extra files.

    Files that the snapshot deletes are included, because the previous snapshot needs them.

    Raises:
        CorruptFile: a reference cannot be read.
    """
    names = metadata_references(store, snapshot)
    metas = manifests.data_manifests(store, snapshot)
    if snapshot.changelog_manifest_list is not None:
        metas += manifests.read_list(store, snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
    for entries in manifests.iter_entries(store, metas):
        names.update(file_names(entries))
    return names


def file_names(entries: pa.Table) -> set[str]:
    """Return the names of the data files and their extra files in ``entries``."""
    beside = pc.list_flatten(entries.column("extra_files"))
    return set(pc.unique(entries.column("file_name")).to_pylist()) | set(pc.unique(beside).to_pylist())


def changelog_references(store: TableStore, changelog: Snapshot) -> set[str]:
    """Return the bare names of the files that an expired snapshot's changelog keeps, as Java's expiry leaves them.

    These are the changelog manifest list with its manifests and files. In a table without changelog producer, they also
    are the base and delta lists with their manifests, and the delta files that no compaction wrote.
    """
    lists = [(changelog.changelog_manifest_list, changelog.changelog_manifest_list_size)]
    if store.options.raw.get("changelog-producer", "none") == "none":
        lists.append((changelog.base_manifest_list, changelog.base_manifest_list_size))
        lists.append((changelog.delta_manifest_list, changelog.delta_manifest_list_size))
    names: set[str] = set()
    for name, size in lists:
        if name is None or not store.file_io.exists(store.manifest_path(name)):
            continue
        metas = manifests.read_list(store, name, size)
        names |= {name, *(meta.file_name for meta in metas)}
        for entries in manifests.iter_entries(store, metas) if name != changelog.base_manifest_list else ():
            keep = name == changelog.changelog_manifest_list
            sources = entries.column("file_source").to_pylist()
            names |= file_names(entries.filter(pa.array([keep or source != 1 for source in sources], pa.bool_())))
    return names
