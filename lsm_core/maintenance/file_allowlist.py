"""Allow-list of the files of one table that a deletion may name: Paimon's and Dredge's files, by folder and name.

Deletion records in the trash and saved plans are files in the table's folder, which anyone with write access can forge.
So every path in such a file is checked against this list before the path is deleted, kept or restored. Orphan removal
uses the same kinds of files, so that orphan removal never deletes an unknown file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array
from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.format.partitions import escape
from lsm_core.format.schema import TableSchema
from lsm_core.iceberg.state import IcebergLocation, IcebergStorage, catalog_folder, location_of, storage_of
from lsm_core.metadata import branches
from lsm_core.metadata.store import TableStore, list_schema_ids, load_schema
from lsm_core.options import ALLOWED_PLACES, EXTERNAL_ROOTS, ExternalRoot, TableOptions, find_root
from lsm_core.storage import place_of

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TEMPORARY: Final = rf"\..+\.{_UUID}\.tmp"
FORMATS: Final = "avro|orc|parquet|csv|json|text|txt|blob|lance|vortex|row"
_COMPRESSIONS: Final = "gz|gzip|zst|zstd|snappy|lz4|lzo|br|brotli|deflate|bz2|none|uncompressed"
# data-<uuid>-0.parquet, data-<uuid>-0.zst.parquet, data-<uuid>-0.csv.gz, data-<uuid>-0.vector.lance, file indexes, and
# `.blobref`, which names the packs (`.managed.blob`) of a data file's BLOB values. Orphan removal removes no pack.
_SUFFIX: Final = rf"(\.(vector|{_COMPRESSIONS}))?\.({FORMATS})(\.({_COMPRESSIONS}))?((-[0-9]+)?\.index|\.blobref)?"
_INDEX: Final = rf"index-{_UUID}-[0-9]+|([a-z0-9_]+-)*global-index-{_UUID}\.index"


class Place(StrEnum):
    """Purpose of a directory, which decides which file names are known in the directory."""

    MANIFEST = "manifest"
    INDEX = "index"
    STATISTICS = "statistics"
    BUCKET = "bucket"
    HISTORY = "history"
    """Snapshots, changelogs, schemas, tags and consumers, of main or of a branch."""
    OWN = "dredge"
    """Plans, deletion records and the ledger of Dredge."""
    ICEBERG = "iceberg"
    """Iceberg metadata of the table, in its directory or in the warehouse of an Iceberg Hadoop catalog."""
    PARTITION = "partition"
    """The table's directory, and those of partitions above their buckets."""


class FileKind(StrEnum):
    """Kinds of files; files of a kind that is not in `DELETABLE` are never deleted."""

    UNKNOWN = "unknown"
    STAYS = "stays"
    """Known, and never deleted here: snapshots, hints, schemas, tags, plans, records, success files."""
    DATA = "data"
    CHANGELOG = "changelog"
    MANIFEST = "manifest"
    MANIFEST_SIDECAR = "manifest-sidecar"
    """Block index of a manifest, written by Paimon 2.1 beside the manifest."""
    MANIFEST_LIST = "manifest-list"
    INDEX_MANIFEST = "index-manifest"
    INDEX = "index"
    STATISTICS = "statistics"
    ICEBERG = "iceberg"
    """Manifest or manifest list of Iceberg metadata."""
    TEMPORARY = "temporary"
    """File of an interrupted atomic write: `.<name>.<uuid>.tmp`."""


KINDS: Final = tuple(FileKind)
DELETABLE: Final = frozenset(KINDS) - {FileKind.UNKNOWN, FileKind.STAYS}


@dataclass(frozen=True)
class Names:
    """Name patterns of one table's files.

    Attributes:
        data_prefixes: prefixes of data files (`data-file.prefix`).
        changelog_prefixes: prefixes of changelog files (`changelog-file.prefix`).
    """

    data_prefixes: frozenset[str]
    changelog_prefixes: frozenset[str]

    def kinds(self, place: Place, names: pa.Array) -> npt.NDArray[np.int8]:
        """Return the kind of each file name as its index in `KINDS`.

        Args:
            place: purpose of the directory that holds the files.
            names: bare file names.
        """
        kinds = np.full(len(names), KINDS.index(FileKind.UNKNOWN), np.int8)
        for kind, pattern in self._patterns(place):
            fits = numpy_array(pc.match_substring_regex(names, f"^(?:{pattern})$"))
            kinds[fits & (kinds == 0)] = KINDS.index(kind)
        return kinds

    def _patterns(self, place: Place) -> Iterable[tuple[FileKind, str]]:
        yield FileKind.TEMPORARY, rf"\._SUCCESS\.{_UUID}\.tmp" if place is Place.PARTITION else _TEMPORARY
        if place is Place.MANIFEST:
            yield FileKind.MANIFEST, rf"manifest-{_UUID}-[0-9]+"
            yield FileKind.MANIFEST_SIDECAR, rf"manifest-{_UUID}-[0-9]+(\.avro)?\.sidecar"
            yield FileKind.MANIFEST_LIST, rf"manifest-list-{_UUID}-[0-9]+"
            yield FileKind.INDEX_MANIFEST, rf"index-manifest-{_UUID}-[0-9]+"
        elif place is Place.INDEX:
            yield FileKind.INDEX, _INDEX
        elif place is Place.STATISTICS:
            yield FileKind.STATISTICS, rf"stats?-{_UUID}-[0-9]+"
        elif place is Place.BUCKET:
            # The name of a postponed file holds its writer's commit user, which may be any text.
            yield FileKind.DATA, rf"{_any(self.data_prefixes)}(-u-.+-s-[0-9]+-w-)?{_UUID}-[0-9]+{_SUFFIX}"
            yield FileKind.CHANGELOG, rf"{_any(self.changelog_prefixes)}{_UUID}-[0-9]+{_SUFFIX}"
            yield FileKind.CHANGELOG, rf"compacted-changelog-{_UUID}\$[0-9]+-[0-9]+\.cc-({FORMATS})"
            yield FileKind.INDEX, _INDEX
        elif place is Place.ICEBERG:
            yield FileKind.STAYS, r"v[0-9]+\.metadata\.json|version-hint\.text|retire-pending"
            yield FileKind.ICEBERG, rf"{_UUID}-m[0-9]+\.avro|snap-[0-9]+-{_UUID}\.avro"
        elif place is Place.HISTORY:
            yield FileKind.STAYS, "(snapshot|changelog|schema)-[0-9]+|(tag|consumer)-.+|LATEST|EARLIEST"
        elif place is Place.OWN:
            yield FileKind.STAYS, ".+"
        else:
            yield FileKind.STAYS, "_SUCCESS"


def _any(prefixes: Iterable[str]) -> str:
    return f"({'|'.join(re.escape(prefix) for prefix in sorted(prefixes))})"


BUCKET: Final = re.compile("bucket-(postpone|-?[0-9]+)")
ICEBERG_INSIDE: Final = "metadata"
"""Folder of Iceberg metadata in the table's directory."""
METADATA: Final = {"manifest": Place.MANIFEST, "index": Place.INDEX, "statistics": Place.STATISTICS}
HISTORY: Final = ("snapshot", "changelog", "schema", "tag", "consumer")
ENTROPY: Final = re.compile(r"(?<=bucket-)(postpone|-?[0-9]+)(?:/[01]{4}){3}/[01]{8}$")
"""Folders of the strategy `entropy-inject` below a bucket in an external path; the first group is the bucket."""
BELOW: Final = "data-file.path-directory"
EXTERNAL: Final = "data-file.external-paths"
_DATA_FILE: Final = re.compile(rf"[^.].*\.({FORMATS})(-[0-9]+)?")
"""Data files named by other tools, as in buckets of tables that Paimon's `migrate` made."""


def external_places(store: TableStore) -> list[str]:
    """Return the absolute paths that the table declares for data outside its folder (`data-file.external-paths`).

    Args:
        store: the table.
    """
    return [declared.folder for declared in store.external_paths.declared if not declared.refusal]


def iceberg_folders(root: str, versions: Iterable[TableOptions]) -> tuple[str, ...]:
    """Return the folders of a table's Iceberg metadata, of the present and of earlier options.

    A folder follows from the table's own directory, so no option and no metadata file can name another place.

    Args:
        root: the table's directory.
        versions: options of the table's schemas.

    Returns:
        ``metadata`` for the folder in the table's directory, and the absolute path of the folder in the warehouse of an
        Iceberg Hadoop catalog; empty for a table that never had Iceberg metadata.
    """
    folders: set[str] = set()
    for options in versions:
        with suppress(InvalidOption):  # the option's own error is that of a commit
            if storage_of(options) is not IcebergStorage.DISABLED:
                outside = catalog_folder(root)
                inside = location_of(options) is IcebergLocation.TABLE_LOCATION
                folders |= {ICEBERG_INSIDE} if inside else set() if outside is None else {outside}
    return tuple(sorted(folders))


def is_absolute(path: str) -> bool:
    """Return whether the path of a file in a plan or record is absolute, on a local disk or in an object store.

    Args:
        path: the path.
    """
    return path.startswith("/") or bool(place_of(path))


@dataclass(frozen=True)
class OwnFiles:
    """Names and folders of a table's files, from its schemas, including old ones and those of branches.

    Attributes:
        names: name patterns of the table's files.
        partition_keys: partition columns of each schema.
        below: folders, relative to the table's folder, that hold the buckets (`data-file.path-directory`); "" is the
            table's folder.
        external: absolute external paths that the table declares, outside the table's folder.
        allowed: external paths in which the operator allows deletions.
        iceberg: folders of Iceberg metadata by any of the schemas, relative to the table's folder or absolute.
        roots: folders outside the tables' own in which the operator allows data files (`DREDGE_EXTERNAL_ROOTS`).
    """

    names: Names
    partition_keys: tuple[tuple[str, ...], ...]
    below: tuple[str, ...]
    external: tuple[str, ...]
    allowed: tuple[str, ...]
    roots: tuple[ExternalRoot, ...] = ()
    iceberg: tuple[str, ...] = ()

    @property
    def has_parts(self) -> bool:
        """Whether all schemas have the same partition columns and data folder, so that listing can be done in parts."""
        return len(self.partition_keys) == 1 and len(self.below) == 1

    @staticmethod
    def of(store: TableStore) -> OwnFiles:
        """Return the names and folders of a table's files, read from its schemas.

        Args:
            store: the table.

        Raises:
            CorruptFile: a schema cannot be read.
        """
        versions: list[tuple[TableSchema, TableOptions]] = [(store.schema, store.options)]
        for branch in (branches.MAIN, *branches.list_branches(store)):
            for number in list_schema_ids(store.file_io, store.root, branch):
                schema = load_schema(store.file_io, store.root, number, branch)
                versions.append((schema, TableOptions(schema.options, store.name, stored=True)))
        below = {str(options.get(BELOW) or "").strip("/") for _, options in versions}
        return OwnFiles(
            Names(
                frozenset(str(options.get("data-file.prefix")) for _, options in versions),
                frozenset(str(options.get("changelog-file.prefix")) for _, options in versions),
            ),
            tuple(sorted({schema.partition_keys for schema, _ in versions})),
            tuple(sorted(below)),
            tuple(external_places(store)),
            tuple(store.external_paths.deletable_folders),
            store.external_paths.roots,
            tuple(
                folder
                for folder in iceberg_folders(store.root, [options for _, options in versions])
                # A catalog server names the table's directory, and may not steer deletions to places beside it.
                if store.publisher is None or not is_absolute(folder)
            ),
        )

    def find_foreign_paths(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the paths that no deletion may name, each with the reason.

        Args:
            paths: paths relative to the table's root, or absolute paths below a declared external path.

        Returns:
            The reason by path; empty if every path is a file of this table that may be deleted.
        """
        reasons: dict[str, str] = {}
        folders: dict[str, list[str]] = {}
        for path in dict.fromkeys(paths):
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append(name)
        for folder, names in folders.items():
            place, reason = self._place(folder)
            texts = [name if name.isprintable() else "" for name in names]
            kinds = np.zeros(len(names), np.int8) if place is None else self.names.kinds(place, pa.array(texts))
            for name, number in zip(names, kinds.tolist(), strict=True):
                kind = KINDS[number]
                foreign = (
                    place is Place.BUCKET
                    and kind is FileKind.UNKNOWN
                    and _DATA_FILE.fullmatch(name)
                    and name.isprintable()
                )
                if kind not in DELETABLE and not foreign:
                    why = reason or (
                        "it is never deleted" if kind is FileKind.STAYS else "no file of a table has that name"
                    )
                    reasons[f"{folder}/{name}" if folder else name] = why
        return reasons

    def require(self, paths: Iterable[str], where: str) -> None:
        """Raise an error if no deletion in this table may name one of the paths.

        Args:
            paths: paths relative to the table's root, or absolute paths below a declared external path.
            where: the file or plan that names the paths, for the error.

        Raises:
            CorruptFile: a path is not a file of this table that may be deleted.
        """
        reasons = self.find_foreign_paths(paths)
        if reasons:
            path, why = next(iter(reasons.items()))
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            raise CorruptFile(where, f"it names {path!r}{more} for deletion: {why}; nothing of it is carried out")

    def _place(self, folder: str) -> tuple[Place | None, str]:
        """Return the purpose of a folder.

        Returns:
            (purpose, ""), or (None, reason) if no deletion may name files in the folder.
        """
        parts = folder.split("/") if folder else []
        if folder in self.iceberg:
            return Place.ICEBERG, ""
        if is_absolute(folder):
            return self._external_place(folder)
        if any(part in ("", ".", "..") for part in parts):
            return None, "it is no plain path below the table's folder"
        if len(parts) == 1 and parts[0] in METADATA:
            return METADATA[parts[0]], ""
        history = parts[2:] if parts[:1] == ["branch"] and parts[1:2] and parts[1].startswith("branch-") else parts
        if history in ([name] for name in HISTORY) or history == ["tag", "tag-success-file"]:
            return Place.HISTORY, ""
        if parts[:1] == ["dredge"]:
            return (Place.OWN, "") if len(parts) <= 2 else (None, "no file of a deletion is in that folder")
        for below in sorted(self.below, key=len, reverse=True):
            heads = below.split("/") if below else []
            if parts[: len(heads)] == heads:
                place, reason = self._bucket(parts[len(heads) :])
                if place is not None:
                    return place, reason
        return None, "it is no folder of the table's metadata, partitions or buckets"

    def _external_place(self, folder: str) -> tuple[Place | None, str]:
        """Return the purpose of a folder outside the table's: (purpose, ""), or (None, reason)."""
        reason = f"{EXTERNAL} does not declare this place"
        for declared in self.external:
            if not (folder == declared or folder.startswith(declared.rstrip("/") + "/")):
                continue
            if declared not in self.allowed:
                reason = (
                    f"{declared} lies outside the table, and neither {EXTERNAL_ROOTS} (':rw') nor {ALLOWED_PLACES} "
                    "allows deletions there"
                )
                continue
            parts = ENTROPY.sub(r"\1", folder[len(declared) :].strip("/")).split("/")
            for below in self.below:
                heads = below.split("/") if below else []
                if parts[: len(heads)] == heads:
                    place, reason = self._bucket(parts[len(heads) :])
                    if place is not None:
                        return place, ""
        root = find_root(self.roots, folder)
        if root is not None and root.writable and not any(folder.startswith(f"{own}/") for own in self.external):
            return Place.BUCKET, ""  # imported files may have any folder below an allowed root
        return None, reason

    def _bucket(self, parts: Sequence[str]) -> tuple[Place | None, str]:
        """Return the purpose of a folder below the table's data folder.

        Args:
            parts: names of the folders from the data folder down to this folder.

        Returns:
            (purpose, "") if it is a bucket or partition of the table, else (None, reason).
        """
        parts = [part for part in parts if part]
        in_bucket = bool(parts) and bool(BUCKET.fullmatch(parts[-1]))
        values = parts[:-1] if in_bucket else parts
        for keys in self.partition_keys:
            fits = all(part.startswith(f"{escape(key)}=") for part, key in zip(values, keys, strict=False))
            if fits and (len(values) == len(keys) if in_bucket else len(values) <= len(keys)):
                return (Place.BUCKET if in_bucket else Place.PARTITION), ""
        return None, "it is no folder of the table's partitions and buckets"
