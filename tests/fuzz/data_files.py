"""Well-formed data files with wrong content: columns, types, nulls, order, row counts, and huge decoded pages."""

from __future__ import annotations

import io
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from tests.fuzz import hostile, structured

_BOMB = 1 << 29
"""Decoded bytes of the largest bomb; reading a bomb takes one and a half times its size, as a batch is kept whole."""


def change_data(random: Random, name: str, data: bytes, other: bytes) -> bytes:
    """Return a damaged data file: random byte damage, or a valid file with wrong or huge content."""
    if random.random() < 0.6:
        return hostile.damage(random, data, other)
    kind = name.rpartition(".")[2]
    if kind == "avro":
        return structured.change_avro(random, data)
    try:
        table = pq.read_table(io.BytesIO(data)) if kind == "parquet" else orc.read_table(io.BytesIO(data))
        changed = random.choice(_LIES)(random, table)
        return _written(random, changed, kind)
    except (pa.ArrowException, ValueError, TypeError, KeyError, OSError, NotImplementedError):
        return hostile.damage(random, data, other)


def _written(random: Random, table: pa.Table, kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "orc":
        orc.write_table(table, out, compression="zstd")
    else:
        pq.write_table(
            table, out, compression=random.choice(["zstd", "gzip", "snappy", "none"]), use_dictionary=random.random() < 0.5,
            row_group_size=random.choice([1, 100, 1 << 20]), store_schema=random.random() < 0.5,
        )  # fmt: skip
    return out.getvalue()


def _column(random: Random, table: pa.Table) -> int:
    return random.randrange(table.num_columns)


def _drop(random: Random, table: pa.Table) -> pa.Table:
    return table.remove_column(_column(random, table))


def _rename(random: Random, table: pa.Table) -> pa.Table:
    names = list(table.column_names)
    names[_column(random, table)] = random.choice([random.choice(names), "other", "", "_VALUE_KIND", "a.b"])
    return table.rename_columns(names)


def _nulls(random: Random, table: pa.Table) -> pa.Table:
    at = _column(random, table)
    field = table.schema.field(at)
    return table.set_column(at, pa.field(field.name, field.type), pa.nulls(table.num_rows, field.type))


def _retype(random: Random, table: pa.Table) -> pa.Table:
    at, count = _column(random, table), table.num_rows
    values: list[pa.Array] = [
        pa.array(["x"] * count), pa.array([2**62] * count), pa.array([1.5] * count), pa.array([b"\xff\xfe"] * count),
        pa.array([[1, None]] * count), pa.array([{"a": 1}] * count), pa.array([True] * count), pa.array([None] * count, pa.int32()),
        pa.array([77] * count, pa.int8()), pa.array(["x"] * count).dictionary_encode(), pa.array([2**63 - 1] * count, pa.timestamp("us")),
        pa.array([-(2**63)] * count, pa.timestamp("ns", "America/New_York")), pa.array([200] * count, pa.uint8()),
        pa.array([b"\xff"] * count, pa.binary(1)), pa.array([10**30] * count, pa.decimal128(38, 0)), pa.array([1] * count, pa.date32()),
        pa.array(["x"] * count, pa.large_string()),
    ]  # fmt: skip
    return table.set_column(at, table.column_names[at], random.choice(values))


def _shuffle(random: Random, table: pa.Table) -> pa.Table:
    order = list(range(table.num_rows))
    random.shuffle(order)
    return table.take(order)


def _rows(random: Random, table: pa.Table) -> pa.Table:
    return random.choice([table.slice(0, 0), table.slice(1), pa.concat_tables([table] * 3), table.slice(0, 1)])


def _no_columns(random: Random, table: pa.Table) -> pa.Table:
    return table.select([table.column_names[0]])


def _invalid_text(random: Random, table: pa.Table) -> pa.Table:
    """Replace a text column by bytes that are not UTF-8."""
    texts = [i for i, kind in enumerate(table.schema.types) if pa.types.is_string(kind)]
    if not texts:
        return _retype(random, table)
    at = random.choice(texts)
    raw = pa.array([b"\xff\xfe\xed\xa0\x80"] * table.num_rows, pa.binary())
    broken = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    return table.set_column(at, table.schema.field(at), broken)


def _bomb(random: Random, table: pa.Table) -> pa.Table:
    """Replace a text column by texts that compress ten thousandfold; the number of rows stays."""
    texts = [i for i, kind in enumerate(table.schema.types) if pa.types.is_string(kind) or pa.types.is_binary(kind)]
    if not texts or not table.num_rows:
        return _retype(random, table)
    at = random.choice(texts)
    each = max(1, _BOMB // random.choice([1, 8, 64]) // table.num_rows)
    first = pa.array(["a" * each])
    chunks = [first.cast(table.schema.field(at).type)] * table.num_rows
    return table.set_column(at, table.schema.field(at), pa.chunked_array(chunks))


_LIES: tuple[Callable[[Random, pa.Table], pa.Table], ...] = (
    _drop, _rename, _nulls, _nulls, _retype, _retype, _retype, _shuffle, _rows, _no_columns, _invalid_text, _bomb,
)  # fmt: skip
