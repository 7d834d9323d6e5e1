"""A snapshot: the small JSON file that makes a commit visible (format.md 3).

Source: ``Snapshot``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lsm_core.errors import CorruptFile
from lsm_core.json_text import ObjectReader, parse_object, pretty

CURRENT_VERSION = 3
BATCH_COMMIT_IDENTIFIER = 9223372036854775807
"""Commit identifier of batch commits (Long.MAX_VALUE); streaming commits use their checkpoint id."""
MAX_SEQUENCE = "sequence.generation.max-sequence-number"
"""Property of a snapshot: the table's largest sequence number (`write.sequence-number-init-mode` = snapshot)."""


class CommitKind(StrEnum):
    """Purpose of a commit (Java `Snapshot.CommitKind`)."""

    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"


@dataclass(frozen=True)
class Snapshot:
    """State of a table after one commit.

    Java's readers trust the sizes: a wrong ``*_manifest_list_size`` silently loses rows in Java.

    Attributes:
        id: id of the snapshot.
        schema_id: id of the newest schema at the commit.
        base_manifest_list: name of the list of inherited manifests.
        delta_manifest_list: name of the list of this commit's manifests.
        commit_user: user of the commit.
        commit_identifier: identifier of the commit within its user.
        commit_kind: purpose of the commit.
        time_millis: time of the commit (epoch ms).
        base_manifest_list_size: exact size in bytes, or None.
        delta_manifest_list_size: exact size in bytes, or None.
        changelog_manifest_list: name of the list of changelog manifests, or None.
        changelog_manifest_list_size: exact size in bytes, or None.
        index_manifest: name of the index manifest, or None.
        total_record_count: unmerged rows of the table.
        delta_record_count: unmerged rows of this commit's changes.
        changelog_record_count: rows of the changelog, or None.
        watermark: event-time watermark (epoch ms), or None.
        statistics: name of the statistics file, or None.
        properties: properties by name, or None.
        next_row_id: next free row id with row tracking, or None.
        log_offsets: offsets of a log system, or None.
        uuid: unique id of the snapshot, or None.
        writer_version: version of the writer, or None.
        operation: operation of the commit, or None.
        version: version of the file format.
        others: members that this version does not know; a snapshot derived from this one keeps them.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_millis: int
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    total_record_count: int = 0
    delta_record_count: int = 0
    changelog_record_count: int | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = None
    log_offsets: Mapping[str, int] | None = None
    uuid: str | None = None
    writer_version: str | None = None
    operation: str | None = None
    version: int = CURRENT_VERSION
    others: Mapping[str, Any] | None = None

    def to_json(self) -> bytes:
        """Return the content of the snapshot file in Java's member order, without absent members."""
        value = {json_name: getattr(self, name) for json_name, name in _MEMBERS}
        value["commitKind"] = self.commit_kind.value
        known = {key: item for key, item in value.items() if item is not None}
        return pretty({**known, **(self.others or {})}).encode()

    @staticmethod
    def from_json(data: bytes, path: str) -> Snapshot:
        """Parse a snapshot, tag or changelog file; unknown members are kept (:attr:`others`).

        Raises:
            CorruptFile: the file is damaged; the message names ``path``.
        """
        return snapshot_from_object(parse_object(data, path), path)


# JSON members and attributes, in Java's order.
_MEMBERS: tuple[tuple[str, str], ...] = (
    ("version", "version"),
    ("uuid", "uuid"),
    ("id", "id"),
    ("schemaId", "schema_id"),
    ("baseManifestList", "base_manifest_list"),
    ("baseManifestListSize", "base_manifest_list_size"),
    ("deltaManifestList", "delta_manifest_list"),
    ("deltaManifestListSize", "delta_manifest_list_size"),
    ("changelogManifestList", "changelog_manifest_list"),
    ("changelogManifestListSize", "changelog_manifest_list_size"),
    ("indexManifest", "index_manifest"),
    ("commitUser", "commit_user"),
    ("writerVersion", "writer_version"),
    ("commitIdentifier", "commit_identifier"),
    ("commitKind", "commit_kind"),
    ("timeMillis", "time_millis"),
    ("logOffsets", "log_offsets"),
    ("totalRecordCount", "total_record_count"),
    ("deltaRecordCount", "delta_record_count"),
    ("changelogRecordCount", "changelog_record_count"),
    ("watermark", "watermark"),
    ("statistics", "statistics"),
    ("properties", "properties"),
    ("nextRowId", "next_row_id"),
    ("operation", "operation"),
)
_NAMES = frozenset(name for name, _ in _MEMBERS)
_REQUIRED_INTEGERS = {"id", "schema_id", "commit_identifier", "time_millis"}
_REQUIRED_TEXTS = {"base_manifest_list", "delta_manifest_list", "commit_user"}
_OPTIONAL_INTEGERS = {
    "base_manifest_list_size",
    "delta_manifest_list_size",
    "changelog_manifest_list_size",
    "changelog_record_count",
    "watermark",
    "next_row_id",
}
_OPTIONAL_TEXTS = {"changelog_manifest_list", "index_manifest", "statistics", "uuid", "writer_version", "operation"}


def snapshot_from_object(members: Mapping[str, Any], path: str) -> Snapshot:
    """Return a snapshot from its parsed JSON object.

    Raises:
        CorruptFile: a member is missing or of the wrong type; the message names ``path``.
    """
    reader = ObjectReader(members, path)
    values: dict[str, Any] = {}
    for json_name, name in _MEMBERS:
        if name in _REQUIRED_INTEGERS:
            values[name] = reader.integer(json_name)
        elif name in _REQUIRED_TEXTS:
            values[name] = reader.text(json_name)
        elif name in _OPTIONAL_INTEGERS:
            values[name] = reader.optional_integer(json_name)
        elif name in _OPTIONAL_TEXTS:
            values[name] = reader.optional_text(json_name)
    values["version"] = reader.optional_integer("version") or 1
    # Only files of very old writers lack them; Java 1.4 reads them as 0 too.
    values["total_record_count"] = reader.optional_integer("totalRecordCount") or 0
    values["delta_record_count"] = reader.optional_integer("deltaRecordCount") or 0
    values["properties"] = reader.text_map("properties")
    offsets = members.get("logOffsets")
    if offsets is not None:
        if not isinstance(offsets, dict) or any(
            isinstance(v, bool) or not isinstance(v, int) for v in offsets.values()
        ):
            raise CorruptFile(path, f'member "logOffsets" must be an object of whole numbers, found {offsets!r}')
        values["log_offsets"] = dict(offsets)
    values["others"] = {name: value for name, value in members.items() if name not in _NAMES} or None
    kind = reader.text("commitKind")
    try:
        values["commit_kind"] = CommitKind(kind)
    except ValueError as error:
        raise CorruptFile(path, f'unknown commitKind "{kind}"') from error
    return Snapshot(**values)
