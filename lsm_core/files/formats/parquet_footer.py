"""A Parquet footer read and checked here, and what it says about a file's columns: bounds, null counts, decoded sizes.

Arrow's accessors of a footer's columns and statistics end the process on some footers that cannot be, so that no file is asked
through them: one flipped bit in a type is enough. What is read here is the same Thrift, bounded by the footer's bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array
from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.formats import thrift
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
_KINDS: Final = (thrift.STRUCT, thrift.LIST, thrift.I32, thrift.I64, thrift.I64, thrift.I64, thrift.I64)
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
    leaves: list[Leaf]
    groups: list[Group]

    def single(self, name: str) -> int | None:
        """Index of the leaf that is the top-level column ``name``; None for nested columns and those that are not there."""
        return next((i for i, leaf in enumerate(self.leaves) if leaf.path == (name,) and not leaf.repeats), None)


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
        fields = thrift.Reader(data).struct()
        if _ENCRYPTION in fields:
            raise UnsupportedFeature(f"encrypted Parquet files ({path})")
        _field(fields, _VERSION, thrift.I32)
        rows = _count(fields, _ROWS)
        leaves = _leaves(_structs(fields, _SCHEMA), _orders(fields))
        end = size - TAIL_BYTES - len(data)
        groups = [_group(group, leaves, end, path) for group in _structs(fields, _GROUPS)]
        if sum(group.rows for group in groups) != rows:
            raise ValueError(f"row groups of {sum(group.rows for group in groups)} rows where {rows} are said to be")
    except (ValueError, IndexError) as error:
        raise CorruptFile(path, f"not a readable Parquet file: its footer is broken ({error})") from error
    return Footer(rows, leaves, groups)


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


def _structs(struct: Struct, number: int) -> list[Struct]:
    found: list[Struct] = _field(struct, number, thrift.LIST)
    if not all(isinstance(each, dict) for each in found):
        raise ValueError(f"field {number} is no list of structs")
    return found


def _orders(fields: Struct) -> list[bool]:
    kind, found = fields.get(_ORDERS, (thrift.LIST, []))
    return [isinstance(each, dict) and _BY_TYPE in each for each in found] if kind == thrift.LIST else []


def _leaves(elements: list[Struct], ordered: list[bool]) -> list[Leaf]:
    """The leaves of the schema, a tree told in depth-first order."""
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
    return leaves


def _group(group: Struct, leaves: list[Leaf], end: int, path: str) -> Group:
    rows = _count(group, _GROUP_ROWS)
    columns = _structs(group, _GROUP_COLUMNS)
    if len(columns) != len(leaves):
        raise ValueError(f"a row group of {len(columns)} columns where there are {len(leaves)}")
    chunks = [_chunk(column, leaf, rows, end, path) for column, leaf in zip(columns, leaves, strict=True)]
    return Group(rows, _count(group, _GROUP_BYTES), chunks)


def _chunk(column: Struct, leaf: Leaf, rows: int, end: int, path: str) -> Chunk:
    """One leaf of a row group. Written without calls: it is most of what a footer of many columns takes, next to Thrift itself."""
    if _CRYPTO in column or _CRYPTED in column:
        raise UnsupportedFeature(f"encrypted Parquet columns ({path}, column '{leaf.name}')")
    if _OTHER_FILE in column:
        raise UnsupportedFeature(f"Parquet columns in files of their own ({path}, column '{leaf.name}')")
    try:
        kind, found = column[_CHUNK]
        physical = found[_TYPE]
        listed, encodings = found[_ENCODINGS]
        short, codec = found[_CODEC]
        long, values = found[_VALUES]
        kinds = kind, listed, short, long, found[_PLAIN_BYTES][0], found[_STORED_BYTES][0], found[_DATA_AT][0]
        plain, stored, start = found[_PLAIN_BYTES][1], found[_STORED_BYTES][1], found[_DATA_AT][1]
        known = _ENCODING_NUMBERS.issuperset(encodings)
    except (KeyError, TypeError) as error:
        raise ValueError(f"column '{leaf.name}' is not described") from error
    if physical != (thrift.I32, leaf.physical):
        raise ValueError(f"column '{leaf.name}' is stored as another type than the schema says")
    if kinds != _KINDS or plain < 0 or stored < 0 or start < 0 or not known:
        raise ValueError(f"column '{leaf.name}' is described by nonsense")
    if not 0 <= codec < _CODECS:
        raise ValueError(f"compression number {codec}")
    if values != rows and (values < rows or not leaf.repeats):
        raise ValueError(f"column '{leaf.name}' of {values} values for {rows} rows")
    if _DICTIONARY_AT in found:
        kind, dictionary = found[_DICTIONARY_AT]
        if kind == thrift.I64 and 0 < dictionary < start:
            start = dictionary
    if values and not (len(_MAGIC) <= start and start + stored <= end):
        raise ValueError(f"column '{leaf.name}' outside of the file")
    nulls = low = high = None
    if _STATISTICS in found and found[_STATISTICS][0] == thrift.STRUCT:
        nulls, low, high = _statistics(found[_STATISTICS][1], leaf, values)
    return Chunk(codec, encodings, values, plain, start, stored, nulls, low, high)


def _statistics(stats: Struct, leaf: Leaf, values: int) -> tuple[int | None, bytes | None, bytes | None]:
    """Null count and bounds, None where they are not told. Bounds in the old fields, whose order nobody knows, are not told."""
    kind, nulls = stats.get(_NULLS, _NOTHING)
    if kind != thrift.I64:
        nulls = None
    elif not 0 <= nulls <= values:
        raise ValueError(f"column '{leaf.name}' of {nulls} nulls among {values} values")
    kind, low = stats.get(_LOW, _NOTHING)
    other, high = stats.get(_HIGH, _NOTHING)
    if not leaf.ordered or kind != thrift.BINARY or other != thrift.BINARY:
        return nulls, None, None
    width = leaf.length or WIDTHS.get(leaf.physical)
    if width is not None and not len(low) == len(high) == width:
        raise ValueError(f"column '{leaf.name}' with bounds of {len(low)} and {len(high)} bytes")
    return nulls, low, high


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
    told = [chunk for _, chunk in groups if chunk.low is not None]
    missing = [chunk for rows, chunk in groups if chunk.low is None and chunk.nulls != rows]
    if not told or missing or _without_bounds(stored):
        return ColumnStats(nothing, nothing, nulls)
    physical = footer.leaves[leaf].physical
    low = min(_number(chunk.low, physical, stored) for chunk in told)
    high = max(_number(chunk.high, physical, stored) for chunk in told)
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
