"""Content of a metadata file as the writer needs it: parsed from JSON, changed as a value, and encoded again.

`state` reads the same files for maintenance, with fewer members.

Source: ``IcebergMetadata``, ``IcebergSnapshot``, ``IcebergRef``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lsm_core.errors import CorruptFile, InvalidData
from lsm_core.format.snapshot import Snapshot
from lsm_core.iceberg.schemas import SPEC_ID
from lsm_core.iceberg.state import COMMIT_IDENTITY, commit_identity
from lsm_core.json_text import ObjectReader, parse_object, pretty
from lsm_core.storage import check_name

_UUID: Final = re.compile(r"[0-9a-fA-F-]{1,64}")
_FOREVER: Final = 2**63 - 1
"""Age up to which Iceberg keeps a tag (ms): Paimon deletes tags, not Iceberg."""
_MAX_LOCATION: Final = 4096
_ORDER_ID: Final = 0


@dataclass(frozen=True)
class SnapshotEntry:
    """One snapshot of a metadata file.

    Attributes:
        snapshot_id: id of the snapshot and of its Paimon snapshot, and its sequence number.
        timestamp_ms: time of the Paimon commit (epoch ms).
        manifest_list: plain file name of its manifest list, in the metadata folder.
        schema_id: id of the schema at the commit.
        summary: counts by name as texts, the operation, and the identity of the Paimon commit.
        parent_id: id of the snapshot before it, or None.
        first_row_id: first row id that the snapshot assigns (version 3), or None.
        added_rows: number of row ids that the snapshot assigns (version 3), or None.
    """

    snapshot_id: int
    timestamp_ms: int
    manifest_list: str
    schema_id: int
    summary: Mapping[str, str]
    parent_id: int | None = None
    first_row_id: int | None = None
    added_rows: int | None = None

    def count(self, name: str) -> int | None:
        """Return a count of the summary, or None if it is missing or is no whole number."""
        text = self.summary.get(name, "")
        return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None

    def is_of(self, snapshot: Snapshot) -> bool:
        """Return whether the snapshot was made of a Paimon snapshot.

        An entry without an identity (Paimon 1) is trusted by its id alone.
        """
        identity = self.summary.get(COMMIT_IDENTITY)
        return self.snapshot_id == snapshot.id and identity in (None, commit_identity(snapshot))


@dataclass(frozen=True)
class TableMetadata:
    """Content of a metadata file.

    Attributes:
        format_version: version of the Iceberg format, 2 or 3.
        table_uuid: UUID of the Iceberg table.
        location: address of the table's folder.
        last_column_id: highest id of a column.
        schemas: schemas in the JSON form of `schemas.iceberg_schema`.
        current_schema_id: id of the current schema.
        partition_spec: the partition spec (`schemas.partition_spec`).
        last_partition_id: highest id of a partition field.
        snapshots: snapshots, oldest first.
        current_snapshot_id: id of the snapshot that readers see.
        next_row_id: next free row id (version 3), or None.
        refs: snapshot id of each tag, by name.
    """

    format_version: int
    table_uuid: str
    location: str
    last_column_id: int
    schemas: tuple[Mapping[str, Any], ...]
    current_schema_id: int
    partition_spec: Mapping[str, Any]
    last_partition_id: int
    snapshots: tuple[SnapshotEntry, ...]
    current_snapshot_id: int
    next_row_id: int | None = None
    refs: Mapping[str, int] = field(default_factory=dict)

    @property
    def current(self) -> SnapshotEntry | None:
        """Snapshot that readers see, or None if the file does not have it."""
        return next((entry for entry in self.snapshots if entry.snapshot_id == self.current_snapshot_id), None)

    def to_json(self, folder: str, now_ms: int) -> bytes:
        """Return the content of the file in Java's member order.

        Args:
            folder: address of the metadata folder.
            now_ms: time of the change (epoch ms).
        """
        members: dict[str, Any] = {
            "format-version": self.format_version,
            "table-uuid": self.table_uuid,
            "location": self.location,
            "last-sequence-number": self.current_snapshot_id,
            "last-updated-ms": now_ms,
            "last-column-id": self.last_column_id,
            "schemas": [dict(schema) for schema in self.schemas],
            "current-schema-id": self.current_schema_id,
            "partition-specs": [dict(self.partition_spec)],
            "default-spec-id": SPEC_ID,
            "last-partition-id": self.last_partition_id,
            "sort-orders": [{"order-id": _ORDER_ID, "fields": []}],
            "default-sort-order-id": _ORDER_ID,
            "snapshots": [_snapshot_members(entry, folder) for entry in self.snapshots],
            "current-snapshot-id": self.current_snapshot_id,
            **({} if self.next_row_id is None else {"next-row-id": self.next_row_id}),
            "properties": {},
            "refs": {
                name: {"snapshot-id": number, "type": "tag", "max-ref-age-ms": _FOREVER}
                for name, number in self.refs.items()
            },
        }
        return pretty(members).encode()


def _snapshot_members(entry: SnapshotEntry, folder: str) -> dict[str, Any]:
    members = {
        "sequence-number": entry.snapshot_id,
        "snapshot-id": entry.snapshot_id,
        "parent-snapshot-id": entry.parent_id,
        "timestamp-ms": entry.timestamp_ms,
        "summary": dict(entry.summary),
        "manifest-list": f"{folder}/{entry.manifest_list}",
        "schema-id": entry.schema_id,
        "first-row-id": entry.first_row_id,
        "added-rows": entry.added_rows,
    }
    return {name: value for name, value in members.items() if value is not None}


def decode_metadata(data: bytes, path: str) -> TableMetadata:
    """Parse a metadata file.

    Raises:
        CorruptFile: the file is damaged, or was not written for a Paimon table; the message names it.
    """
    members = parse_object(data, path)
    reader = ObjectReader(members, path)
    uuid, location = reader.text("table-uuid"), reader.text("location")
    if not _UUID.fullmatch(uuid) or len(location) > _MAX_LOCATION:
        raise CorruptFile(path, 'member "table-uuid" or "location" is invalid')
    specs = [spec for spec in reader.objects("partition-specs") if spec.get("spec-id") == SPEC_ID]
    if len(specs) != 1 or reader.integer("default-spec-id") != SPEC_ID:
        raise CorruptFile(path, "it has other partition specs than a Paimon table")
    schemas = tuple(reader.objects("schemas"))
    for schema in schemas:
        ObjectReader(schema, path).integer("schema-id")
    return TableMetadata(
        format_version=reader.integer("format-version"),
        table_uuid=uuid,
        location=location,
        last_column_id=reader.integer("last-column-id"),
        schemas=schemas,
        current_schema_id=reader.integer("current-schema-id"),
        partition_spec=specs[0],
        last_partition_id=reader.integer("last-partition-id"),
        snapshots=tuple(_entry(item, path) for item in reader.objects("snapshots")),
        current_snapshot_id=reader.integer("current-snapshot-id"),
        next_row_id=reader.optional_integer("next-row-id"),
        refs=_refs(members, path),
    )


def _entry(members: Mapping[str, Any], path: str) -> SnapshotEntry:
    reader = ObjectReader(members, path)
    try:
        manifest_list = check_name(reader.text("manifest-list").rpartition("/")[2], subject="name of a manifest list")
    except InvalidData as error:
        raise CorruptFile(path, str(error)) from error
    return SnapshotEntry(
        snapshot_id=reader.integer("snapshot-id"),
        timestamp_ms=reader.integer("timestamp-ms"),
        manifest_list=manifest_list,
        schema_id=reader.integer("schema-id"),
        summary=reader.text_map("summary") or {},
        parent_id=reader.optional_integer("parent-snapshot-id"),
        first_row_id=reader.optional_integer("first-row-id"),
        added_rows=reader.optional_integer("added-rows"),
    )


def _refs(members: Mapping[str, Any], path: str) -> dict[str, int]:
    refs = members.get("refs") or {}
    if not isinstance(refs, dict) or any(not isinstance(ref, dict) for ref in refs.values()):
        raise ObjectReader(members, path).bad("refs", "an object of refs")
    return {name: ObjectReader(ref, path).integer("snapshot-id") for name, ref in refs.items()}


@dataclass(frozen=True)
class RetentionLimits:
    """Retention of the table's snapshots, which Iceberg metadata follows.

    Attributes:
        fewest: number of newest snapshots that always stay.
        most: largest number of snapshots, or None for no limit.
        time_ms: age up to which snapshots stay (ms).
    """

    fewest: int
    most: int | None
    time_ms: int


def count_expired(entries: tuple[SnapshotEntry, ...], newest: int, limits: RetentionLimits, now_ms: int) -> int:
    """Return how many of the oldest snapshots a commit removes from the metadata; the newest snapshot always stays.

    Args:
        entries: snapshots, oldest first, with the new one.
        newest: id of the new snapshot.
        limits: retention of Paimon's snapshots.
        now_ms: the current time (epoch ms).

    Source: ``IcebergCommitCallback.shouldExpire``.
    """
    for place, entry in enumerate(entries[:-1]):
        is_recent = entry.timestamp_ms >= now_ms - limits.time_ms
        is_beyond = limits.most is not None and entry.snapshot_id <= newest - limits.most
        if entry.snapshot_id > newest - limits.fewest or (is_recent and not is_beyond):
            return place
    return max(len(entries) - 1, 0)
