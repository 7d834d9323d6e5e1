"""Files of a dropped table in its external paths: their list, which survives the table's folder, and their deletion."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Iterator
from typing import IO, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, DredgeError, UnsupportedFeature
from lsm_core.format.manifest import decode_index_manifest, decode_manifest
from lsm_core.json_text import parse_json
from lsm_core.maintenance.actions.orphans.listing import list_table
from lsm_core.maintenance.file_allowlist import DELETABLE, KINDS, OwnFiles
from lsm_core.metadata import branches
from lsm_core.metadata.external_paths import EXTERNAL_PATHS, declared_paths
from lsm_core.metadata.store import TableStore, list_schema_ids, load_schema
from lsm_core.options import ExternalRoot

_LOG = logging.getLogger(__name__)
_MANIFEST: Final = re.compile(r"manifest-(?!list-).*-[0-9]+")
_INDEX_MANIFEST: Final = re.compile(r"index-manifest-.*-[0-9]+")
_IN_MEMORY: Final = 4 << 20


class DroppedFiles:
    """Context of the files of one table in the external paths that it declares, noted before its folder is deleted.

    Files that other tools wrote and a table only names (imported files) are left out. The list is in a temporary file,
    so memory does not grow with the table.
    """

    def __init__(self, store: TableStore) -> None:
        """Note the files that the table's manifests name, and unreferenced files in its own external folders.

        Args:
            store: the table.

        Raises:
            UnsupportedFeature: the table has files in a declared path that the operator does not allow; a folder that
                is allowed for reading only keeps its files.
        """
        self._store, self._declared = store, _declared_folders(store)
        self._list: IO[str] = tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8")  # noqa: SIM115
        if not self._declared:
            return
        try:
            try:
                own = OwnFiles.of(store)
            except CorruptFile as error:
                _LOG.warning("table %s: its external files stay when it is dropped: %s", store.name, error)
                return
            for external_path, names in _named_files(store):
                self._note_named(external_path, names, own)
            self._note_unreferenced()
        except BaseException:
            self._list.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._list.close()

    def _note_named(self, external_path: str, names: list[str], own: OwnFiles) -> None:
        external = self._store.external_paths
        if external.may_delete(external_path):
            paths = [external.locate(external_path, name) for name in names]
            paths = [path for path in paths if any(folder.contains(path) for folder in self._declared)]
            foreign = own.find_foreign_paths(paths)
            for path in paths:
                if path in foreign:
                    _LOG.warning("table %s: %r stays when it is dropped: %s", self._store.name, path, foreign[path])
                else:
                    self._note(path)
            return
        try:
            external.locate(external_path, names[0])  # allowed for reading only: the files stay
        except UnsupportedFeature as error:
            if "does not declare" in error.feature:
                return
            raise
        except CorruptFile as error:
            _LOG.warning("table %s: %r stays when it is dropped: %s", self._store.name, external_path, error)

    def _note_unreferenced(self) -> None:
        try:
            listing = list_table(self._store)
        except (DredgeError, OSError) as error:
            _LOG.warning("table %s: its external paths were not searched: %s", self._store.name, error)
            return
        inside = f"{self._store.root}/"
        numbers = [number for number, path in enumerate(listing.folders) if not f"{path}/".startswith(inside)]
        kinds = pa.array([number for number, kind in enumerate(KINDS) if kind in DELETABLE], pa.int8())
        files = listing.files.filter(
            pc.and_(
                pc.is_in(listing.files.column("folder"), pa.array(numbers, pa.int32())),
                pc.is_in(listing.files.column("kind"), kinds),
            )
        )
        for batch in files.select(["folder", "name"]).to_batches():
            for row in batch.to_pylist():  # one object per file of a dropped table
                self._note(f"{listing.folders[row['folder']]}/{row['name']}")

    def _note(self, path: str) -> None:
        self._list.write(json.dumps(path) + "\n")

    def delete(self) -> int:
        """Delete the noted files, and return their number; failures are logged.

        Nothing is deleted while the table's folder still has a schema: a metastore keeps the files of external tables.
        """
        if list_schema_ids(self._store.file_io, self._store.root):
            return 0
        external, file_io = self._store.external_paths, self._store.file_io
        deleted = failed = 0
        self._list.seek(0)
        for line in self._list:
            path = parse_json(line)
            try:
                deleted += file_io.delete(external.deletable(path, file_io))
            except (DredgeError, OSError) as error:
                failed += 1
                if failed <= 10:
                    _LOG.warning("table %s was dropped, but %s stays: %s", self._store.name, path, error)
        if failed:
            _LOG.warning("table %s was dropped, and %s files of it stay in external paths", self._store.name, failed)
        return deleted


def _declared_folders(store: TableStore) -> list[ExternalRoot]:
    """Return the external paths that any schema of the table or of a branch declares, as in Java's drop."""
    texts = {store.options.text(EXTERNAL_PATHS)}
    for branch in {branches.MAIN, *branches.list_branches(store)}:
        for number in list_schema_ids(store.file_io, store.root, branch):
            try:
                texts.add(load_schema(store.file_io, store.root, number, branch).options.get(EXTERNAL_PATHS))
            except CorruptFile as error:
                _LOG.warning("table %s: external paths of a schema are unknown: %s", store.name, error)
    return [ExternalRoot(path.folder, writable=True) for text in texts for path in declared_paths(text)]


def _named_files(store: TableStore) -> Iterator[tuple[str, list[str]]]:
    """Yield the external path of each external file that any manifest of the table adds, and the names beside it.

    One manifest at a time is in memory. A manifest that cannot be read is skipped with a warning: its files stay.
    """
    for status in store.file_io.list_dir(store.manifest_dir):
        path = f"{store.manifest_dir}/{status.name}"
        try:
            if _MANIFEST.fullmatch(status.name):
                entries = decode_manifest(store.file_io.read_bytes(path), path)
                entries = entries.filter(pc.is_valid(entries.column("external_path")))
                for row in entries.select(["external_path", "file_name", "extra_files"]).to_pylist():
                    yield row["external_path"], [row["file_name"], *(row["extra_files"] or ())]
            elif _INDEX_MANIFEST.fullmatch(status.name):
                for entry in decode_index_manifest(store.file_io.read_bytes(path), path):
                    if entry.external_path is not None:
                        yield entry.external_path, [entry.file_name]
        except (DredgeError, OSError) as error:
            if isinstance(error, UnsupportedFeature):
                raise
            _LOG.warning("table %s: external files of a manifest stay: %s", store.name, error)
