"""Parser and check of Parquet footers, and the bounds, null counts and decoded sizes of a file's columns in them.

Arrow's accessors of a footer's columns and statistics end the process on some invalid footers, even after one flipped
bit in a type, so they are never used. This module parses the same Thrift, bounded by the footer's bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.formats import thrift
from lsm_core.files.formats.thrift import ChunkFields, RowGroupFields, Struct, row_groups
from lsm_core.format.stats import ColumnStats

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY = range(8)
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY, DELTA_BYTE_ARRAY = 0, 2, 8, 7
_ENCODING_NUMBERS: Final = frozenset(range(10))
CODED: Final = frozenset({PLAIN_DICTIONARY, RLE_DICTIONARY})
WIDTHS: Final = {BOOLEAN: 1, INT32: 4, INT64: 8, INT96: 12, FLOAT: 4, DOUBLE: 8}
FLOATS: Final = {FLOAT: "<f", DOUBLE: "<d"}
"""Form of stored floating point numbers for :mod:`struct`."""
_CODECS: Final = 8
_REQUIRED, _OPTIONAL, _REPEATED = range(3)
_MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"
TAIL_BYTES: Final = 8
_FIRST_READ: Final = 64 * 1024
_MOST_FOOTER: Final = 1 << 26
_MOST_COLUMNS: Final = 50_000
_MOST_DEPTH: Final = 64
_OFFSET_BYTES: Final = 4.0
_MOST_KEPT: Final = 16
_MOST_KEPT_BYTES: Final = 1 << 16
"""Largest bytes of a schema, or of column orders, that is cached to recognise it again."""

# Field ids of the structs in parquet.thrift.
_VERSION, _SCHEMA, _ROWS, _GROUPS, _ORDERS, _ENCRYPTION = 1, 2, 3, 4, 7, 8
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN = 1, 2, 3, 4, 5
_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_OTHER_FILE, _CHUNK, _CRYPTO, _CRYPTED = 1, 3, 8, 9
_ENCODINGS, _CODEC, _VALUES, _PLAIN_BYTES, _STORED_BYTES, _DATA_AT, _DICTIONARY_AT, _STATISTICS = (
    2,
    4,
    5,
    6,
    7,
    9,
    11,
    12,
)
_NULLS, _HIGH, _LOW = 3, 5, 6
_MISSING_FIELD: Final = (0, None)
_REQUIRED_FIELDS: Final = (
    (_TYPE, thrift.I32),
    (_ENCODINGS, thrift.LIST),
    (_CODEC, thrift.I32),
    (_VALUES, thrift.I64),
    (_PLAIN_BYTES, thrift.I64),
    (_STORED_BYTES, thrift.I64),
    (_DATA_AT, thrift.I64),
)
"""Fields that every column chunk must have, with their types in Thrift."""
_BY_TYPE: Final = 1
"""Column order that the column's type defines; bounds in any other order are not usable."""


class Leaf(NamedTuple):
    """Column in Parquet's sense: one leaf of the schema.

    Attributes:
        path: names from the top-level column down.
        physical: number of the stored type.
        length: bytes of a FIXED_LEN_BYTE_ARRAY, else 0.
        repeats: largest repetition level; 0 if every row has one value or null.
        optional: largest definition level.
        ordered: whether bounds are in the order of the type.
    """

    path: tuple[str, ...]
    physical: int
    length: int
    repeats: int
    optional: int
    ordered: bool

    @property
    def name(self) -> str:
        """Name of the top-level column."""
        return self.path[0]


class Chunk(NamedTuple):
    """Values of one leaf in one row group.

    Attributes:
        codec: number of the codec.
        encodings: numbers of the encodings.
        values: number of values, nulls and empty lists included.
        plain_bytes: bytes of the chunk's pages before compression.
        start: position of the chunk's first page in the file.
        stored_bytes: bytes of the chunk's pages in the file.
        nulls: number of nulls; None if unknown.
        low: smallest value as stored; None if the footer does not have both bounds.
        high: largest value as stored; None if the footer does not have both bounds.
    """

    codec: int
    encodings: Sequence[int]
    values: int
    plain_bytes: int
    start: int
    stored_bytes: int
    nulls: int | None
    low: bytes | None
    high: bytes | None

    @property
    def coded(self) -> bool:
        """Whether some pages of the chunk contain indexes into a dictionary instead of values."""
        return not CODED.isdisjoint(self.encodings)


class Group(NamedTuple):
    """One row group.

    Attributes:
        rows: number of rows.
        plain_bytes: bytes of the group's pages before compression.
        chunks: one chunk for each leaf, in the order of the leaves.
    """

    rows: int
    plain_bytes: int
    chunks: list[Chunk]


class Footer(NamedTuple):
    """Checked content of a footer: types are known, sizes fit the file, counts match each other.

    Attributes:
        rows: rows of the file.
        leaves: leaves of the schema.
        groups: row groups.
        singles: by column name, the index of each leaf that is a top-level column outside of lists.
    """

    rows: int
    leaves: Sequence[Leaf]
    groups: list[Group]
    singles: Mapping[str, int]

    def single(self, name: str) -> int | None:
        """Return the index of the leaf that is the top-level column ``name``; None for nested and missing columns."""
        return self.singles.get(name)


def stored_footer(source: Any, path: str) -> bytes:
    """Read the footer of an open file with one read, or two if it is long.

    Args:
        source: the open file.
        path: path of the file, for errors.

    Raises:
        CorruptFile: the file does not end as Parquet.
        UnsupportedFeature: the footer is encrypted.
    """
    size = source.size()
    first = min(size, _FIRST_READ)
    tail = bytes(source.read_at(first, size - first))
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise UnsupportedFeature(f"encrypted Parquet files ({path})")
    if size < 2 * len(_MAGIC) + 4 or len(tail) < first or tail[-4:] != _MAGIC:
        raise CorruptFile(path, "not a readable Parquet file: it does not end like one")
    length = int.from_bytes(tail[-TAIL_BYTES:-4], "little")
    if length > min(size - len(_MAGIC) - TAIL_BYTES, _MOST_FOOTER):
        raise CorruptFile(path, f"not a readable Parquet file: it claims a footer of {length} bytes")
    if length + TAIL_BYTES <= first:
        return tail[-TAIL_BYTES - length : -TAIL_BYTES]
    return bytes(source.read_at(length, size - TAIL_BYTES - length))


def parse_footer(data: bytes, path: str, size: int) -> Footer:
    """Parse and check a footer.

    Args:
        data: the footer.
        path: path of the file, for errors.
        size: bytes of the file, including footer and end.

    Raises:
        CorruptFile: the footer is not valid.
        UnsupportedFeature: a column is encrypted.

    Source: parquet.thrift.
    """
    try:
        fields, schema, orders = _fields(data)
        if _ENCRYPTION in fields:
            raise UnsupportedFeature(f"encrypted Parquet files ({path})")
        _field(fields, _VERSION, thrift.I32)
        rows = _count(fields, _ROWS)
        is_small = len(schema) + len(orders) <= _MOST_KEPT_BYTES
        leaves, singles = _leaves(schema, orders) if is_small else _leaves.__wrapped__(schema, orders)
        end = size - TAIL_BYTES - len(data)
        groups = [_group(group, leaves, end, path) for group in _structs(fields, _GROUPS)]
        if sum(group.rows for group in groups) != rows:
            raise ValueError(f"row groups of {sum(group.rows for group in groups)} rows where {rows} are declared")
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"not a readable Parquet file: its footer is broken ({error})") from error
    return Footer(rows, leaves, groups, singles)


class _KnownLists:
    """Cache of lists that the footers of a table repeat byte for byte.

    Schemas and column orders are such lists; they are then not parsed again.
    """

    def __init__(self) -> None:
        self._known: tuple[bytes, ...] = ()

    def at(self, data: bytes, at: int) -> bytes | None:
        """Return the known list that the bytes ``data`` contain at position ``at``, or None.

        The bytes of a list define its end, so equal bytes are the whole list.
        """
        return next((known for known in self._known if data.startswith(known, at)), None)

    def keep(self, list_bytes: bytes) -> None:
        """Add a list to the cache, and drop the oldest lists."""
        if len(list_bytes) <= _MOST_KEPT_BYTES:
            self._known = (list_bytes, *self._known[: _MOST_KEPT - 1])


_schemas, _column_orders = _KnownLists(), _KnownLists()


def _fields(data: bytes) -> tuple[Struct, bytes, bytes]:
    """Return the footer's fields, and the bytes of the lists of schema elements and of column orders.

    The bytes of a list are empty if the footer does not have the list.

    If an earlier footer had the same schema, the row groups are parsed by regular expressions. Compiling them does not
    pay off for a single footer.
    """
    reader = thrift.Reader(data)
    fields: Struct = {}
    lists = {_SCHEMA: b"", _ORDERS: b""}
    number, is_known_schema = 0, False
    while True:
        number, kind = reader.field(number)
        if kind == thrift.STOP:
            return fields, lists[_SCHEMA], lists[_ORDERS]
        if number in lists and kind == thrift.LIST:
            start, cache = reader.at, _schemas if number == _SCHEMA else _column_orders
            list_bytes = cache.at(data, start)
            if list_bytes is None:
                reader.value(kind)
                list_bytes = data[start : reader.at]
                cache.keep(list_bytes)
            elif number == _SCHEMA:
                is_known_schema = True
            reader.at = start + len(list_bytes)
            lists[number] = list_bytes
        elif number in lists:
            reader.value(kind)
            lists[number] = b""
        elif number == _GROUPS and kind == thrift.LIST and is_known_schema:
            groups, reader.at = row_groups(data, reader.at)
            fields[number] = kind, groups
        else:
            fields[number] = kind, reader.value(kind)


def _field(struct: Struct, number: int, kind: int) -> Any:
    """Return a required field of type ``kind``; a field of any other type counts as missing, as in Thrift readers.

    Args:
        struct: the parsed struct.
        number: id of the field.
        kind: required Thrift type of the field.
    """
    field = struct.get(number)
    if field is None or field[0] != kind:
        raise ValueError(f"field {number} is missing")
    return field[1]


def _count(struct: Struct, number: int, kind: int = thrift.I64) -> int:
    value = int(_field(struct, number, kind))
    if value < 0:
        raise ValueError(f"the count {value}")
    return value


def _structs(struct: Struct, number: int) -> list[Any]:
    """Return the structs of the list field ``number`` of a struct, parsed as Thrift or by patterns."""
    structs: list[Any] = _field(struct, number, thrift.LIST)
    if not all(isinstance(item, dict | RowGroupFields) for item in structs):
        raise ValueError(f"field {number} is not a list of structs")
    return structs


@functools.lru_cache(maxsize=_MOST_KEPT)
def _leaves(schema: bytes, orders: bytes) -> tuple[Sequence[Leaf], Mapping[str, int]]:
    """Return the leaves of a schema, and by name the index of each leaf that is a top-level column outside of lists.

    ``schema`` and ``orders`` are the bytes of the footer's lists of schema elements and of column orders. The schema
    elements are a tree in depth-first order.

    Raises:
        ValueError: the schema is not valid.
    """
    elements = _structs({_SCHEMA: (thrift.LIST, thrift.Reader(schema).value(thrift.LIST))} if schema else {}, _SCHEMA)
    column_orders = thrift.Reader(orders).value(thrift.LIST) if orders else []
    ordered = [isinstance(order_struct, dict) and _BY_TYPE in order_struct for order_struct in column_orders]
    if not 0 < len(elements) <= _MOST_COLUMNS:
        raise ValueError(f"a schema of {len(elements)} elements")
    leaves: list[Leaf] = []
    path: list[str] = []
    levels: list[tuple[int, int]] = [(0, 0)]
    remaining = [_count(elements[0], _CHILDREN, thrift.I32)]
    for element in elements[1:]:
        while remaining and remaining[-1] == 0:
            remaining.pop()
            levels.pop()
            path = path[:-1]
        if not remaining:
            raise ValueError("more schema elements than the schema has places for")
        remaining[-1] -= 1
        repetition = _field(element, _REPETITION, thrift.I32)
        if repetition not in (_REQUIRED, _OPTIONAL, _REPEATED):
            raise ValueError(f"repetition {repetition}")
        repeats, optional = levels[-1]
        levels_of_element = (repeats + (repetition == _REPEATED), optional + (repetition != _REQUIRED))
        name = _field(element, _NAME, thrift.BINARY).decode()
        kind, physical = element.get(_TYPE, (0, 0))
        if kind == thrift.I32:
            length = element.get(_LENGTH, (0, 0))[1] if physical == FIXED_LEN_BYTE_ARRAY else 0
            if not BOOLEAN <= physical <= FIXED_LEN_BYTE_ARRAY or (physical == FIXED_LEN_BYTE_ARRAY and length <= 0):
                raise ValueError(f"column '{name}' of type {physical} of {length} bytes")
            order = len(leaves) < len(ordered) and ordered[len(leaves)]
            leaves.append(Leaf((*path, name), physical, length, *levels_of_element, order))
            continue
        path.append(name)
        levels.append(levels_of_element)
        remaining.append(_count(element, _CHILDREN, thrift.I32))
        if remaining[-1] == 0:
            raise ValueError("a group without columns")
        if len(remaining) > _MOST_DEPTH:
            raise ValueError("columns nested too deeply")
    if any(remaining):
        raise ValueError("fewer schema elements than the schema has places for")
    singles = {
        leaf.name: index
        for index, leaf in reversed(list(enumerate(leaves)))
        if len(leaf.path) == 1 and not leaf.repeats
    }
    return tuple(leaves), singles


def _group(group: RowGroupFields | Struct, leaves: Sequence[Leaf], end: int, path: str) -> Group:
    if isinstance(group, dict):
        columns = _structs(group, _GROUP_COLUMNS)
        group = RowGroupFields([*columns], _count(group, _GROUP_BYTES), _count(group, _GROUP_ROWS))
    rows = group.rows
    if min(rows, group.plain_bytes) < 0:
        raise ValueError(f"a row group of {rows} rows and {group.plain_bytes} bytes")
    if len(group.columns) != len(leaves):
        raise ValueError(f"a row group of {len(group.columns)} columns where there are {len(leaves)}")
    chunks = [
        _chunk(_chunk_fields(column, leaf, path) if isinstance(column, dict) else column, leaf, rows, end)
        for column, leaf in zip(group.columns, leaves, strict=True)
    ]
    return Group(rows, group.plain_bytes, chunks)


def _chunk_fields(column: Struct, leaf: Leaf, path: str) -> ChunkFields:
    """Return the fields of a column chunk that was parsed as Thrift.

    Args:
        column: the parsed ColumnChunk.
        leaf: the leaf of the schema that the chunk stores.
        path: path of the file, for messages.

    Raises:
        ValueError: a field is missing or of another type.
        UnsupportedFeature: the column is encrypted or in another file.
    """
    if _CRYPTO in column or _CRYPTED in column:
        raise UnsupportedFeature(f"encrypted Parquet columns ({path}, column '{leaf.name}')")
    if _OTHER_FILE in column:
        raise UnsupportedFeature(f"Parquet columns in files of their own ({path}, column '{leaf.name}')")
    kind, fields = column.get(_CHUNK, _MISSING_FIELD)
    if kind != thrift.STRUCT:
        raise ValueError(f"column '{leaf.name}' is not described")
    try:
        values_of_fields = [fields[number] for number, _ in _REQUIRED_FIELDS]
        encodings = tuple(values_of_fields[1][1])
        encodings_valid = _ENCODING_NUMBERS.issuperset(encodings)
    except (KeyError, TypeError) as error:
        raise ValueError(f"column '{leaf.name}' is not described") from error
    if not encodings_valid or any(
        kind != required_kind for (kind, _), (_, required_kind) in zip(values_of_fields, _REQUIRED_FIELDS, strict=True)
    ):
        raise ValueError(f"column '{leaf.name}' has invalid fields")
    kind, dictionary = fields.get(_DICTIONARY_AT, _MISSING_FIELD)
    physical, _, codec, values, plain, stored, start = (value for _, value in values_of_fields)
    dictionary = dictionary if kind == thrift.I64 else None
    chunk = ChunkFields(physical, encodings, codec, values, plain, stored, start, dictionary, None, None, None)
    kind, stats = fields.get(_STATISTICS, _MISSING_FIELD)
    if kind != thrift.STRUCT:
        return chunk
    (counted, nulls), (below, low), (above, high) = (
        stats.get(number, _MISSING_FIELD) for number in (_NULLS, _LOW, _HIGH)
    )
    has_bounds = below == above == thrift.BINARY
    return chunk._replace(
        nulls=nulls if counted == thrift.I64 else None,
        low=low if has_bounds else None,
        high=high if has_bounds else None,
    )


def _chunk(fields: ChunkFields, leaf: Leaf, rows: int, end: int) -> Chunk:
    """Validate the fields of one column chunk, and return them as a Chunk.

    Bounds in the deprecated fields, whose order is undefined, are ignored.

    Args:
        fields: fields of the chunk as stored.
        leaf: the leaf of the schema that the chunk stores.
        rows: number of rows of the row group.
        end: byte position of the footer, before which all pages end.
    """
    physical, encodings, codec, values, plain, stored, start, dictionary, nulls, low, high = fields
    if physical != leaf.physical:
        raise ValueError(f"column '{leaf.name}' is stored as another type than in the schema")
    if plain < 0 or stored < 0 or start < 0:
        raise ValueError(f"column '{leaf.name}' has invalid fields")
    if not 0 <= codec < _CODECS:
        raise ValueError(f"compression number {codec}")
    if values != rows and (values < rows or not leaf.repeats):
        raise ValueError(f"column '{leaf.name}' of {values} values for {rows} rows")
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    if values and not (len(_MAGIC) <= start and start + stored <= end):
        raise ValueError(f"column '{leaf.name}' outside of the file")
    if nulls is not None and not 0 <= nulls <= values:
        raise ValueError(f"column '{leaf.name}' of {nulls} nulls among {values} values")
    if low is None or high is None or not leaf.ordered:
        return Chunk(codec, encodings, values, plain, start, stored, nulls, None, None)
    width = leaf.length or WIDTHS.get(leaf.physical)
    if width is not None and not len(low) == len(high) == width:
        raise ValueError(f"column '{leaf.name}' with bounds of {len(low)} and {len(high)} bytes")
    return Chunk(codec, encodings, values, plain, start, stored, nulls, low, high)


def footer_values(footer: Footer, schema: pa.Schema) -> dict[str, ColumnStats]:
    """Return the bounds and null counts of top-level columns; nested columns are not included.

    Floating point columns have only null counts (footers leave NaN out), as have INT96 timestamps and binaries.

    Args:
        footer: parsed footer of the file.
        schema: Arrow schema of the file.

    Returns:
        Statistics by column.
    """
    by_name = {}
    for field in schema:
        leaf = footer.single(field.name)
        if leaf is not None:
            by_name[field.name] = _leaf_values(footer, leaf, field.type)
    return by_name


def group_bounds(footer: Footer, arrow: pa.Schema, name: str, path: str) -> tuple[pa.Array, pa.Array] | None:
    """Return the smallest and largest value of a top-level column in every row group.

    Args:
        footer: parsed footer of the file.
        arrow: Arrow schema of the file.
        name: name of the column.
        path: path of the file, for errors.

    Returns:
        (Smallest values, largest values) as arrays of the column's Arrow type. None if a row group has no bounds, or if
        bounds of this type are not in Java's order in footers.

    Raises:
        CorruptFile: bounds are not values of the type, or the lower one is larger.
    """
    leaf = footer.single(name)
    if leaf is None or not footer.groups or _without_bounds(arrow.field(name).type):
        return None
    stored = arrow.field(name).type
    physical = footer.leaves[leaf].physical
    sides: list[pa.Array] = []
    for side in ("low", "high"):
        raw = [getattr(group.chunks[leaf], side) for group in footer.groups]
        if any(value is None for value in raw):
            return None
        try:
            sides.append(pa.concat_arrays([_logical(stored_bound(value, physical, stored), stored) for value in raw]))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise CorruptFile(path, f"the bounds of column '{name}' are no {stored}: {error}") from error
    low, high = sides
    if not pc.all(pc.less_equal(low, high)).as_py():
        raise CorruptFile(path, f"the bounds of column '{name}' are the wrong way round")
    return low, high


def plain_sizes(footer: Footer, names: Iterable[str]) -> dict[str, float]:
    """Return the average decoded size of the values of columns without dictionary and without shared prefixes.

    Args:
        footer: parsed footer of the file.
        names: top-level columns.

    Returns:
        Bytes of a value by column; columns whose size the footer does not show are absent.
    """
    sizes: dict[str, float] = {}
    for name in names:
        leaf = footer.single(name)
        chunks = [] if leaf is None else [group.chunks[leaf] for group in footer.groups]
        if chunks and not any(chunk.coded or DELTA_BYTE_ARRAY in chunk.encodings for chunk in chunks):
            sizes[name] = sum(chunk.plain_bytes for chunk in chunks) / max(1, footer.rows) + _OFFSET_BYTES
    return sizes


def dictionary_texts(footer: Footer, names: Iterable[str]) -> list[str]:
    """Return the text columns of which all values are stored as a dictionary and indexes.

    Columns whose writer stopped using the dictionary midway are left out. They are recognised by their size: plain
    texts take at least four bytes each for their length, more than indexes.

    Args:
        footer: parsed footer of the file.
        names: text columns.
    """
    texts = []
    for name in names:
        leaf = footer.single(name)
        chunks = [] if leaf is None else [group.chunks[leaf] for group in footer.groups]
        if leaf is not None and all(
            chunk.coded and chunk.plain_bytes <= _OFFSET_BYTES * (chunk.values - (chunk.nulls or 0)) for chunk in chunks
        ):
            texts.append(name)
    return texts


def int96_columns(footer: Footer) -> set[str]:
    """Return the top-level columns with an INT96 leaf, which Arrow decodes as nanoseconds."""
    return {leaf.name for leaf in footer.leaves if leaf.physical == INT96}


def _leaf_values(footer: Footer, leaf: int, stored: pa.DataType) -> ColumnStats:
    """Return null count and bounds of a leaf over all row groups; unknown if a row group does not have them.

    Args:
        footer: the parsed footer.
        leaf: index of the leaf.
        stored: Arrow type of the column.
    """
    groups = [(group.rows, group.chunks[leaf]) for group in footer.groups if group.rows]
    counts = [chunk.nulls for _, chunk in groups]
    nulls = None if any(count is None for count in counts) else sum(count or 0 for count in counts)
    unknown = pa.nulls(1, stored)
    bounded = [chunk for _, chunk in groups if chunk.low is not None]
    missing = [chunk for rows, chunk in groups if chunk.low is None and chunk.nulls != rows]
    if not bounded or missing or _without_bounds(stored):
        return ColumnStats(unknown, unknown, nulls)
    physical = footer.leaves[leaf].physical
    low = min(stored_bound(chunk.low, physical, stored) for chunk in bounded)
    high = max(stored_bound(chunk.high, physical, stored) for chunk in bounded)
    return ColumnStats(_logical(low, stored), _logical(high, stored), nulls)


def _without_bounds(stored: pa.DataType) -> bool:
    wide = pa.types.is_timestamp(stored) and stored.unit == "ns"
    return bool(wide or pa.types.is_floating(stored))


def stored_bound(raw: Any, physical: int, stored: pa.DataType) -> Any:
    """Return a stored bound as a value with the column's order: an integer, or bytes for text.

    Args:
        raw: the bytes of the bound.
        physical: number of the physical type.
        stored: Arrow type of the column.
    """
    if physical in (BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY):
        return int.from_bytes(raw, "big", signed=True) if pa.types.is_decimal(stored) else raw
    return int.from_bytes(raw, "little", signed=True)


def _logical(raw: Any, stored: pa.DataType) -> pa.Array:
    """Return a bound, as returned by :func:`stored_bound`, as an array with one value of Arrow type ``stored``."""
    if pa.types.is_decimal(stored):
        digits = tuple(int(digit) for digit in str(abs(raw)))
        return pa.array([Decimal((int(raw < 0), digits, -stored.scale))], stored)
    if isinstance(raw, bytes):
        return arrow_array([raw], pa.binary()).cast(stored)
    if pa.types.is_boolean(stored):
        return arrow_array([bool(raw)], stored)
    integer = arrow_array([raw], pa.int64() if stored.bit_width == 64 else pa.int32())
    return integer.view(stored) if stored.bit_width in (32, 64) else integer.cast(stored)
