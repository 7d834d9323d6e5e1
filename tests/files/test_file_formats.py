"""Files of every format: what goes in comes out, as Java lays it out, with the statistics that Java records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema
from lsm_core.errors import CorruptFile, InvalidData, InvalidOption, UnsupportedFeature
from lsm_core.files.formats import compression_of, extension_of, format_of, open_sink, open_source, thrift
from lsm_core.files.formats.orc import unwritable
from lsm_core.files.formats.parquet import schema_elements
from lsm_core.files.formats.parquet_footer import parse_footer, stored_footer
from lsm_core.format import DataField, ManifestEntry, TableSchema
from lsm_core.format.avro import Container, avro_schema
from lsm_core.format.binary_row import decode_row
from lsm_core.format.schema import append_arrow_schema, kv_arrow_schema
from lsm_core.format.stats import ColumnValues, key_stats, value_stats
from lsm_core.options import TableOptions
from lsm_core.storage import LocalFileIO
from lsm_core.types import DataType, TypeRoot
from tests.format.strategies import TYPES, values
from tests.support.data import golden_names, unpack_golden
from tests.support.samples import examples, one_in

FORMATS = ["parquet", "orc", "avro"]
IO = LocalFileIO()
_YEAR = datetime(1970, 1, 1)


def write(path: Path, table: pa.Table, form: str, rows: int = 4, **options: str) -> tuple[int, ColumnValues]:
    chosen = {"file.format": form, **{key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}}
    sink = open_sink(IO, str(path), table, TableOptions(chosen, "db.t"))
    try:
        for start in range(0, table.num_rows, rows):
            sink.write(table.slice(start, rows))
        return sink.close()
    except BaseException:
        sink.discard()
        assert not path.exists()
        raise


def read(path: Path, columns: list[str] | None = None, batch_rows: int = 3, **expected: int) -> pa.Table:
    source = open_source(IO, str(path), **expected)
    try:
        names = source.schema.names if columns is None else columns
        batches = list(source.batches(names, batch_rows))
        assert all(batch.num_rows <= batch_rows for batch in batches)
        assert sum(source.group_rows) == source.rows == sum(batch.num_rows for batch in batches)
        return pa.Table.from_batches(batches, batches[0].schema if batches else source.schema)
    finally:
        source.close()


def schema_of(kinds: list[DataType]) -> TableSchema:
    fields = tuple(DataField(100 * i, f"c{i}", kind) for i, kind in enumerate(kinds))
    return TableSchema(0, fields, 100 * len(fields), (), (), {})


def storable(kind: DataType, form: str) -> bool:
    """Whether Paimon's writer of the format takes the type at all."""
    wide = kind.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ) and (kind.precision or 0) > 6
    inner = [*(f.type for f in kind.fields), *(k for k in (kind.key, kind.value, kind.element) if k is not None)]
    if kind.root is TypeRoot.VARIANT or (form == "avro" and wide):
        return False
    return all(storable(item, form) for item in inner)


def fits_orc(value: Any) -> bool:
    """Whether ORC as Arrow knows it holds the value: 1677 to 2262, and no fractions before 1970."""
    if isinstance(value, dict):
        return all(fits_orc(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(fits_orc(item) for item in value)
    if not isinstance(value, datetime):
        return True
    return 1678 <= value.year <= 2261 and (value.replace(tzinfo=None) >= _YEAR or value.microsecond == 0)


@st.composite
def tables(draw: st.DrawFn, form: str) -> pa.Table:
    kinds = draw(st.lists(TYPES.filter(lambda kind: storable(kind, form)), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | values(kind).filter(lambda v: form != "orc" or fits_orc(v)) for kind in kinds))
    rows = draw(st.lists(row, min_size=1, max_size=9))
    schema = append_arrow_schema(schema_of(kinds))
    return pa.table([pa.array([item[i] for item in rows], f.type) for i, f in enumerate(schema)], schema=schema)


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rows_of_any_type_come_back(tmp_path_factory: pytest.TempPathFactory, form: str, data: Any) -> None:
    table = data.draw(tables(form).filter(lambda table: form != "orc" or not unwritable(table)))
    path = tmp_path_factory.mktemp("f") / f"x.{form}"
    size, found = write(path, table, form)
    assert size == path.stat().st_size
    back = read(path, size=size, rows=table.num_rows)
    _same_rows(back.cast(table.schema), table)
    assert read(path, back.column_names[:1]).num_columns == 1
    for name, seen in found.items():
        assert seen.null_count is None or seen.null_count == table.column(name).null_count


def nested_columns() -> pa.Table:
    inner = pa.struct([("at", pa.timestamp("ns")), ("ms", pa.timestamp("ms", "UTC")), ("clock", pa.time32("ms"))])
    value = {"at": 5, "ms": 7, "clock": 9}
    return pa.table(
        {
            "a": pa.array([[value, None], None, []], pa.list_(inner)),
            "m": pa.array([[(1, value)], None, [(2, None)]], pa.map_(pa.int32(), inner)),
            "u": pa.array([1, None, -(2**40)], pa.timestamp("us")),
        }
    )


def test_int96_lies_only_where_java_puts_it_and_narrow_timestamps_keep_their_names(tmp_path: Path) -> None:
    table = nested_columns()
    write(tmp_path / "x.parquet", table, "parquet")
    schema = pq.read_metadata(tmp_path / "x.parquet").schema
    leaves = {schema.column(i).path: schema.column(i) for i in range(len(schema.names))}
    assert [path for path, leaf in leaves.items() if leaf.physical_type == "INT96"] == [
        "a.list.element.at",
        "m.key_value.value.at",
    ]
    assert "timeUnit=milliseconds, is_from_converted_type=false" in str(leaves["a.list.element.ms"].logical_type)
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in str(leaves["u"].logical_type)
    assert "isAdjustedToUTC=true" in str(leaves["a.list.element.clock"].logical_type)
    assert read(tmp_path / "x.parquet").cast(table.schema).equals(table)
    read(tmp_path / "x.parquet", ["u"])


def test_int96_beyond_nanoseconds_is_refused_and_not_wrapped(tmp_path: Path) -> None:
    """Spark and Java write such values; Arrow decodes them modulo 2^64."""
    far = pa.table({"k": [1, 2], "at": pa.array([datetime(9999, 12, 31), None], pa.timestamp("us"))})
    pq.write_table(far, tmp_path / "far.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(UnsupportedFeature, match=r"1677.*far\.parquet.*'at'"):
        read(tmp_path / "far.parquet")
    assert read(tmp_path / "far.parquet", ["k"]).num_rows == 2
    near = pa.table({"at": pa.array([datetime(2262, 4, 11), datetime(1677, 9, 22), None], pa.timestamp("us"))})
    pq.write_table(near, tmp_path / "near.parquet", use_deprecated_int96_timestamps=True)
    assert read(tmp_path / "near.parquet").cast(near.schema).equals(near)


@pytest.mark.parametrize("moment", [datetime(9999, 12, 31), datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 1)])
@pytest.mark.parametrize("nested", [False, True])
def test_orc_refuses_timestamps_that_would_not_come_back(tmp_path: Path, moment: datetime, nested: bool) -> None:
    kind = pa.list_(pa.timestamp("us")) if nested else pa.timestamp("us")
    table = pa.table({"at": pa.array([[moment] if nested else moment], kind)})
    with pytest.raises(InvalidData, match=r"db\.t.*at.*ORC"):
        write(tmp_path / "x.orc", table, "orc")


def test_orc_refuses_rows_in_rows_whose_nulls_arrow_misplaces(tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.list_(pa.struct([("y", pa.int32())])))])
    with pytest.raises(InvalidData, match=r"r.*ROW inside a ROW"):
        write(tmp_path / "x.orc", pa.table({"r": pa.array([None], pa.list_(inner))}), "orc")


def test_orc_timestamps_out_of_reach_are_refused_when_read(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([datetime(9999, 12, 31)], pa.timestamp("us"))})
    orc.write_table(table, str(tmp_path / "x.orc"))
    with pytest.raises(UnsupportedFeature, match=r"1677.*x\.orc"):
        read(tmp_path / "x.orc")


def test_avro_refuses_what_java_refuses(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(UnsupportedFeature, match="'at'"):
        write(tmp_path / "x.avro", table, "avro")
    assert not (tmp_path / "x.avro").exists()


def _same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Compared as text: NaN equals itself, and -0.0 is not 0.0."""
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


def golden_files(name: str, place: Path) -> Iterator[tuple[Path, ManifestEntry, TableSchema]]:
    """Data files of a golden table with their manifest entries."""
    from tests.format.test_golden_metadata import entries, schemas

    table = unpack_golden(name, place)
    known = schemas(table)
    found = {path.name: path for path in table.glob("**/bucket-*/*")}
    for entry in entries(table):
        path = found.get(entry.file.file_name)
        if path is not None and entry.kind == 0 and entry.file.write_cols is None:
            yield path, entry, known[entry.file.schema_id]


@pytest.mark.parametrize("name", one_in(6, golden_names()))
def test_files_of_java_written_again_are_as_java_wrote_them(name: str, tmp_path: Path) -> None:
    """Same header or footer schema, same statistics to the byte."""
    for number, (path, entry, schema) in enumerate(golden_files(name, tmp_path)):
        thin = schema.options.get("data-file.thin-mode") == "true"
        layout = kv_arrow_schema(schema, thin=thin) if schema.primary_keys else append_arrow_schema(schema)
        rows = read(path, layout.names, size=entry.file.file_size, rows=entry.file.row_count).cast(layout)
        form = path.suffix[1:]
        if form == "orc" and unwritable(rows):
            continue  # written as Parquet instead
        mine = tmp_path / f"mine{number}.{form}"
        size, found = write(mine, rows, form, rows=100)
        _same_rows(read(mine, layout.names, size=size, rows=rows.num_rows).cast(layout), rows)
        assert layout_of(mine) == layout_of(path)
        _same_statistics(found, entry, schema, rows)


def layout_of(path: Path) -> Any:
    """What the file says about its columns."""
    if path.suffix == ".avro":
        with pa.OSFile(str(path)) as source:
            text = Container(source, str(path)).schema
        return json.loads(json.dumps(text).replace('"values": ["null", "int"]', '"values": "int"'))
    if path.suffix == ".orc":
        return orc.ORCFile(str(path)).schema.to_string(show_field_metadata=True)
    data = path.read_bytes()
    return schema_elements(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])


def _same_statistics(found: ColumnValues, entry: ManifestEntry, schema: TableSchema, rows: pa.Table) -> None:
    if entry.bucket == -2:
        return  # postponed files have none
    options = TableOptions(schema.options, "db.t")
    stats, names = value_stats(found, schema, options, level=entry.file.level)
    java = entry.file.value_stats
    assert names == entry.file.value_stats_cols
    assert stats.null_counts == java.null_counts
    if schema.primary_keys:
        assert key_stats(found, schema) == entry.file.key_stats
    nan = {f.name for f in rows.schema if pa.types.is_floating(f.type) and pc.any(pc.is_nan(rows[f.name])).as_py()}
    if not nan:
        assert stats == java
        return
    # With NaN, Java 1.3 leaves columns without bounds, and ORC forgets all values or the NaN: no file of ours does either.
    kept = tuple(schema.field_names) if names is None else names
    kinds = [schema.field(name).type for name in kept]
    for ours, theirs in ((stats.min_values, java.min_values), (stats.max_values, java.max_values)):
        pairs = zip(kept, decode_row(ours, kinds), decode_row(theirs, kinds), strict=True)
        assert all(item == other for name, item, other in pairs if name not in nan)


def test_the_avro_schema_is_java_s_for_maps_with_any_key() -> None:
    schema = pa.schema([pa.field("m", pa.map_(pa.int32(), pa.field("value", pa.struct([("p", pa.string())]))))])
    root = "record"
    row = {
        "type": "record",
        "name": f"{root}_m_value",
        "fields": [{"default": None, "name": "p", "type": ["null", "string"]}],
    }
    entry = {
        "type": "record",
        "name": f"{root}_m",
        "fields": [{"name": "key", "type": ["null", "int"]}, {"default": None, "name": "value", "type": ["null", row]}],
    }
    array = {"type": "array", "logicalType": "map", "items": entry}
    assert avro_schema(schema)["fields"] == [{"default": None, "name": "m", "type": ["null", array]}]


@pytest.mark.parametrize(
    ("form", "codecs"),
    [
        ("parquet", ["zstd", "snappy", "gzip", "lz4", "brotli", "none"]),
        ("orc", ["zstd", "zlib", "snappy", "lz4", "none"]),
        ("avro", ["zstd", "snappy", "deflate", "bzip2", "xz", "none"]),
    ],
)
def test_every_codec_comes_back_and_others_are_named(tmp_path: Path, form: str, codecs: list[str]) -> None:
    table = pa.table({"k": list(range(5000)), "s": ["x" * 30] * 5000})
    for codec in codecs:
        path = tmp_path / f"{codec}.{form}"
        size, _ = write(path, table, form, rows=1000, file__compression=codec)
        assert read(path, batch_rows=700, size=size).equals(table)
        assert codec == "none" or size < 40_000
    with pytest.raises(InvalidOption, match=r"file\.compression.*lzma"):
        write(tmp_path / "x", table, form, file__compression="lzma")


def test_format_codec_and_suffix_follow_the_level() -> None:
    options = TableOptions(
        {
            "file.format": "ORC",
            "file.format.per.level": "0:avro,5:parquet",
            "file.compression.per.level": "0:snappy,4:none",
            "file.suffix.include.compression": "true",
        },
        "db.t",
    )
    assert [format_of(options, level) for level in (0, 1, 5)] == ["avro", "orc", "parquet"]
    assert [compression_of(options, level) for level in (0, 1, 4)] == ["snappy", "zstd", "none"]
    assert [extension_of(options, name) for name in ("avro", "orc")] == ["zst.avro", "zst.orc"]
    assert extension_of(TableOptions({}, "db.t"), "parquet") == "parquet"
    with pytest.raises(InvalidOption, match=r"file\.format\.per\.level.*lance"):
        format_of(TableOptions({"file.format.per.level": "2:lance"}, "db.t"), 2)


@pytest.mark.parametrize("told", [True, False])
def test_a_flipped_bit_that_decodes_is_seen_where_the_page_has_a_checksum(tmp_path: Path, told: bool) -> None:
    """Java's files have checksums; without one a flipped value is a value (docs/verification.md)."""
    path = tmp_path / "a.parquet"
    column = pa.array(np.arange(1_000), pa.int64())
    pq.write_table(pa.table({"k": column}), path, compression="none", use_dictionary=False, write_page_checksum=told)
    data = bytearray(path.read_bytes())
    at = data.index((500).to_bytes(8, "little"))
    data[at] ^= 1
    path.write_bytes(data)
    if told:
        with pytest.raises(CorruptFile, match=r"a\.parquet.*(?i:checksum)"):
            read(path)
    else:
        assert read(path).column("k").to_pylist()[500] == 501


@pytest.mark.parametrize("name", [n for n in golden_names() if n in ("append_bucketed", "changelog_lookup", "dv_pk")])
def test_files_of_java_carry_checksums_of_their_pages(name: str, tmp_path: Path) -> None:
    path, _, _ = next(iter(golden_files(name, tmp_path)))
    footer = parse_footer(stored_footer(pa.OSFile(str(path)), str(path)), str(path), path.stat().st_size)
    header = thrift.Reader(path.read_bytes(), footer.groups[0].chunks[0].start).struct()
    assert header[4][0] == thrift.I32


def test_a_file_of_an_unknown_format_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"csv .*x\.csv.*db\.t"):
        open_source(IO, str(tmp_path / "x.csv"), table="db.t")


@pytest.mark.parametrize("form", FORMATS)
def test_chosen_groups_and_no_columns(tmp_path: Path, form: str) -> None:
    table = pa.table({"a.b": [1, 2, 3], "a": ["x", "y", None], "b": [None, None, 1.5]})
    size, _ = write(tmp_path / f"x.{form}", table, form, rows=2)
    source = open_source(IO, str(tmp_path / f"x.{form}"), size=size, rows=3)
    assert source.group_rows == ([2, 1] if form == "parquet" else [3])
    assert [b.num_rows for b in source.batches([], 10)] in ([3], [2, 1])
    assert list(source.batches(["b"], 10, [])) == []
    assert pa.Table.from_batches(source.batches(["b", "a.b"], 10, range(len(source.group_rows)))).equals(
        table.select(["b", "a.b"])
    )
    source.close()


@pytest.mark.parametrize(("text", "wanted"), [("false", False), ("true", True), ("0", True)])
def test_dictionaries_can_be_switched_off_and_numbers_leave_them_on_as_in_java(
    tmp_path: Path, text: str, wanted: bool
) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    options = {"bucket": "1", "parquet.enable.dictionary": text}
    columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    table = catalog.create_table("db.t", Schema(columns, ["k"], [], options))
    table.write(pa.table({"k": range(2000), "v": ["the same"] * 2000}, schema=columns))
    group = pq.ParquetFile(next(tmp_path.rglob("data-*.parquet"))).metadata.row_group(0)
    assert any(group.column(place).has_dictionary_page for place in range(group.num_columns)) is wanted
    assert Catalog(tmp_path).table("db.t").to_arrow().num_rows == 2000


def test_columns_of_huge_values_get_null_counts_and_no_bounds(tmp_path: Path) -> None:
    """Arrow would copy such bounds six times, and leave them out of the footer in the end."""
    texts = ["a" * 200_000, None, "b" * 200_000]
    rows = pa.table({"k": [1, 2, 3], "wide": texts, "listed": [[text] for text in texts], "text": ["x", None, None]})
    _, values = write(tmp_path / "wide.parquet", rows, "parquet")
    assert {name: stats.null_count for name, stats in values.items()} == {"k": 0, "wide": 1, "text": 2}
    assert values["wide"].minimum.to_pylist() == values["wide"].maximum.to_pylist() == [None]
    assert values["k"].maximum.to_pylist() == [3] and values["text"].minimum.to_pylist() == ["x"]
    chunks = pq.read_metadata(tmp_path / "wide.parquet").row_group(0)
    assert [chunks.column(place).statistics is None for place in range(4)] == [False, True, True, False]
    source = open_source(IO, str(tmp_path / "wide.parquet"))
    assert pa.Table.from_batches(list(source.batches(rows.column_names, 10))).equals(rows)
    source.close()
