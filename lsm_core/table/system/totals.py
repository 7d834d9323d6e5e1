"""`$partitions` and `$buckets`: files, rows and bytes added up manifest by manifest, in memory for the groups only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import one_array
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.schema import TableSchema
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore
from lsm_core.table.system.entries import partition_texts
from lsm_core.table.system.texts import cast_text
from lsm_core.table.system.view import Version, View, Wanted, table_schema

BUCKETS: Final = table_schema(
    [
        ("partition", "STRING"),
        ("bucket", "INT NOT NULL"),
        ("record_count", "BIGINT NOT NULL"),
        ("file_size_in_bytes", "BIGINT NOT NULL"),
        ("file_count", "BIGINT NOT NULL"),
        ("last_update_time", "TIMESTAMP(3)"),
    ]
)
PARTITIONS: Final = table_schema(
    [
        ("partition", "STRING"),
        ("record_count", "BIGINT NOT NULL"),
        ("file_size_in_bytes", "BIGINT NOT NULL"),
        ("file_count", "BIGINT NOT NULL"),
        ("last_update_time", "TIMESTAMP(3)"),
        ("created_at", "TIMESTAMP(3)"),
        ("created_by", "STRING"),
        ("updated_by", "STRING"),
        ("options", "STRING"),
    ]
)
_SUMS: Final = ("record_count", "file_size_in_bytes", "file_count")
_NEWEST: Final = "last_update_time"
_BLANK: Final = r"^[\s\x1c-\x1f\x0b]*$"


def totals(store: TableStore, snapshot: Snapshot, keys: Sequence[str]) -> pa.Table:
    """Rows, bytes and files per ``keys`` ("partition" as bytes, "bucket"), and when the newest file was made (epoch ms).

    Additions minus deletions, as manifests come: files never have to be matched. Groups without files are left out.
    Java: `PartitionEntry`, `BucketEntry`.
    """
    known: pa.Table | None = None
    pending: list[pa.Table] = []
    for meta in manifests.data_manifests(store, snapshot):
        pending.append(_added_up(_signed(manifests.read_manifest(store, meta), keys), keys))
        # Folding when as many groups are new as are known keeps both memory and work in proportion.
        if known is None or sum(part.num_rows for part in pending) >= known.num_rows:
            known, pending = _added_up(pa.concat_tables([*([known] if known else []), *pending]), keys), []
    if known is None:
        known = _signed(manifests.entries_of(store, []), keys)
    known = _added_up(pa.concat_tables([known, *pending]), keys)
    return known.filter(pc.greater(known.column("file_count"), 0))


def _signed(entries: pa.Table, keys: Sequence[str]) -> pa.Table:
    sign = pc.cast(pc.if_else(pc.equal(entries.column("kind"), 0), 1, -1), pa.int64())
    if "bucket" not in keys:  # what waits for a bucket is in no partition that can be read
        real = pc.greater_equal(entries.column("bucket"), 0)
        entries, sign = entries.filter(real), sign.filter(real)
    columns = {name: entries.column(name) for name in keys}
    columns["record_count"] = pc.multiply(entries.column("row_count"), sign)
    columns["file_size_in_bytes"] = pc.multiply(entries.column("file_size"), sign)
    columns["file_count"] = sign
    columns[_NEWEST] = entries.column("creation_time_ms")
    return pa.table(columns)


def _added_up(part: pa.Table, keys: Sequence[str]) -> pa.Table:
    added = part.group_by(list(keys)).aggregate([*((name, "sum") for name in _SUMS), (_NEWEST, "max")])
    names = {**{f"{name}_sum": name for name in _SUMS}, f"{_NEWEST}_max": _NEWEST}
    return added.rename_columns([names.get(name, name) for name in added.column_names]).select([*keys, *_SUMS, _NEWEST])


class Buckets(View):
    """One row a bucket with files, those that wait for a bucket (-2) too."""

    def schema(self, store: TableStore) -> TableSchema:
        """The same for every table."""
        return BUCKETS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once: one row a bucket. Raises CorruptFile."""
        if version.snapshot is None:
            return
        found = totals(version.store, version.snapshot, ["partition", "bucket"])
        texts = partition_texts(version.store, found.column("partition"))
        yield _dated(found.set_column(0, "partition", texts)).sort_by(
            [("partition", "ascending"), ("bucket", "ascending")]
        )


class Partitions(View):
    """One row a partition with files (one row for a table without partitions)."""

    def schema(self, store: TableStore) -> TableSchema:
        """The same for every table; what only catalog servers know is null."""
        return PARTITIONS

    def tables(self, version: Version, wanted: Wanted) -> Iterator[pa.Table]:
        """All at once: one row a partition. Raises CorruptFile."""
        if version.snapshot is None:
            return
        found = totals(version.store, version.snapshot, ["partition"])
        dated = _dated(found.set_column(0, "partition", _specs(version.store, one_array(found.column("partition")))))
        for name in PARTITIONS.field_names[len(dated.column_names) :]:
            dated = dated.append_column(name, pa.nulls(dated.num_rows, PARTITIONS.arrow_schema.field(name).type))
        yield dated.sort_by("partition")


def _specs(store: TableStore, partitions: pa.Array) -> pa.Array:
    """Partitions as "dt=2024-01-01/h=3", values unescaped; nulls and blanks have the default name."""
    types = store.schema.partition_types
    if not types:
        return pa.repeat(pa.scalar(""), len(partitions))
    pieces = []
    default = store.options.partition_default_name
    for name, kind, column in zip(store.schema.partition_keys, types, decode_rows(partitions, types), strict=True):
        text = pc.fill_null(cast_text(column, kind), "")
        shown = pc.if_else(pc.equal(pc.utf8_trim_whitespace(text), ""), default, text)
        pieces.append(pc.binary_join_element_wise(f"{name}=", shown, ""))
    return pc.binary_join_element_wise(*pieces, "/")


def _dated(found: pa.Table) -> pa.Table:
    place = found.column_names.index(_NEWEST)
    return found.set_column(place, _NEWEST, pc.cast(found.column(_NEWEST), pa.timestamp("ms")))


__all__ = ["Buckets", "Partitions", "totals"]
