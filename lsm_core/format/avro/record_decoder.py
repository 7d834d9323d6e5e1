"""Decoding of Avro records with fastavro, and conversion of its plain numbers and bytes to Arrow columns."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, limbs_from_big_endian, numpy_array, value_bytes, value_offsets
from lsm_core.errors import CorruptFile
from lsm_core.format.avro.avro_schema import AvroField
from lsm_core.format.avro.container import SYNC_BYTES, header, varint

_SYNC = bytes(SYNC_BYTES)
_DECIMAL_BYTES = 16
_MAX_PURE_RECORDS = 4096
"""Largest number of records that are converted without loading pandas; for more, Arrow itself is up to three times as
fast.
"""


class RecordDecoder:
    """Decoder for some columns of decompressed blocks; other columns are skipped in compiled code."""

    def __init__(
        self, fields: Mapping[str, AvroField], columns: Sequence[str], path: str, *, in_union: bool = False
    ) -> None:
        """Prepare the decoder.

        Args:
            fields: all fields of the file, in order.
            columns: columns to decode.
            path: path of the file, for messages.
            in_union: whether the root is a union; see `avro_schema.record_of`.
        """
        self._path = path
        self._names = list(columns)
        self._fields = [fields[name] for name in columns]
        positions = {name: f"f{i}" for i, name in enumerate(fields)}
        stored = [(positions[name], field) for name, field in fields.items()]
        wanted = [(positions[name], fields[name]) for name in columns]
        self._in_union = in_union
        self._prefix = header(self._root(stored), "null", _SYNC)
        self._reader_schema = None if len(wanted) == len(stored) else self._root(wanted)
        self._raw = pa.struct([pa.field(name, field.raw) for name, field in wanted])

    def _root(self, members: Sequence[tuple[str, AvroField]]) -> dict[str, Any]:
        record = {"type": "record", "name": "r", "fields": [{"name": n, "type": f.avro} for n, f in members]}
        # A record with one field has the bytes of that field, so a union at the root can become a record.
        return in_record(["null", record]) if self._in_union else record

    def records(self, plain: bytes, rows: int) -> Any:
        """Return an iterator over the records of a block, for :meth:`take`, which converts its errors."""
        frame = self._prefix + varint(rows) + varint(len(plain)) + plain + _SYNC
        return fastavro.reader(io.BytesIO(frame), self._reader_schema)

    def take(self, records: Any, count: int) -> list[Any]:
        """Return at most ``count`` more records as fastavro's objects, for :meth:`batch`."""
        try:
            return list(islice(records, count))
        except (
            Exception
        ) as error:  # fastavro raises various errors of its parser: IndexError, struct.error, EOFError ...
            raise CorruptFile(self._path, f"an Avro record is broken: {type(error).__name__}: {error}") from error

    def batch(self, records: list[Any]) -> pa.RecordBatch:
        """Return records as columns, in the order of the constructor's ``columns``."""
        to_array = arrow_array if len(records) <= _MAX_PURE_RECORDS else pa.array
        try:
            if self._in_union:
                (raw,) = to_array(records, pa.struct([pa.field("entry", self._raw)])).flatten()
                if raw.null_count:
                    raise CorruptFile(self._path, "an Avro record is null")
            else:
                raw = to_array(records, self._raw)
            pairs = zip(raw.flatten(), self._fields, strict=True)
            columns = [_convert(child, field.arrow, self._path) for child, field in pairs]
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise CorruptFile(self._path, f"an Avro record is broken: {error}") from error
        if not columns:
            return pa.RecordBatch.from_struct_array(raw)
        schema = pa.schema([pa.field(n, f.arrow, f.nullable) for n, f in zip(self._names, self._fields, strict=True)])
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_record(schema: Any) -> dict[str, Any]:
    """Return the schema of a record with one field ``entry`` of type ``schema``, whose values have the same bytes."""
    return {"type": "record", "name": "root", "fields": [{"name": "entry", "type": schema}]}


def _convert(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Convert fastavro's plain numbers and bytes to ``target``, at every depth.

    Raises:
        CorruptFile: a value is invalid; the message names ``path``.
    """
    if array.type.equals(target):
        return array
    if pa.types.is_decimal(target):
        return _decimals(array, target, path)
    if pa.types.is_struct(target):
        children = [_convert(child, target.field(i).type, path) for i, child in enumerate(array.flatten())]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(
            children, fields=[target.field(i) for i in range(target.num_fields)], mask=mask
        )
    if pa.types.is_map(target):
        entries = array.values
        keys, items = entries.field(0), entries.field(1)
        if keys.null_count:
            raise CorruptFile(path, "the key of a map is null")
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(
            array.offsets,
            _convert(keys, target.key_type, path),
            _convert(items, target.item_type, path),
            target,
            mask=mask,
        )
    if pa.types.is_list(target):
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(
            array.offsets, _convert(array.values, target.value_type, path), target, mask=mask
        )
    return array.view(target)


def _decimals(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return decimals from big-endian two's complement of 1 to 16 bytes."""
    count = len(array)
    valid = np.ones(count, bool) if not array.null_count else numpy_array(array.is_valid())
    offsets = value_offsets(array)
    lengths = np.where(valid, np.diff(offsets), 0)
    if (valid & ((lengths < 1) | (lengths > _DECIMAL_BYTES))).any():
        raise CorruptFile(path, "a decimal has no or over 16 bytes")
    little = limbs_from_big_endian(value_bytes(array), offsets[:-1], lengths)
    validity = arrow_array(valid).buffers()[1] if array.null_count else None
    decimals = pa.Array.from_buffers(target, count, [validity, pa.py_buffer(little)])
    decimals.validate(full=True)
    return decimals
