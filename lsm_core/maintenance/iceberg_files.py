"""Files of a table's Iceberg metadata: those that its versions name, and those that nothing names any more."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.format import avro
from lsm_core.iceberg.state import VERSION_HINT, catalog_folder, decode_state, list_versions, version_path, warehouse_of
from lsm_core.maintenance.file_allowlist import KINDS, FileKind, OwnFiles, Place, is_absolute
from lsm_core.metadata.store import TableStore
from lsm_core.storage import FileIO, PathBelow, inside_really

_LOG = logging.getLogger(__name__)
_PATH = "manifest_path"


def iceberg_names(store: TableStore, searched: pa.Array) -> Iterator[tuple[int, list[str]]]:
    """Yield the manifests and manifest lists that each version of the table's Iceberg metadata names.

    Names in the metadata are only compared with ``searched``; they never become paths to delete. Without a searched
    name of Iceberg metadata, nothing is read.

    Args:
        store: the table.
        searched: bare file names.

    Yields:
        Number of a version, and its names among ``searched``; each manifest list is read once.

    Raises:
        CorruptFile: a version or a manifest list cannot be read, so that it might name any file.
    """
    own = OwnFiles.of(store)
    names = one_array(searched, pa.string())
    kinds = pa.array(own.names.kinds(Place.ICEBERG, names)) if own.iceberg and len(names) else pa.array([], pa.int8())
    iceberg_names = names.filter(pc.equal(kinds, KINDS.index(FileKind.ICEBERG))) if len(kinds) else names.slice(0, 0)
    if not len(iceberg_names):
        return
    for relative in own.iceberg:
        folder = relative if is_absolute(relative) else f"{store.root}/{relative}"
        read: set[str] = set()
        for version in reversed(list_versions(store.file_io, folder)):
            path = version_path(folder, version)
            try:
                data = store.file_io.read_bytes(path)
            except FileNotFoundError:  # a commit replaced it since the listing
                continue
            lists = sorted(decode_state(data, path, version).manifest_lists - read)
            read.update(lists)
            parts = [pa.array(lists, pa.string())]
            parts += [_names_in(store, f"{folder}/{name}") for name in lists]
            named = pa.concat_arrays(parts)
            yield version, named.filter(pc.is_in(named, value_set=iceberg_names)).to_pylist()


def outside_folder(store: TableStore) -> str | None:
    """Return the folder of the table's metadata in the warehouse of an Iceberg Hadoop catalog.

    Args:
        store: the table.

    Returns:
        The folder, by any of the table's schemas; None if it never published metadata there.

    Raises:
        CorruptFile: a schema cannot be read.
    """
    return next(filter(is_absolute, OwnFiles.of(store).iceberg), None)


def delete_outside_folder(file_io: FileIO, root: str) -> bool:
    """Delete the metadata of a dropped or renamed table in the warehouse of an Iceberg Hadoop catalog.

    A failure is logged: the table itself is removed already, and a new table of its name replaces the metadata.

    Args:
        file_io: access to the files.
        root: directory that the table had.

    Returns:
        Whether the folder existed and was deleted.
    """
    folder, warehouse = catalog_folder(root), warehouse_of(root)
    if folder is None or warehouse is None:
        return False
    try:
        inside_really(warehouse, f"{folder}/{VERSION_HINT}")  # no link may lead the deletion elsewhere
        deleted = file_io.delete_dir(PathBelow.of(warehouse, folder))
        file_io.delete_empty_dir(PathBelow.of(warehouse, folder.rpartition("/")[0]))
    except (OSError, DredgeError) as error:
        _LOG.warning("Iceberg metadata in %s was not deleted: %s", folder, error)
        return False
    return deleted


def _names_in(store: TableStore, path: str) -> pa.Array:
    """Return the names of the manifests in a manifest list; none if the list does not exist."""
    try:
        data = store.file_io.read_bytes(path)
    except FileNotFoundError:
        return pa.array([], pa.string())
    table = avro.read_table(data, path)
    if _PATH not in table.column_names or not pa.types.is_string(table.schema.field(_PATH).type):
        raise CorruptFile(path, f'not a manifest list of Iceberg: it has no texts "{_PATH}"')
    return one_array(pc.replace_substring_regex(table.column(_PATH), r"^.*/", ""))
