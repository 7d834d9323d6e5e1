"""Expected rows and checksum of each demo table at each tick, from the scenario's reference."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core import Table
from lsm_core.format.manifest import table_to_entries
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.live_files import bucket_groups
from lsm_core.read import read_bucket_merged

_REFERENCE: Final = Path(__file__).parent / "reference"


@dataclass(frozen=True)
class TableChecksum:
    """Number of rows and checksum of a whole table.

    Attributes:
        rows: number of rows.
        checksum: checksum of all rows in any order, 16 hexadecimal digits.
    """

    rows: int
    checksum: str


def expected_checksum(table: str, tick: str) -> TableChecksum:
    """Return the expected rows and checksum of a table, from the scenario's expected.json.

    Args:
        table: name of the table.
        tick: name of the tick, `T0` .. `T3`.
    """
    entry = json.loads((_REFERENCE / "expected.json").read_text())["ticks"][tick][table]
    return TableChecksum(int(entry["rows"]), str(entry["checksum"]))


def expected_checksum_after_expiry() -> TableChecksum:
    """Return the expected rows and checksum of `weather` after the expiry of its first three months."""
    entry = json.loads((_REFERENCE / "expected.json").read_text())["weather_after_partition_expiry"]
    return TableChecksum(int(entry["rows"]), str(entry["checksum"]))


@dataclass(frozen=True)
class SourceErrors:
    """Errors in the source of `weather`, which maintenance neither adds nor removes.

    Attributes:
        impossible_winds: number of rows with a wind above 250 mph.
        repeated_hours: number of rows beyond the first row of the same station and hour.
    """

    impossible_winds: int
    repeated_hours: int


SOURCE_ERRORS: Final = {
    "T0": SourceErrors(1, 0),
    "T1": SourceErrors(1, 0),
    "T2": SourceErrors(1, 144),
    "T3": SourceErrors(1, 144),
    "T4": SourceErrors(0, 144),
}
"""Errors by tick; T4 is after the expiry of the first months."""


def count_source_errors(weather: Table) -> SourceErrors:
    """Return the current errors of `weather`."""
    observations = weather.to_arrow(columns=["origin", "time_hour", "wind_speed"])
    winds = pc.sum(pc.greater(observations.column("wind_speed"), 250)).as_py() or 0
    hours = observations.group_by(["origin", "time_hour"]).aggregate([])
    return SourceErrors(int(winds), observations.num_rows - hours.num_rows)


def _text(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(field.type):
        column = column.cast(pa.timestamp("ms")).cast(pa.int64())
    elif pa.types.is_floating(field.type):
        # -0.0 counts as 0.0; the 64 bits are shown as a signed integer.
        plain = pc.add(column.combine_chunks(), 0.0)
        column = pa.Array.from_buffers(pa.int64(), len(plain), plain.buffers(), plain.null_count, plain.offset)
    elif pa.types.is_list(field.type):
        column = _sorted_texts(column.combine_chunks())
    return column.cast(pa.string()).fill_null("\\N")


def _sorted_texts(lists: pa.ListArray) -> pa.Array:
    """Return each list as text: its elements sorted by their bytes and joined with commas.

    The order of elements in a list does not count.
    """
    elements, owner = lists.flatten(), pc.list_parent_indices(lists)
    order = pc.sort_indices(
        pa.table([owner, elements], ["owner", "text"]), [("owner", "ascending"), ("text", "ascending")]
    )
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = pa.array(np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))).astype(np.int32))
    texts = pc.binary_join(pa.ListArray.from_arrays(offsets, elements.take(order)), ",")
    return pc.if_else(lists.is_valid(), texts, pa.scalar(None, pa.string()))


def hash_rows(table: pa.Table) -> str:
    """Return the checksum of a table as 16 hexadecimal digits.

    It is the sum modulo 2^64 of the first 8 bytes of the md5 of each row's canonical line. The scenario defines this
    order-independent number, which any engine can recompute.
    """
    lines = pc.binary_join_element_wise(*[_text(f, table[f.name]) for f in table.schema], "|").cast(pa.binary())
    digests = b"".join(hashlib.md5(line, usedforsecurity=False).digest() for line in lines.to_pylist())
    total = np.frombuffer(digests, ">u8")[::2].sum(dtype=np.uint64)  # wraps around
    return f"{total:016x}"


EMPTY: Final = TableChecksum(0, "0" * 16)
"""Answer of a first-row table before the first compaction."""


def compacted_checksum_of(table: Table, snapshot_id: int | None = None) -> TableChecksum:
    """Return rows and checksum of a first-row table as if a snapshot were fully compacted.

    Args:
        table: the table.
        snapshot_id: the snapshot, or None for the newest.
    """
    store = table.store
    latest = snapshots.latest(store) if snapshot_id is None else snapshots.read(store, snapshot_id)
    if latest is None:
        return EMPTY
    batches = [
        batch
        for partition, bucket, _, entries in bucket_groups(manifests.live_entries(store, latest))
        for batch in read_bucket_merged(store, partition, bucket, [e.file for e in table_to_entries(entries)])
    ]
    return checksum_of(pa.Table.from_batches(batches, schema=store.schema.arrow_schema))


def checksum_of(table: pa.Table) -> TableChecksum:
    """Return the number of rows and the checksum of a table.

    Args:
        table: all rows of the table.

    Returns:
        The number of rows and their checksum.
    """
    return TableChecksum(table.num_rows, hash_rows(table))
