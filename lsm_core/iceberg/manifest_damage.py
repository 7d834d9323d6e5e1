"""Damage of the manifests that current Iceberg metadata names: files that are missing, cut off or no manifest list.

The metadata file alone does not show it, and commits that change no file of such a manifest keep it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lsm_core.errors import CorruptFile
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.freshness import IcebergCondition, IcebergView, read_view
from lsm_core.iceberg.manifest_files import IcebergManifest, decode_manifest_list
from lsm_core.iceberg.state import read_state
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileIO


def check_sizes(file_io: FileIO, folder: str, manifests: Sequence[IcebergManifest], sizes: Mapping[str, int]) -> None:
    """Compare manifests with a listing of their folder.

    Args:
        file_io: access to the files.
        folder: folder of the metadata.
        manifests: manifests of one manifest list.
        sizes: size (bytes) of each file of the folder, by name; it may be older than the manifests.

    Raises:
        CorruptFile: a manifest is missing, or has another size than its manifest list says.
    """
    for manifest in sorted(manifests, key=lambda manifest: manifest.name):
        path = f"{folder}/{manifest.name}"
        size = sizes.get(manifest.name)
        if size is None and not file_io.exists(path):
            raise CorruptFile(path, "the manifest is missing")
        if size not in (None, manifest.length):
            raise CorruptFile(path, f"the manifest has {size:,} of {manifest.length:,} bytes")


def read_view_of_files(store: TableStore, newest: Snapshot | None = None) -> IcebergView | None:
    """Return what Iceberg readers of the table see, as `read_view`; damaged manifests make it `UNREADABLE`.

    Beyond the metadata file it reads the manifest list and a listing of the folder, but no manifest.

    Args:
        store: the table.
        newest: newest snapshot, if the caller has just read it; None to read it.

    Raises:
        InvalidOption: an option has an unknown value.
    """
    view = read_view(store, newest)
    if view is None or view.condition not in (IcebergCondition.CURRENT, IcebergCondition.BEHIND):
        return view
    try:
        state = read_state(store, view.folder)
        if state is None or state.current is None:
            return view
        error = _find_damage(store.file_io, view.folder, state.current.manifest_list)
        again = read_state(store, view.folder) if error else state
    except CorruptFile as damage:
        return replace(view, condition=IcebergCondition.UNREADABLE, error=damage.finding)
    if not error or again is None or again.manifest_lists != state.manifest_lists:
        return view  # a commit that replaced the metadata meanwhile deletes files of the older one
    return replace(view, condition=IcebergCondition.UNREADABLE, error=error)


def _find_damage(file_io: FileIO, folder: str, manifest_list: str) -> str:
    sizes = {status.name: status.size for status in file_io.list_dir(folder) if not status.is_dir}
    path = f"{folder}/{manifest_list}"
    try:
        check_sizes(file_io, folder, decode_manifest_list(file_io.read_bytes(path), path), sizes)
    except FileNotFoundError:
        return CorruptFile(path, "the manifest list is missing").finding
    except CorruptFile as error:
        return error.finding
    return ""
