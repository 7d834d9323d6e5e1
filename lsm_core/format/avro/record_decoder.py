"""Decodes Avro records with fastavro, and turns its plain numbers and bytes into Arrow columns of the types that they stand for."""

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
_FEW = 4096
"""Records of one call that are worth keeping pandas unloaded for; of more, Arrow itself makes columns up to three times as fast."""


class RecordDecoder:
    """Decodes chosen columns of decompressed blocks; the other columns are skipped in compiled code."""

    def __init__(
        self, fields: Mapping[str, AvroField], columns: Sequence[str], path: str, *, in_union: bool = False
    ) -> None:
        """``fields`` are all of the file in order, ``columns`` those that are wanted; ``in_union``: see `schema.record_of`."""
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
        # A record of one field has that field's bytes: how a union at the root becomes a record.
        return in_record(["null", record]) if self._in_union else record

    def records(self, plain: bytes, rows: int) -> Any:
        """An iterator over the records of a block, to be read with :meth:`take`: what it raises tells of a damaged file."""
        frame = self._prefix + varint(rows) + varint(len(plain)) + plain + _SYNC
        return fastavro.reader(io.BytesIO(frame), self._reader_schema)

    def take(self, records: Any, count: int) -> list[Any]:
        """At most ``count`` more records, as fastavro's objects; :meth:`batch` makes columns of them."""
        try:
            return list(islice(records, count))
        except Exception as error:  # fastavro raises whatever its parser met: IndexError, struct.error, EOFError ...
            raise CorruptFile(self._path, f"an Avro record is broken: {type(error).__name__}: {error}") from error

    def batch(self, records: list[Any]) -> pa.RecordBatch:
        """Columns of ``records``, in the order asked for."""
        made = arrow_array if len(records) <= _FEW else pa.array
        try:
            if self._in_union:
                (raw,) = made(records, pa.struct([pa.field("entry", self._raw)])).flatten()
                if raw.null_count:
                    raise CorruptFile(self._path, "an Avro record is null")
            else:
                raw = made(records, self._raw)
            pairs = zip(raw.flatten(), self._fields, strict=True)
            columns = [_converted(child, field.arrow, self._path) for child, field in pairs]
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise CorruptFile(self._path, f"an Avro record is broken: {error}") from error
        if not columns:
            return pa.RecordBatch.from_struct_array(raw)
        schema = pa.schema([pa.field(n, f.arrow, f.nullable) for n, f in zip(self._names, self._fields, strict=True)])
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_record(schema: Any) -> dict[str, Any]:
    """The schema of a record whose one field ``entry`` is of type ``schema``: its values have the same bytes."""
    return {"type": "record", "name": "root", "fields": [{"name": "entry", "type": schema}]}


def _converted(array: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    """Fastavro's plain numbers and bytes as values of ``wanted``, at every depth. Raises :class:`CorruptFile` naming ``path``."""
    if array.type.equals(wanted):
        return array
    if pa.types.is_decimal(wanted):
        return _decimals(array, wanted, path)
    if pa.types.is_struct(wanted):
        children = [_converted(child, wanted.field(i).type, path) for i, child in enumerate(array.flatten())]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(
            children, fields=[wanted.field(i) for i in range(wanted.num_fields)], mask=mask
        )
    if pa.types.is_map(wanted):
        entries = array.values
        keys, items = entries.field(0), entries.field(1)
        if keys.null_count:
            raise CorruptFile(path, "the key of a map is null")
        mask = array.is_null() if array.null_count else None
        return pa.MapArray.from_arrays(
            array.offsets,
            _converted(keys, wanted.key_type, path),
            _converted(items, wanted.item_type, path),
            wanted,
            mask=mask,
        )
    if pa.types.is_list(wanted):
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(
            array.offsets, _converted(array.values, wanted.value_type, path), wanted, mask=mask
        )
    return array.view(wanted)


def _decimals(array: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    """Big-endian two's complement of 1 to 16 bytes as decimals."""
    count = len(array)
    valid = np.ones(count, bool) if not array.null_count else numpy_array(array.is_valid())
    offsets = value_offsets(array)
    lengths = np.where(valid, np.diff(offsets), 0)
    if (valid & ((lengths < 1) | (lengths > _DECIMAL_BYTES))).any():
        raise CorruptFile(path, "a decimal has no or over 16 bytes")
    little = limbs_from_big_endian(value_bytes(array), offsets[:-1], lengths)
    validity = arrow_array(valid).buffers()[1] if array.null_count else None
    found = pa.Array.from_buffers(wanted, count, [validity, pa.py_buffer(little)])
    found.validate(full=True)
    return found


__all__ = ["RecordDecoder", "in_record"]
