"""Options by which a table's Iceberg metadata is written (`metadata.iceberg.*`).

`lsm_core.metadata.support` refuses tables whose Iceberg metadata cannot be written.

Source: ``IcebergOptions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lsm_core.errors import InvalidOption
from lsm_core.iceberg.state import IcebergStorage, storage_of
from lsm_core.options import TableOptions

FORMAT_VERSION: Final = "metadata.iceberg.format-version"
COMPRESSION: Final = "metadata.iceberg.manifest-compression"
_VERSIONS: Final = (2, 3)
_CODECS: Final = {
    "none": "null",
    "null": "null",
    "uncompressed": "null",
    "snappy": "snappy",
    "zstd": "zstandard",
    "zstandard": "zstandard",
    "deflate": "deflate",
    "gzip": "deflate",
    "bzip2": "bzip2",
    "xz": "xz",
}
"""Avro's codec for each accepted compression."""


@dataclass(frozen=True)
class IcebergSettings:
    """Options of the writer of Iceberg metadata.

    Attributes:
        format_version: version of the Iceberg format, 2 or 3.
        fewest_merged: number of small manifests from which they are merged, if their size reaches the target.
        most_small: number of small manifests from which they are merged, whatever their size.
        deletes_old_versions: whether old metadata files are deleted after a commit.
        kept_versions: number of old metadata files that are kept.
        codec: Avro's codec of manifests and manifest lists.
        legacy_names: whether manifest lists have the field names of Iceberg 1.4.
        adds_vectors: whether deletion vectors are published, so that files below the top level can be read.
    """

    format_version: int = 2
    fewest_merged: int = 10
    most_small: int = 50
    deletes_old_versions: bool = True
    kept_versions: int = 0
    codec: str = "snappy"
    legacy_names: bool = False
    adds_vectors: bool = False

    @property
    def has_row_ids(self) -> bool:
        """Whether manifests assign row ids (Iceberg version 3)."""
        return self.format_version >= 3


def writes_metadata(options: TableOptions) -> bool:
    """Return whether commits to the table write Iceberg metadata.

    Raises:
        InvalidOption: the option has an unknown value.
    """
    return storage_of(options) in (
        IcebergStorage.TABLE_LOCATION,
        IcebergStorage.HADOOP_CATALOG,
        IcebergStorage.HIVE_CATALOG,
    )


def settings_of(options: TableOptions) -> IcebergSettings:
    """Return the settings that the table's options make.

    Raises:
        InvalidOption: an option has an invalid value.
    """
    version = int(options.get(FORMAT_VERSION))
    if version not in _VERSIONS:
        raise InvalidOption(FORMAT_VERSION, version, "2 or 3")
    compression = str(options.get(COMPRESSION)).strip().lower()
    if compression not in _CODECS:
        raise InvalidOption(COMPRESSION, compression, f"one of {', '.join(sorted(_CODECS))}")
    vectors = options.deletion_vectors_enabled and bool(options.get("deletion-vectors.bitmap64"))
    return IcebergSettings(
        format_version=version,
        fewest_merged=int(options.get("metadata.iceberg.compaction.min.file-num")),
        most_small=int(options.get("metadata.iceberg.compaction.max.file-num")),
        deletes_old_versions=bool(options.get("metadata.iceberg.delete-after-commit.enabled")),
        kept_versions=int(options.get("metadata.iceberg.previous-versions-max")),
        codec=_CODECS[compression],
        legacy_names=bool(options.get("metadata.iceberg.manifest-legacy-version")),
        adds_vectors=vectors and version >= 3,
    )
