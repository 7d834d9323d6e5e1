"""A Parquet footer read and checked here, and what it says about a file's columns: bounds, null counts, decoded sizes.

Arrow's accessors of a footer's columns and statistics end the process on some footers that cannot be, so that no file is asked
through them: one flipped bit in a type is enough. What is read here is the same Thrift, bounded by the footer's bytes.
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
from lsm_core.files.formats.parquet_usual import ChunkFields, RowGroupFields, row_groups
from lsm_core.files.formats.thrift import Struct
from lsm_core.format.stats import ColumnStats

BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY = range(8)
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY, DELTA_BYTE_ARRAY = 0, 2, 8, 7
_ENCODING_NUMBERS: Final = frozenset(range(10))
CODED: Final = frozenset({PLAIN_DICTIONARY, RLE_DICTIONARY})
WIDTHS: Final = {BOOLEAN: 1, INT32: 4, INT64: 8, INT96: 12, FLOAT: 4, DOUBLE: 8}
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
"""Of the schemas, and of the column orders, that are kept to know them again."""

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
_NOTHING: Final = (0, None)
_DESCRIBED: Final = (
    (_TYPE, thrift.I32),
    (_ENCODINGS, thrift.LIST),
    (_CODEC, thrift.I32),
    (_VALUES, thrift.I64),
    (_PLAIN_BYTES, thrift.I64),
    (_STORED_BYTES, thrift.I64),
    (_DATA_AT, thrift.I64),
)
"""What every column chunk tells, with its type in Thrift."""
_BY_TYPE: Final = 1
"""Of a column's order: the one that its type defines, without which bounds mean nothing."""


class Leaf(NamedTuple):
    """A column as Parquet has it: one leaf of the schema."""

    path: tuple[str, ...]
    """Names from the top-level column down."""
    physical: int
    """Number of the stored type."""
    length: int
    """Bytes of a FIXED_LEN_BYTE_ARRAY, else 0."""
    repeats: int
    """Levels of repetition: 0 where every row holds one value or null."""
    optional: int
    """Levels of definition."""
    ordered: bool
    """Whether bounds are in the order of the type."""

    @property
    def name(self) -> str:
        """The top-level column."""
        return self.path[0]


class Chunk(NamedTuple):
    """One leaf's values in one row group."""

    codec: int
    encodings: Sequence[int]
    values: int
    """Values, nulls and empty lists included."""
    plain_bytes: int
    """Bytes of its pages before compression."""
    start: int
    """Where its first page begins in the file."""
    stored_bytes: int
    """Bytes of its pages in the file."""
    nulls: int | None
    low: bytes | None
    """Smallest value as stored; None where the footer does not tell, also when only ``high`` is missing."""
    high: bytes | None

    @property
    def coded(self) -> bool:
        """Whether some of its pages hold numbers into a dictionary."""
        return not CODED.isdisjoint(self.encodings)


class Group(NamedTuple):
    """One row group; ``chunks`` in the order of the leaves."""

    rows: int
    plain_bytes: int
    chunks: list[Chunk]


class Footer(NamedTuple):
    """What a footer says of a file, checked: types are known, sizes fit the file, counts fit each other."""

    rows: int
    leaves: Sequence[Leaf]
    groups: list[Group]
    singles: Mapping[str, int]
    """Indexes of the leaves that are top-level columns, without lists, by their names."""

    def single(self, name: str) -> int | None:
        """Index of the leaf that is the top-level column ``name``; None for nested columns and those that are not there."""
        return self.singles.get(name)


def stored_footer(source: Any, path: str) -> bytes:
    """The bytes of the footer of the open file ``source``: one read, or two where it is long. Raises :class:`CorruptFile`, and UnsupportedFeature for an encrypted one."""
    size = source.size()
    first = min(size, _FIRST_READ)
    tail = bytes(source.read_at(first, size - first))
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise UnsupportedFeature(f"encrypted Parquet files ({path})")
    if size < 2 * len(_MAGIC) + 4 or len(tail) < first or tail[-4:] != _MAGIC:
        raise CorruptFile(path, "not a readable Parquet file: it does not end as one")
    length = int.from_bytes(tail[-TAIL_BYTES:-4], "little")
    if length > min(size - len(_MAGIC) - TAIL_BYTES, _MOST_FOOTER):
        raise CorruptFile(path, f"not a readable Parquet file: it claims a footer of {length} bytes")
    if length + TAIL_BYTES <= first:
        return tail[-TAIL_BYTES - length : -TAIL_BYTES]
    return bytes(source.read_at(length, size - TAIL_BYTES - length))


def parse_footer(data: bytes, path: str, size: int) -> Footer:
    """The footer ``data`` of the file ``path`` of ``size`` bytes (footer and the end included).

    Raises :class:`CorruptFile` for a footer that cannot be, UnsupportedFeature for encrypted columns. Source: parquet.thrift.
    """
    try:
        fields, schema, orders = _fields(data)
        if _ENCRYPTION in fields:
            raise UnsupportedFeature(f"encrypted Parquet files ({path})")
        _field(fields, _VERSION, thrift.I32)
        rows = _count(fields, _ROWS)
        kept = len(schema) + len(orders) <= _MOST_KEPT_BYTES
        leaves, singles = _leaves(schema, orders) if kept else _leaves.__wrapped__(schema, orders)
        end = size - TAIL_BYTES - len(data)
        groups = [_group(group, leaves, end, path) for group in _structs(fields, _GROUPS)]
        if sum(group.rows for group in groups) != rows:
            raise ValueError(f"row groups of {sum(group.rows for group in groups)} rows where {rows} are said to be")
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"not a readable Parquet file: its footer is broken ({error})") from error
    return Footer(rows, leaves, groups, singles)


class _Lists:
    """Lists that the footers of a table repeat byte for byte, schemas and column orders: known by their bytes, their ends need no reading."""

    def __init__(self) -> None:
        self._known: tuple[bytes, ...] = ()

    def at(self, data: bytes, at: int) -> bytes | None:
        """The known list that begins at ``at``: the bytes of a list tell its end, so that what begins with them is it."""
        return next((each for each in self._known if data.startswith(each, at)), None)

    def keep(self, found: bytes) -> None:
        """Know ``found`` from now on, and of those before the last ones."""
        if len(found) <= _MOST_KEPT_BYTES:
            self._known = (found, *self._known[: _MOST_KEPT - 1])


_schemas, _column_orders = _Lists(), _Lists()


def _fields(data: bytes) -> tuple[Struct, bytes, bytes]:
    """The footer's fields; its schema and its column orders as the bytes of their lists, empty where they are no lists.

    With a schema that is known row groups are read by their patterns; what is read once in a process is not worth preparing these.
    """
    reader = thrift.Reader(data)
    fields: Struct = {}
    lists = {_SCHEMA: b"", _ORDERS: b""}
    number, known = 0, False
    while True:
        number, kind = reader.field(number)
        if kind == thrift.STOP:
            return fields, lists[_SCHEMA], lists[_ORDERS]
        if number in lists and kind == thrift.LIST:
            start, kept = reader.at, _schemas if number == _SCHEMA else _column_orders
            found = kept.at(data, start)
            if found is None:
                reader.value(kind)
                found = data[start : reader.at]
                kept.keep(found)
            elif number == _SCHEMA:
                known = True
            reader.at = start + len(found)
            lists[number] = found
        elif number in lists:
            reader.value(kind)
            lists[number] = b""
        elif number == _GROUPS and kind == thrift.LIST and known:
            groups, reader.at = row_groups(data, reader.at)
            fields[number] = kind, groups
        else:
            fields[number] = kind, reader.value(kind)


def _field(struct: Struct, number: int, kind: int) -> Any:
    """A field that must be there; of another type it counts as missing, as in every reader of Thrift."""
    found = struct.get(number)
    if found is None or found[0] != kind:
        raise ValueError(f"field {number} is missing")
    return found[1]


def _count(struct: Struct, number: int, kind: int = thrift.I64) -> int:
    value = int(_field(struct, number, kind))
    if value < 0:
        raise ValueError(f"the count {value}")
    return value


def _structs(struct: Struct, number: int) -> list[Any]:
    """A list of structs, be they found as Thrift or by their patterns."""
    found: list[Any] = _field(struct, number, thrift.LIST)
    if not all(isinstance(each, dict | RowGroupFields) for each in found):
        raise ValueError(f"field {number} is no list of structs")
    return found


@functools.lru_cache(maxsize=_MOST_KEPT)
def _leaves(schema: bytes, orders: bytes) -> tuple[Sequence[Leaf], Mapping[str, int]]:
    """The leaves of the schema, a tree told in depth-first order, and which of them are columns by themselves. Both as bytes of lists."""
    elements = _structs({_SCHEMA: (thrift.LIST, thrift.Reader(schema).value(thrift.LIST))} if schema else {}, _SCHEMA)
    column_orders = thrift.Reader(orders).value(thrift.LIST) if orders else []
    ordered = [isinstance(each, dict) and _BY_TYPE in each for each in column_orders]
    if not 0 < len(elements) <= _MOST_COLUMNS:
        raise ValueError(f"a schema of {len(elements)} elements")
    leaves: list[Leaf] = []
    path: list[str] = []
    levels: list[tuple[int, int]] = [(0, 0)]
    left = [_count(elements[0], _CHILDREN, thrift.I32)]
    for element in elements[1:]:
        while left and left[-1] == 0:
            left.pop()
            levels.pop()
            path = path[:-1]
        if not left:
            raise ValueError("more schema elements than the schema has places for")
        left[-1] -= 1
        repetition = _field(element, _REPETITION, thrift.I32)
        if repetition not in (_REQUIRED, _OPTIONAL, _REPEATED):
            raise ValueError(f"repetition {repetition}")
        repeats, optional = levels[-1]
        here = (repeats + (repetition == _REPEATED), optional + (repetition != _REQUIRED))
        name = _field(element, _NAME, thrift.BINARY).decode()
        kind, physical = element.get(_TYPE, (0, 0))
        if kind == thrift.I32:
            length = element.get(_LENGTH, (0, 0))[1] if physical == FIXED_LEN_BYTE_ARRAY else 0
            if not BOOLEAN <= physical <= FIXED_LEN_BYTE_ARRAY or (physical == FIXED_LEN_BYTE_ARRAY and length <= 0):
                raise ValueError(f"column '{name}' of type {physical} of {length} bytes")
            order = len(leaves) < len(ordered) and ordered[len(leaves)]
            leaves.append(Leaf((*path, name), physical, length, *here, order))
            continue
        path.append(name)
        levels.append(here)
        left.append(_count(element, _CHILDREN, thrift.I32))
        if left[-1] == 0:
            raise ValueError("a group without columns")
        if len(left) > _MOST_DEPTH:
            raise ValueError("columns nested too deeply")
    if any(left):
        raise ValueError("fewer schema elements than the schema has places for")
    singles = {
        leaf.name: at for at, leaf in reversed(list(enumerate(leaves))) if len(leaf.path) == 1 and not leaf.repeats
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
    """The fields of a column chunk that was read as Thrift. Raises ValueError where one is missing or of another type, UnsupportedFeature."""
    if _CRYPTO in column or _CRYPTED in column:
        raise UnsupportedFeature(f"encrypted Parquet columns ({path}, column '{leaf.name}')")
    if _OTHER_FILE in column:
        raise UnsupportedFeature(f"Parquet columns in files of their own ({path}, column '{leaf.name}')")
    kind, found = column.get(_CHUNK, _NOTHING)
    if kind != thrift.STRUCT:
        raise ValueError(f"column '{leaf.name}' is not described")
    try:
        described = [found[number] for number, _ in _DESCRIBED]
        encodings = tuple(described[1][1])
        known = _ENCODING_NUMBERS.issuperset(encodings)
    except (KeyError, TypeError) as error:
        raise ValueError(f"column '{leaf.name}' is not described") from error
    if not known or any(kind != wanted for (kind, _), (_, wanted) in zip(described, _DESCRIBED, strict=True)):
        raise ValueError(f"column '{leaf.name}' is described by nonsense")
    kind, dictionary = found.get(_DICTIONARY_AT, _NOTHING)
    physical, _, codec, values, plain, stored, start = (value for _, value in described)
    dictionary = dictionary if kind == thrift.I64 else None
    chunk = ChunkFields(physical, encodings, codec, values, plain, stored, start, dictionary, None, None, None)
    kind, stats = found.get(_STATISTICS, _NOTHING)
    if kind != thrift.STRUCT:
        return chunk
    (counted, nulls), (below, low), (above, high) = (stats.get(number, _NOTHING) for number in (_NULLS, _LOW, _HIGH))
    bound = below == above == thrift.BINARY
    return chunk._replace(
        nulls=nulls if counted == thrift.I64 else None, low=low if bound else None, high=high if bound else None
    )


def _chunk(fields: ChunkFields, leaf: Leaf, rows: int, end: int) -> Chunk:
    """One leaf of a row group, checked. Bounds in the old fields, whose order nobody knows, are not told."""
    physical, encodings, codec, values, plain, stored, start, dictionary, nulls, low, high = fields
    if physical != leaf.physical:
        raise ValueError(f"column '{leaf.name}' is stored as another type than the schema says")
    if plain < 0 or stored < 0 or start < 0:
        raise ValueError(f"column '{leaf.name}' is described by nonsense")
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
    """What the footer says about every top-level column of ``schema``, the file's. Nested ones are unknown to it.

    Floating point columns have null counts only (footers leave NaN out), nor have INT96 timestamps and binaries bounds.
    """
    found = {}
    for field in schema:
        leaf = footer.single(field.name)
        if leaf is not None:
            found[field.name] = _leaf_values(footer, leaf, field.type)
    return found


def group_bounds(footer: Footer, arrow: pa.Schema, name: str, path: str) -> tuple[pa.Array, pa.Array] | None:
    """Smallest and largest value of a top-level column in every row group, as its Arrow type.

    None where a row group does not say, and for types whose bounds footers do not hold as Java compares them. Raises
    :class:`CorruptFile` naming ``path`` for bounds that are no values of the type or the wrong way round.
    """
    leaf = footer.single(name)
    if leaf is None or not footer.groups or _without_bounds(arrow.field(name).type):
        return None
    stored = arrow.field(name).type
    physical = footer.leaves[leaf].physical
    sides: list[pa.Array] = []
    for side in ("low", "high"):
        raw = [getattr(group.chunks[leaf], side) for group in footer.groups]
        if any(each is None for each in raw):
            return None
        try:
            sides.append(pa.concat_arrays([_logical(_number(each, physical, stored), stored) for each in raw]))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise CorruptFile(path, f"the bounds of column '{name}' are no {stored}: {error}") from error
    low, high = sides
    if not pc.all(pc.less_equal(low, high)).as_py():
        raise CorruptFile(path, f"the bounds of column '{name}' are the wrong way round")
    return low, high


def plain_sizes(footer: Footer, names: Iterable[str]) -> dict[str, float]:
    """Average decoded bytes of a value of those of ``names`` whose pages hold the values themselves."""
    sizes: dict[str, float] = {}
    for name in names:
        leaf = footer.single(name)
        chunks = [] if leaf is None else [group.chunks[leaf] for group in footer.groups]
        if chunks and not any(chunk.coded or DELTA_BYTE_ARRAY in chunk.encodings for chunk in chunks):
            sizes[name] = sum(chunk.plain_bytes for chunk in chunks) / max(1, footer.rows) + _OFFSET_BYTES
    return sizes


def dictionary_texts(footer: Footer, names: Iterable[str]) -> list[str]:
    """Those of the text columns ``names`` of which every row group's values are stored as a dictionary and numbers into it.

    A column that gave up its dictionary half way has one too, but takes at least the four bytes of a plain value's length.
    """
    found = []
    for name in names:
        leaf = footer.single(name)
        chunks = [] if leaf is None else [group.chunks[leaf] for group in footer.groups]
        if leaf is not None and all(
            chunk.coded and chunk.plain_bytes <= _OFFSET_BYTES * (chunk.values - (chunk.nulls or 0)) for chunk in chunks
        ):
            found.append(name)
    return found


def int96_columns(footer: Footer) -> set[str]:
    """Top-level columns with an INT96 leaf; Arrow decodes it as nanoseconds."""
    return {leaf.name for leaf in footer.leaves if leaf.physical == INT96}


def _leaf_values(footer: Footer, leaf: int, stored: pa.DataType) -> ColumnStats:
    """Null count and bounds over all row groups; unknown where one does not say."""
    groups = [(group.rows, group.chunks[leaf]) for group in footer.groups if group.rows]
    counts = [chunk.nulls for _, chunk in groups]
    nulls = None if any(count is None for count in counts) else sum(count or 0 for count in counts)
    nothing = pa.nulls(1, stored)
    bounded = [chunk for _, chunk in groups if chunk.low is not None]
    missing = [chunk for rows, chunk in groups if chunk.low is None and chunk.nulls != rows]
    if not bounded or missing or _without_bounds(stored):
        return ColumnStats(nothing, nothing, nulls)
    physical = footer.leaves[leaf].physical
    low = min(_number(chunk.low, physical, stored) for chunk in bounded)
    high = max(_number(chunk.high, physical, stored) for chunk in bounded)
    return ColumnStats(_logical(low, stored), _logical(high, stored), nulls)


def _without_bounds(stored: pa.DataType) -> bool:
    wide = pa.types.is_timestamp(stored) and stored.unit == "ns"
    return bool(wide or pa.types.is_floating(stored) or pa.types.is_binary(stored))


def _number(raw: Any, physical: int, stored: pa.DataType) -> Any:
    """A bound as a value whose order is the column's: an integer, or bytes for text."""
    if physical in (BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY):
        return int.from_bytes(raw, "big", signed=True) if pa.types.is_decimal(stored) else raw
    return int.from_bytes(raw, "little", signed=True)


def _logical(raw: Any, stored: pa.DataType) -> pa.Array:
    """A bound as one value of the column's Arrow type."""
    if pa.types.is_decimal(stored):
        digits = tuple(int(digit) for digit in str(abs(raw)))
        return pa.array([Decimal((int(raw < 0), digits, -stored.scale))], stored)
    if isinstance(raw, bytes):
        return arrow_array([raw], pa.binary()).cast(stored)
    if pa.types.is_boolean(stored):
        return arrow_array([bool(raw)], stored)
    integer = arrow_array([raw], pa.int64() if stored.bit_width == 64 else pa.int32())
    return integer.view(stored) if stored.bit_width in (32, 64) else integer.cast(stored)


__all__ = [
    "BYTE_ARRAY",
    "CODED",
    "DELTA_BYTE_ARRAY",
    "INT32",
    "PLAIN",
    "TAIL_BYTES",
    "WIDTHS",
    "Chunk",
    "Footer",
    "Group",
    "Leaf",
    "dictionary_texts",
    "footer_values",
    "group_bounds",
    "int96_columns",
    "parse_footer",
    "plain_sizes",
    "stored_footer",
]
