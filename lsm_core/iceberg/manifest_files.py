"""Iceberg's manifests and manifest lists as Avro files: the bytes of entries, and rows of lists as values.

Source: ``IcebergManifestFile``, ``IcebergManifestFileMeta``, ``IcebergManifestList``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array, one_array
from lsm_core.errors import CorruptFile, InvalidData
from lsm_core.format import avro
from lsm_core.format.schema import TableSchema
from lsm_core.iceberg.manifest_entries import EntryStatus, entry_schema
from lsm_core.iceberg.schemas import FIRST_PARTITION_ID, SPEC_ID
from lsm_core.iceberg.single_values import decode_values, encode_values
from lsm_core.storage import check_name
from lsm_core.types import TypeRoot, to_arrow

_BLOCK_BYTES: Final = 1 << 16
_ROWS: Final = 4096
"""Entries that are encoded at a time."""
_ROW_ID: Final = "first_row_id"
_FLOATS: Final = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
_MEMBERS: Final = (
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes"),
    *("null_value_counts", "lower_bounds", "upper_bounds"),
    *("referenced_data_file", "content_offset", "content_size_in_bytes"),
)
"""Members of `data_file` in the order of the file, without the row id of version 3."""
_IDS: Final = {
    "status": 0,
    "snapshot_id": 1,
    "sequence_number": 3,
    "file_sequence_number": 4,
    "content": 134,
    "file_path": 100,
    "file_format": 101,
    "record_count": 103,
    "file_size_in_bytes": 104,
    "referenced_data_file": 143,
    "content_offset": 144,
    "content_size_in_bytes": 145,
    _ROW_ID: 142,
}
_MAPS: Final = {
    "null_value_counts": (110, 121, "long"),
    "lower_bounds": (125, 126, "bytes"),
    "upper_bounds": (128, 129, "bytes"),
}
"""Field id, id of the key, and Avro type of the values of each map; the id of the value follows that of the key."""


class ManifestContent(IntEnum):
    """Content of a manifest."""

    DATA = 0
    DELETES = 1


@dataclass(frozen=True)
class PartitionSummary:
    """Values of one partition column in a manifest.

    Attributes:
        contains_null: whether a partition has a null.
        contains_nan: whether a partition has a NaN, or None if unknown.
        lower: smallest value (`single_values`), or None if unknown.
        upper: largest value, or None if unknown.
    """

    contains_null: bool
    contains_nan: bool | None = None
    lower: bytes | None = None
    upper: bytes | None = None


@dataclass(frozen=True)
class IcebergManifest:
    """Row of a manifest list: one manifest.

    Attributes:
        name: plain file name of the manifest, in the metadata folder.
        length: size in bytes.
        content: data files or deletion vectors.
        sequence_number: sequence number of the snapshot that wrote the manifest.
        min_sequence_number: smallest sequence number of an entry.
        snapshot_id: id of the snapshot that wrote the manifest.
        added_files: number of entries of status ADDED.
        existing_files: number of entries of status EXISTING.
        deleted_files: number of entries of status DELETED.
        added_rows: rows of the added files.
        existing_rows: rows of the existing files.
        deleted_rows: rows of the deleted files.
        partitions: summary of each partition column.
        first_row_id: first row id of the manifest's rows (version 3), or None.
    """

    name: str
    length: int
    content: ManifestContent
    sequence_number: int
    min_sequence_number: int
    snapshot_id: int
    added_files: int = 0
    existing_files: int = 0
    deleted_files: int = 0
    added_rows: int = 0
    existing_rows: int = 0
    deleted_rows: int = 0
    partitions: tuple[PartitionSummary, ...] = ()
    first_row_id: int | None = None

    @property
    def live_files(self) -> int:
        """Number of files that the snapshot has."""
        return self.added_files + self.existing_files

    @property
    def live_rows(self) -> int:
        """Rows of the files that the snapshot has."""
        return self.added_rows + self.existing_rows


# -- manifests ---------------------------------------------------------------------------------------------------------


def _manifest_schema(table: TableSchema, has_row_ids: bool) -> dict[str, Any]:
    """Return the Avro schema of the table's manifests.

    Args:
        table: newest schema of the table.
        has_row_ids: whether entries have row ids (version 3).
    """
    arrow = entry_schema(table)
    members = []
    for name in (*_MEMBERS, *((_ROW_ID,) if has_row_ids else ())):
        if name == "partition":
            kind: Any = {"type": "record", "name": "r102", "fields": _partition_fields(arrow.field(name).type)}
            members.append({"name": name, "type": kind, "field-id": 102})
        elif name in _MAPS:
            members.append(_map_member(name))
        else:
            members.append(_member(arrow.field(name), _IDS[name]))
    columns = [_member(arrow.field(name), _IDS[name]) for name in arrow.names[:4]]
    data_file = {"name": "data_file", "type": {"type": "record", "name": "r2", "fields": members}, "field-id": 2}
    return {"type": "record", "name": "manifest_entry", "fields": [*columns, data_file]}


def _member(column: pa.Field, field_id: int) -> dict[str, Any]:
    member = dict(avro.avro_schema(pa.schema([column]))["fields"][0])
    ordered = {"name": member["name"], "type": member["type"]}
    if "default" in member:
        ordered["default"] = None
    return {**ordered, "field-id": field_id}


def _partition_fields(kind: pa.DataType) -> list[dict[str, Any]]:
    return [_member(kind.field(i), FIRST_PARTITION_ID + i) for i in range(kind.num_fields)]


def _map_member(name: str) -> dict[str, Any]:
    field_id, key_id, value = _MAPS[name]
    entry = {
        "type": "record",
        "name": f"k{key_id}_v{key_id + 1}",
        "fields": [
            {"name": "key", "type": "int", "field-id": key_id},
            {"name": "value", "type": value, "field-id": key_id + 1},
        ],
    }
    kind = {"type": "array", "items": entry, "logicalType": "map"}
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _nested(entries: pa.Table, has_row_ids: bool) -> tuple[list[pa.Array], pa.Schema]:
    """Return entries as the columns of the Avro record, with `data_file` as a struct."""
    names = [*_MEMBERS, *((_ROW_ID,) if has_row_ids else ())]
    arrow = entries.schema
    fields = [arrow.field(name) for name in names]
    data_file = pa.StructArray.from_arrays([one_array(entries.column(name)) for name in names], fields=fields)
    columns = [one_array(entries.column(name)) for name in arrow.names[:4]]
    schema = pa.schema([*(arrow.field(i) for i in range(4)), pa.field("data_file", pa.struct(fields), nullable=False)])
    return [*columns, data_file], schema


@dataclass
class _Totals:
    """Counts of the entries of one manifest while it is written.

    Attributes:
        files: number of entries of each status.
        rows: rows of the entries of each status.
        min_sequence: smallest sequence number, or None.
        summaries: summary of each partition column, with values instead of bytes.
    """

    files: list[int] = field(default_factory=lambda: [0, 0, 0])
    rows: list[int] = field(default_factory=lambda: [0, 0, 0])
    min_sequence: int | None = None
    summaries: list[list[Any]] = field(default_factory=list)

    def add(self, entries: pa.Table, table: TableSchema) -> None:
        """Add entries to the counts."""
        status = numpy_array(entries.column("status"))
        rows = numpy_array(entries.column("record_count"))
        for number in EntryStatus:
            self.files[number] += int((status == number).sum())
            self.rows[number] += int(rows[status == number].sum())
        smallest = pc.min(entries.column("sequence_number")).as_py()
        known = [number for number in (self.min_sequence, smallest) if number is not None]
        self.min_sequence = min(known, default=None)
        parts = one_array(entries.column("partition")).flatten()
        if not self.summaries:
            self.summaries = [[False, False, None, None] for _ in parts]
        for summary, values, kind in zip(self.summaries, parts, table.partition_types, strict=True):
            summary[0] |= values.null_count > 0
            if kind.root in _FLOATS:
                nan = pc.is_nan(values)
                summary[1] |= bool(pc.any(nan).as_py())
                values = values.filter(pc.invert(nan))
            bounds = pc.min_max(values)
            summary[2] = _choose(summary[2], bounds["min"], pc.less)
            summary[3] = _choose(summary[3], bounds["max"], pc.greater)


def _choose(known: pa.Scalar | None, candidate: pa.Scalar, precedes: Any) -> pa.Scalar | None:
    if not candidate.is_valid:
        return known
    return candidate if known is None or precedes(candidate, known).as_py() else known


@dataclass(frozen=True)
class ManifestForm:
    """Form of the manifests of one commit.

    Attributes:
        table: newest schema of the table.
        has_row_ids: whether entries have row ids (version 3).
        codec: Avro's codec.
        target_bytes: size at which a new manifest is begun.
    """

    table: TableSchema
    has_row_ids: bool
    codec: str
    target_bytes: int


@dataclass(frozen=True)
class EncodedManifest:
    """A manifest before it is written.

    Attributes:
        data: content of the file.
        row: row of the manifest list, without a file name.
    """

    data: bytes
    row: IcebergManifest


def encode_manifests(
    tables: Iterable[pa.Table], form: ManifestForm, snapshot_id: int, content: ManifestContent
) -> Iterator[EncodedManifest]:
    """Yield the manifests of some entries; at most one manifest is in memory.

    Args:
        tables: the entries (`entry_schema`), in order.
        form: form of the manifests.
        snapshot_id: id of the snapshot that writes the manifests.
        content: content of the manifests.

    Yields:
        Each manifest when it reaches the target size, and the last one.
    """
    schema = _manifest_schema(form.table, form.has_row_ids)
    frames: list[bytes] = []
    totals, size = _Totals(), 0
    marker = b""
    for table in tables:
        for start in range(0, table.num_rows, _ROWS):
            part = table.slice(start, _ROWS).combine_chunks()
            records = avro.encode_columns(*_nested(part, form.has_row_ids))
            if not frames:
                marker = blake2b(records.data[:_BLOCK_BYTES].tobytes(), digest_size=avro.SYNC_BYTES).digest()
                frames = [avro.header(schema, form.codec, marker)]
            frames += avro.blocks(records, form.codec, 1, marker, _BLOCK_BYTES)
            totals.add(part, form.table)
            size = sum(map(len, frames))
            if size >= form.target_bytes:
                yield _finished(frames, totals, form, snapshot_id, content)
                frames, totals = [], _Totals()
    if frames:
        yield _finished(frames, totals, form, snapshot_id, content)


def _finished(
    frames: Sequence[bytes], totals: _Totals, form: ManifestForm, snapshot_id: int, content: ManifestContent
) -> EncodedManifest:
    data = b"".join(frames)
    kinds = form.table.partition_types
    summaries = tuple(
        PartitionSummary(bool(has_null), bool(has_nan), *(_bound(value, kind) for value in (low, high)))
        for (has_null, has_nan, low, high), kind in zip(totals.summaries, kinds, strict=True)
    )
    existing_files, added_files, deleted_files = totals.files
    existing_rows, added_rows, deleted_rows = totals.rows
    row = IcebergManifest(
        name="",
        length=len(data),
        content=content,
        sequence_number=snapshot_id,
        min_sequence_number=-1 if totals.min_sequence is None else totals.min_sequence,
        snapshot_id=snapshot_id,
        added_files=added_files,
        existing_files=existing_files,
        deleted_files=deleted_files,
        added_rows=added_rows,
        existing_rows=existing_rows,
        deleted_rows=deleted_rows,
        partitions=summaries,
    )
    return EncodedManifest(data, row)


def _bound(value: pa.Scalar | None, kind: Any) -> bytes | None:
    if value is None:
        return None
    return bytes(encode_values(pa.array([value.as_py()], to_arrow(kind)), kind)[0].as_py())


def decode_manifest(data: bytes, path: str, table: TableSchema, manifest: IcebergManifest) -> pa.Table:
    """Return all entries of a manifest (`entry_schema`).

    Args:
        data: content of the file.
        path: path of the file, for messages.
        table: newest schema of the table.
        manifest: row of the manifest list.

    Raises:
        CorruptFile: the manifest is damaged, or is not one of this table.
    """
    if len(data) != manifest.length:
        raise CorruptFile(path, f"has {len(data)} bytes, but its manifest list records {manifest.length}")
    count = manifest.live_files + manifest.deleted_files
    raw = avro.read_table(data, path, count, logical=True)
    target = entry_schema(table)
    try:
        data_file = one_array(raw.column("data_file"))
        members = dict(zip([f.name for f in data_file.type], data_file.flatten(), strict=True))
        members |= {name: one_array(raw.column(name)) for name in target.names[:4]}
        columns = [_column(members, target.field(name), count) for name in target.names]
        entries = pa.Table.from_arrays(columns, schema=target)
    except (KeyError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise CorruptFile(path, f"not a manifest of this table: {error}") from error
    return _inherit(entries, manifest, path)


def _column(members: Mapping[str, pa.Array], column: pa.Field, count: int) -> pa.Array:
    if column.name == _ROW_ID and column.name not in members:
        return pa.nulls(count, column.type)
    values = members[column.name]
    if column.name == "partition":
        kind = column.type
        if [f.name for f in values.type] != [f.name for f in kind]:
            raise ValueError(f"it has the partition columns {', '.join(f.name for f in values.type)}")
        if not kind.num_fields:
            return pa.Array.from_buffers(kind, count, [None], children=[])
        parts = [part.cast(kind.field(i).type) for i, part in enumerate(values.flatten())]
        return pa.StructArray.from_arrays(parts, fields=list(kind))
    if column.name in _MAPS:
        entries = pa.StructArray.from_arrays([values.keys, values.items], fields=list(column.type.value_type))
        mask = values.is_null() if values.null_count else None
        return pa.ListArray.from_arrays(values.offsets, entries, type=column.type, mask=mask)
    if values.null_count and not column.nullable:
        raise ValueError(f"field {column.name} is null")
    return values.cast(column.type)


def _inherit(entries: pa.Table, manifest: IcebergManifest, path: str) -> pa.Table:
    """Return entries with the numbers that they inherit from the manifest's row where their own are null."""
    status = numpy_array(entries.column("status"))
    if not np.isin(status, list(EntryStatus)).all():
        raise CorruptFile(path, "an entry has an unknown status")
    inherited = (
        ("snapshot_id", manifest.snapshot_id),
        ("sequence_number", manifest.sequence_number),
        ("file_sequence_number", manifest.sequence_number),
    )
    for name, number in inherited:
        if entries.column(name).null_count:
            place = entries.schema.get_field_index(name)
            filled = pc.fill_null(entries.column(name), number)
            entries = entries.set_column(place, entries.schema.field(place), filled)
    return entries


def mentions(data: bytes, path: str, names: Sequence[bytes]) -> bool:
    """Return whether a manifest may have an entry whose path contains one of some texts, without decoding it.

    Args:
        data: content of the file.
        path: path of the file, for messages.
        names: the texts, such as file names.

    Raises:
        CorruptFile: the manifest is damaged.
    """
    container = avro.Container(pa.BufferReader(data), path)
    search = re.compile(b"|".join(map(re.escape, names))).search
    return any(search(plain) for plain in map(container.plain, container.blocks))


# -- manifest lists ----------------------------------------------------------------------------------------------------

_LEGACY: Final = {
    "added_files_count": "added_data_files_count",
    "existing_files_count": "existing_data_files_count",
    "deleted_files_count": "deleted_data_files_count",
}


def _list_schema(legacy_names: bool, has_row_ids: bool) -> dict[str, Any]:
    def required(name: str, kind: Any, field_id: int) -> dict[str, Any]:
        shown = _LEGACY.get(name, name) if legacy_names else name
        return {"name": shown, "type": kind, "field-id": field_id}

    def nullable(name: str, kind: Any, field_id: int) -> dict[str, Any]:
        return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}

    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            required("contains_null", "boolean", 509),
            nullable("contains_nan", "boolean", 518),
            nullable("lower_bound", "bytes", 510),
            nullable("upper_bound", "bytes", 511),
        ],
    }
    fields = [
        required("manifest_path", "string", 500),
        required("manifest_length", "long", 501),
        required("partition_spec_id", "int", 502),
        required("content", "int", 517),
        required("sequence_number", "long", 515),
        required("min_sequence_number", "long", 516),
        nullable("added_snapshot_id", "long", 503),
        required("added_files_count", "int", 504),
        required("existing_files_count", "int", 505),
        required("deleted_files_count", "int", 506),
        required("added_rows_count", "long", 512),
        required("existing_rows_count", "long", 513),
        required("deleted_rows_count", "long", 514),
        nullable("partitions", {"type": "array", "items": summary, "element-id": 508}, 507),
        *([nullable(_ROW_ID, "long", 520)] if has_row_ids else []),
    ]
    return {"type": "record", "name": "manifest_file", "fields": fields}


def encode_manifest_list(
    manifests: Sequence[IcebergManifest], folder: str, *, legacy_names: bool, has_row_ids: bool, codec: str
) -> bytes:
    """Return a manifest list.

    Args:
        manifests: the manifests in order.
        folder: address of the metadata folder, with which the paths of the manifests begin.
        legacy_names: whether the counts have the names of Iceberg 1.4.
        has_row_ids: whether manifests have row ids (version 3).
        codec: Avro's codec.
    """
    schema = _list_schema(legacy_names, has_row_ids)
    names = [member["name"] for member in schema["fields"]]
    records = [dict(zip(names, _row_values(manifest, folder, has_row_ids), strict=True)) for manifest in manifests]
    piece = avro.records_piece(schema, records)
    marker = blake2b(piece.data.tobytes(), digest_size=avro.SYNC_BYTES).digest()
    return b"".join([avro.header(schema, codec, marker), *avro.blocks(piece, codec, 1, marker, _BLOCK_BYTES)])


def _row_values(manifest: IcebergManifest, folder: str, has_row_ids: bool) -> list[Any]:
    summaries = [
        {
            "contains_null": part.contains_null,
            "contains_nan": part.contains_nan,
            "lower_bound": part.lower,
            "upper_bound": part.upper,
        }
        for part in manifest.partitions
    ]
    return [
        f"{folder}/{manifest.name}",
        manifest.length,
        SPEC_ID,
        int(manifest.content),
        manifest.sequence_number,
        manifest.min_sequence_number,
        manifest.snapshot_id,
        manifest.added_files,
        manifest.existing_files,
        manifest.deleted_files,
        manifest.added_rows,
        manifest.existing_rows,
        manifest.deleted_rows,
        summaries,
        *([manifest.first_row_id] if has_row_ids else []),
    ]


def decode_manifest_list(data: bytes, path: str) -> list[IcebergManifest]:
    """Return the manifests that a manifest list names; their locations are reduced to plain file names.

    Raises:
        CorruptFile: the list is damaged.
    """
    modern = {old: new for new, old in _LEGACY.items()}
    table = avro.read_table(data, path)
    table = table.rename_columns([modern.get(name, name) for name in table.column_names])
    return [_manifest(row, path) for row in table.to_pylist()]


def _manifest(row: Mapping[str, Any], path: str) -> IcebergManifest:
    try:
        name = check_name(row["manifest_path"].rpartition("/")[2], subject="name of a manifest")
        partitions = tuple(
            PartitionSummary(part["contains_null"], part["contains_nan"], part["lower_bound"], part["upper_bound"])
            for part in row["partitions"] or ()
        )
        manifest = IcebergManifest(
            *(name, row["manifest_length"], ManifestContent(row["content"])),
            *(row["sequence_number"], row["min_sequence_number"]),
            row["added_snapshot_id"] if row["added_snapshot_id"] is not None else row["sequence_number"],
            *(row["added_files_count"], row["existing_files_count"], row["deleted_files_count"]),
            *(row["added_rows_count"], row["existing_rows_count"], row["deleted_rows_count"]),
            partitions,
            row.get(_ROW_ID),
        )
        if row["partition_spec_id"] != SPEC_ID:
            raise ValueError(f"a manifest has the partition spec {row['partition_spec_id']}")
        counts = (manifest.live_files, manifest.deleted_files, manifest.live_rows, manifest.deleted_rows)
        if min(manifest.length, *counts) < 0:
            raise ValueError(f"a count of manifest {name} is negative")
    except (KeyError, TypeError, ValueError, AttributeError, InvalidData) as error:
        raise CorruptFile(path, f"not a manifest list of a Paimon table: {error}") from error
    return manifest


def assign_row_ids(manifests: Sequence[IcebergManifest], next_row_id: int) -> tuple[list[IcebergManifest], int]:
    """Assign row ids to the manifests of data files that have none.

    Args:
        manifests: the manifests in order.
        next_row_id: the next free row id.

    Returns:
        The manifests, and the next free row id.
    """
    result = []
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA and manifest.first_row_id is None:
            result.append(replace(manifest, first_row_id=next_row_id))
            next_row_id += manifest.live_rows
        else:
            result.append(manifest)
    return result, next_row_id


# -- pruning -----------------------------------------------------------------------------------------------------------


def may_have_partitions(manifest: IcebergManifest, partitions: pa.Array, table: TableSchema, path: str) -> bool:
    """Return whether a manifest may have a file of one of some partitions, judged by its row of the list.

    Args:
        manifest: the manifest.
        partitions: the partitions (struct of the partition columns).
        table: newest schema of the table.
        path: path of the manifest list, for messages.

    Raises:
        CorruptFile: a summary does not fit the table's partition columns.
    """
    kinds = table.partition_types
    if len(manifest.partitions) != len(kinds):
        raise CorruptFile(path, f"manifest {manifest.name} has {len(manifest.partitions)} partition columns")
    may_match = arrow_array(np.ones(len(partitions), np.bool_))
    for summary, values, kind in zip(manifest.partitions, partitions.flatten(), kinds, strict=True):
        bounds = decode_values(pa.array([summary.lower, summary.upper], pa.binary()), kind, path)
        low, high = bounds[0], bounds[1]
        if not low.is_valid or not high.is_valid:
            # Without bounds all values are null or NaN, or the bounds are unknown.
            continue
        fits = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        if kind.root in _FLOATS:
            fits = pc.or_(fits, pc.is_nan(values))
        may_match = pc.and_(may_match, pc.fill_null(fits, summary.contains_null))
    return bool(pc.any(may_match, min_count=0).as_py())
