"""Names and folders of Paimon's files: an allow-list, so that unknown files are never deleted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import numpy_array

_UUID: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TEMPORARY: Final = rf"\..+\.{_UUID}\.tmp"
FORMATS: Final = "avro|orc|parquet|csv|json|text|txt|blob|lance|vortex|row"
_COMPRESSIONS: Final = "gz|gzip|zst|zstd|snappy|lz4|lzo|br|brotli|deflate|bz2|none|uncompressed"
# data-<uuid>-0.parquet, data-<uuid>-0.zst.parquet, data-<uuid>-0.csv.gz, data-<uuid>-0.vector.lance, and file indexes.
_SUFFIX: Final = rf"(\.(vector|{_COMPRESSIONS}))?\.({FORMATS})(\.({_COMPRESSIONS}))?((-[0-9]+)?\.index)?"
_INDEX: Final = rf"index-{_UUID}-[0-9]+|([a-z0-9_]+-)*global-index-{_UUID}\.index"


class Place(StrEnum):
    """Purpose of a directory, which decides the names that are known in it."""

    MANIFEST = "manifest"
    INDEX = "index"
    STATISTICS = "statistics"
    BUCKET = "bucket"
    HISTORY = "history"
    """Snapshots, changelogs, schemas, tags and consumers, of main or of a branch."""
    OWN = "dredge"
    """Plans, deletion records and the ledger of Dredge."""
    PARTITION = "partition"
    """The table's directory, and those of partitions above their buckets."""


class FileKind(StrEnum):
    """Kinds of files; those that are not in `DELETABLE` are always kept."""

    UNKNOWN = "unknown"
    STAYS = "stays"
    """Known, and never deleted here: snapshots, hints, schemas, tags, plans, records, success files."""
    DATA = "data"
    CHANGELOG = "changelog"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest-list"
    INDEX_MANIFEST = "index-manifest"
    INDEX = "index"
    STATISTICS = "statistics"
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
        """Return the kind of each file name as its number in `KINDS`.

        Args:
            place: purpose of the directory.
            names: file names.
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
        elif place is Place.HISTORY:
            yield FileKind.STAYS, "(snapshot|changelog|schema)-[0-9]+|(tag|consumer)-.+|LATEST|EARLIEST"
        elif place is Place.OWN:
            yield FileKind.STAYS, ".+"
        else:
            yield FileKind.STAYS, "_SUCCESS"


def _any(prefixes: Iterable[str]) -> str:
    return f"({'|'.join(re.escape(prefix) for prefix in sorted(prefixes))})"
