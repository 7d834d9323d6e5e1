"""Listing of all files of a table into Arrow columns; symbolic links are not followed, misplaced files are reported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, empty_table
from lsm_core.errors import DredgeError
from lsm_core.format.partitions import escape
from lsm_core.maintenance.file_allowlist import BUCKET, EXTERNAL, HISTORY, METADATA, OwnFiles, Place, is_absolute
from lsm_core.metadata.store import TableStore, list_schema_ids, load_schema
from lsm_core.options import EXTERNAL_ROOTS
from lsm_core.progress import advance, stage
from lsm_core.storage import FileIO, FileStatus, file_io_for, place_of, same_place, unify_scheme

FILES: Final = pa.schema(
    [
        pa.field("folder", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("mtime_ms", pa.int64()),
        pa.field("kind", pa.int8()),
    ]
)
_BATCH: Final = 1 << 16
_ENTROPY: Final = re.compile(r"/bucket-(?:postpone|-?[0-9]+)(?:(?:/[01]{4}){1,3}|(?:/[01]{4}){3}/[01]{8})$")
_UNKNOWN_FOLDER: Final = "a directory of an unknown name"


@dataclass
class Listing:
    """Result of listing folders of a table.

    Attributes:
        folders: absolute paths of the listed folders.
        files: one row per file (schema `FILES`). Sizes are bytes, times are epoch ms by the storage's clock.
            ``folder`` is an index into ``folders``, ``kind`` an index into `KINDS`.
        strange: misplaced directories and files, and external paths that are not allowed: the reason by path.
        shared: external paths that other tables use too: the names of these tables (text) by path.
    """

    folders: list[str] = field(default_factory=list)
    files: pa.Table = field(default_factory=lambda: empty_table(FILES))
    strange: dict[str, str] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Folder:
    """Folder that one task lists, with all folders below.

    Attributes:
        path: absolute path of the folder.
        keys: partition columns whose folders are below this folder, None to list only the folder's own files.
        place: purpose of the folder in the table's layout.
        expected: names of subfolders that are allowed and not listed.
    """

    path: str
    keys: tuple[str, ...] | None = None
    place: Place = Place.PARTITION
    expected: tuple[str, ...] = ()


def list_table(store: TableStore) -> Listing:
    """List all directories of the table that Paimon or Dredge creates, including `data-file.external-paths`.

    External paths that are not allowed, or that other tables use too, are not listed. Such paths are in ``strange`` or
    ``shared`` of the result.

    Args:
        store: the table.

    Raises:
        OSError: a directory cannot be listed.
        CorruptFile: a schema cannot be read.
        UnsupportedFeature: an external path is not supported.
    """
    return _list_all(_Walk(store, OwnFiles.of(store)))


def list_in_parts(store: TableStore, known: OwnFiles) -> tuple[Listing, list[Folder]]:
    """List the upper directories of a table, and return the deeper directories, to be listed by :func:`list_folders`.

    Args:
        store: the table.
        known: names and folders of the table's files.

    Returns:
        The listing of the upper directories, and the folders that are not listed yet.
    """
    walk = _Walk(store, known)
    walk.later = {}
    return _list_all(walk), list(walk.later)


def list_folders(store: TableStore, known: OwnFiles, folders: Sequence[Folder]) -> Listing:
    """List some of the folders that :func:`list_in_parts` returned. Raises the errors of the storage.

    Args:
        store: the table.
        known: names and folders of the table's files.
        folders: folders to list.
    """
    walk = _Walk(store, known)
    for folder in folders:
        if folder.keys is None:
            walk.leaf(folder.path, folder.place, folder.expected)
        else:
            walk.partitions(folder.path, folder.keys)
    return walk.done()


def _list_all(walk: _Walk) -> Listing:
    with stage(f"listing the folders of {walk.store.name}", None, "files"):
        walk.root()
        for folder in filter(is_absolute, walk.known.iceberg):
            walk.leaf(folder, Place.ICEBERG)
        for place in walk.known.external:
            if place not in walk.known.allowed:
                walk.listing.strange[place] = f"not looked at: add '{place}:rw' to {EXTERNAL_ROOTS} to have it cleaned"
                continue
            refusal = walk.store.external_paths.describe_refusal(place, writing=True)
            if refusal is not None:
                walk.listing.strange[place] = f"not looked at: {refusal}"
                continue
            others = tables_using(walk.store, place)
            if others:
                walk.listing.shared[place] = others
            else:
                for below in walk.known.below:
                    walk.data(f"{place}/{below}" if below else place)
        return walk.done()


class _Walk:
    """Walk over a table's directories that collects the files as Arrow columns.

    Attributes:
        later: collects the folders that further tasks must list, None to list all folders now.
    """

    def __init__(self, store: TableStore, known: OwnFiles) -> None:
        self.store, self.known, self.listing = store, known, Listing()
        self.parts: list[pa.Table] = []
        self._waiting: dict[Place, list[tuple[int, list[FileStatus]]]] = {}
        self._count = 0
        self._list_all: set[str] = set()
        self.later: dict[Folder, None] | None = None

    def root(self) -> None:
        """List the files directly in the table's directory, and its subfolders."""
        root = self.store.root
        partitioned = [keys for keys in self.known.partition_keys if keys]
        first = tuple(f"{escape(keys[0])}=" for keys in partitioned)
        heads = {below.split("/")[0] for below in self.known.below if below}
        for folder in self._folder(root, Place.PARTITION):
            if folder.name in METADATA:
                self.leaf(folder.path, METADATA[folder.name])
            elif folder.name in self.known.iceberg:
                self.leaf(folder.path, Place.ICEBERG)
            elif folder.name in HISTORY:
                self.leaf(folder.path, Place.HISTORY, expected=("tag-success-file",))
            elif folder.name == "branch":
                self._branches(folder.path)
            elif folder.name == "dredge":
                for own in self._folder(folder.path, Place.OWN):
                    if own.name != "staged":  # files of running writes, which remove their own files
                        self.leaf(own.path, Place.OWN)
            elif not (folder.name in heads or BUCKET.fullmatch(folder.name) or folder.name.startswith(first)):
                self._decline_unknown(folder.path, _UNKNOWN_FOLDER)
        for below in self.known.below:
            self.data(f"{root}/{below}" if below else root)

    def data(self, base: str) -> None:
        """List the bucket folders below ``base``, which are below one folder level per partition column."""
        for keys in self.known.partition_keys:
            self.partitions(base, keys)

    def partitions(self, path: str, keys: tuple[str, ...]) -> None:
        """List the partition folders of the columns ``keys`` below a folder, and the bucket folders in them."""
        folders = self._folder(path, Place.PARTITION)
        for folder in folders:
            if keys and folder.name.startswith(f"{escape(keys[0])}="):
                if self.later is not None:
                    self.later[Folder(folder.path, keys[1:])] = None
                else:
                    self.partitions(folder.path, keys[1:])
            elif not keys and BUCKET.fullmatch(folder.name):
                self.leaf(folder.path, Place.BUCKET)
            elif path != self.store.root and len(self.known.partition_keys) == 1:
                self._decline_unknown(folder.path, _UNKNOWN_FOLDER)

    def _branches(self, path: str) -> None:
        for branch in self._folder(path, Place.PARTITION):
            if not branch.name.startswith("branch-"):
                self._decline_unknown(branch.path, _UNKNOWN_FOLDER)
                continue
            for folder in self._folder(branch.path, Place.PARTITION):
                if folder.name in HISTORY:
                    self.leaf(folder.path, Place.HISTORY, expected=("tag-success-file",))
                else:
                    self._decline_unknown(folder.path, _UNKNOWN_FOLDER)

    def leaf(self, path: str, place: Place, expected: tuple[str, ...] = ()) -> None:
        """List the files of a folder; subfolders that are not ``expected`` are reported as misplaced.

        If ``later`` is set, the folder is added to ``later`` and not listed. ``place`` is the purpose of the folder.
        """
        if self.later is not None:
            self.later[Folder(path, None, place, expected)] = None
            return
        for folder in self._folder(path, place):
            if place is Place.BUCKET and _is_entropy(folder.path) and self._is_external(path):
                self.leaf(folder.path, place)
            elif folder.name not in expected:
                self._decline_unknown(folder.path, _UNKNOWN_FOLDER)

    def _is_external(self, path: str) -> bool:
        return any(path.startswith(f"{place.rstrip('/')}/") for place in self.known.allowed)

    def _folder(self, path: str, place: Place) -> list[FileStatus]:
        """Add the files of a directory to the listing, unless it was listed before, and return its subdirectories."""
        listed = self.store.file_io.list_dir(path)
        folders = [status for status in listed if status.is_dir]
        if path in self._list_all:
            return folders
        self._list_all.add(path)
        number = len(self.listing.folders)
        self.listing.folders.append(path)
        files = []
        for status in listed:
            if status.is_dir:
                continue
            try:
                status.name.encode()
            except UnicodeEncodeError:  # not valid text, so no name of Paimon or Dredge
                self._decline_unknown(f"{path}/{status.name!a}", "a file of an unknown name")
            else:
                files.append(status)
        self._waiting.setdefault(place, []).append((number, files))
        self._count += len(files)
        advance(len(files))
        if self._count >= _BATCH:
            self.flush()
        return folders

    def _decline_unknown(self, path: str, why: str) -> None:
        self.listing.strange[path] = why

    def done(self) -> Listing:
        """Return the files of all folders that this walk has listed."""
        self.flush()
        self.listing.files = pa.concat_tables([empty_table(FILES), *self.parts])
        return self.listing

    def flush(self) -> None:
        """Convert the files collected so far to Arrow columns."""
        for place, folders in self._waiting.items():
            files = [status for _, listed in folders for status in listed]
            numbers = np.repeat(
                np.array([number for number, _ in folders], np.int32), [len(listed) for _, listed in folders]
            )
            names = arrow_array([status.name for status in files], pa.string())
            self.parts.append(
                pa.table(
                    [
                        arrow_array(numbers),
                        names,
                        arrow_array(np.fromiter((status.size for status in files), np.int64, len(files))),
                        arrow_array(np.fromiter((status.mtime_ms for status in files), np.int64, len(files))),
                        arrow_array(self.known.names.kinds(place, names)),
                    ],
                    schema=FILES,
                )
            )
        self._waiting, self._count = {}, 0


def tables_using(store: TableStore, place: str) -> str:
    """Return the names of other tables of the warehouse that use the external path ``place`` ("" for none).

    A path above or below ``place`` counts too, and so does a path of an earlier schema or of a branch, because files
    that were written there stay. Files of such tables cannot be distinguished from files of this table. A table whose
    schemas cannot be read is counted as a user.

    Args:
        store: the table.
        place: absolute path, or address in an object store.
    """
    warehouse = store.root.rsplit("/", 2)[0]
    users = []
    for path in _tables_below(store, warehouse):
        if same_place(path, store.root):
            continue
        try:
            roots = {path, *declared_places(store.file_io, path)}
        except DredgeError:
            roots = {place}
        if any(_overlap(place, other) for other in roots):
            users.append(path.removeprefix(f"{warehouse}/"))
    return ", ".join(users)


def declared_places(file_io: FileIO, root: str) -> Iterator[str]:
    """Yield the external paths that any schema of a table or of its branches declares.

    Args:
        file_io: access to the files.
        root: the table's folder.

    Raises:
        DredgeError: a schema cannot be read, or a path is on a storage that is not supported.
    """
    texts = set()
    folders = (status.name for status in file_io.list_dir(f"{root}/branch") if status.is_dir)
    for branch in ("main", *(name.removeprefix("branch-") for name in folders if name.startswith("branch-"))):
        for number in list_schema_ids(file_io, root, branch):
            texts.add(load_schema(file_io, root, number, branch).options.get(EXTERNAL) or "")
    for text in filter(None, (part.strip() for part in ",".join(sorted(texts)).split(","))):
        yield file_io_for(text, escaped=False)[1]


def _is_entropy(path: str) -> bool:
    """Return whether a folder is one that the strategy `entropy-inject` creates below a bucket."""
    return _ENTROPY.search(path) is not None


def _tables_below(store: TableStore, warehouse: str) -> Iterator[str]:
    for database in store.file_io.list_dir(warehouse):
        if database.is_dir and database.name.endswith(".db"):
            yield from (status.path for status in store.file_io.list_dir(database.path) if status.is_dir)


def _overlap(left: str, right: str) -> bool:
    """Return whether one folder contains the other, regardless of symbolic links and of aliases of schemes."""
    if not place_of(left) and not place_of(right) and "\x00" not in left + right:
        left, right = os.path.realpath(left), os.path.realpath(right)
    left, right = unify_scheme(left), unify_scheme(right)
    pair = sorted((left.rstrip("/") + "/", right.rstrip("/") + "/"), key=len)
    return any(longer.startswith(shorter) for shorter, longer in pairwise(pair))
