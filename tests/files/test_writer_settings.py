"""Settings of the writers of data files: `parquet.*` and `orc.*`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema
from lsm_core.errors import InvalidOption

ROWS = 30_000


def _written(root: Path, name: str, **options: str) -> Path:
    catalog = Catalog(str(root))
    catalog.create_database("db", ignore_if_exists=True)
    fields = pa.schema([("n", pa.int64()), ("text", pa.string())])
    table = catalog.create_table(f"db.{name}", Schema(fields, [], [], {"bucket": "-1", **options}))
    repeated = [f"value {number % 997} of the dictionary" for number in range(ROWS)]
    rows = pa.table({"n": range(ROWS), "text": repeated}, schema=fields)
    table.write(rows, compact=False)
    assert table.refresh().to_arrow().sort_by("n").equals(rows)
    (path,) = (root / "db.db" / name).glob("bucket-*/*")
    return path


def _has_dictionary(path: Path) -> bool:
    return bool(pq.ParquetFile(path).metadata.row_group(0).column(1).has_dictionary_page)


def test_pages_of_parquet_hold_the_rows_of_the_option(tmp_path: Path) -> None:
    plain = _written(tmp_path, "plain")
    short = _written(tmp_path, "short", **{"parquet.page.row.count.limit": "100"})
    assert short.stat().st_size > 1.5 * plain.stat().st_size  # 300 pages with their headers instead of a few
    for value in ("0", "many"):
        with pytest.raises(InvalidOption, match=r"parquet\.page\.row\.count\.limit"):
            _written(tmp_path, "bad", **{"parquet.page.row.count.limit": value})


def test_a_small_dictionary_ends_early(tmp_path: Path) -> None:
    plain = _written(tmp_path, "plain")
    small = _written(tmp_path, "small", **{"parquet.dictionary.page.size": "1 kb"})

    def encoded(path: Path) -> int:
        return int(pq.ParquetFile(path).metadata.row_group(0).column(1).total_uncompressed_size)

    assert _has_dictionary(plain)
    assert encoded(small) > 3 * encoded(plain)


def test_the_index_of_orc_has_an_entry_per_stride(tmp_path: Path) -> None:
    plain = _written(tmp_path, "plain", **{"file.format": "orc", "file.compression": "none"})
    dense = _written(
        tmp_path, "dense", **{"file.format": "orc", "file.compression": "none", "orc.row.index.stride": "1000"}
    )
    from pyarrow import orc

    assert (orc.ORCFile(str(plain)).row_index_stride, orc.ORCFile(str(dense)).row_index_stride) == (10_000, 1_000)


def _group(path: Path) -> pq.RowGroupMetaData:
    return pq.ParquetFile(path).metadata.row_group(0)


def test_codecs_of_parquet_columns(tmp_path: Path) -> None:
    options = {"parquet.compression": "GZIP", "parquet.compression#text": "snappy"}
    group = _group(_written(tmp_path, "codecs", **options))
    assert [group.column(index).compression for index in range(2)] == ["GZIP", "SNAPPY"]
    for key in options:
        with pytest.raises(InvalidOption, match=f"'{key}'"):
            _written(tmp_path, "bad", **{key: "lzo"})


def test_the_level_of_zstd_in_parquet(tmp_path: Path) -> None:
    sizes = [
        _written(tmp_path, f"level{level}", **{"parquet.compression.codec.zstd.level": level}).stat().st_size
        for level in ("1", "19")
    ]
    assert sizes[1] < sizes[0]
    with pytest.raises(InvalidOption, match=r"zstd\.level"):
        _written(tmp_path, "bad", **{"parquet.compression.codec.zstd.level": "99"})


def test_dictionaries_of_parquet_columns(tmp_path: Path) -> None:
    group = _group(_written(tmp_path, "swapped", **{"parquet.enable.dictionary#text": "false"}))
    assert [group.column(index).has_dictionary_page for index in range(2)] == [False, False]
    own = {"parquet.enable.dictionary": "false", "parquet.enable.dictionary#n": "true"}
    group = _group(_written(tmp_path, "own", **own))
    assert [group.column(index).has_dictionary_page for index in range(2)] == [True, False]


def test_row_groups_of_parquet_hold_the_bytes_of_the_option(tmp_path: Path) -> None:
    assert pq.ParquetFile(_written(tmp_path, "plain")).num_row_groups == 1
    assert pq.ParquetFile(_written(tmp_path, "blocks", **{"parquet.block.size": "64 kb"})).num_row_groups > 1


def test_second_version_of_parquet_pages(tmp_path: Path) -> None:
    path = _written(tmp_path, "pages", **{"parquet.writer.version": "PARQUET_2_0"})
    assert path.read_bytes() != _written(tmp_path, "plain").read_bytes()
    with pytest.raises(InvalidOption, match="v1, v2"):
        _written(tmp_path, "bad", **{"parquet.writer.version": "3"})


def test_bloom_filters_of_parquet_columns(tmp_path: Path) -> None:
    def lengths(name: str, **options: str) -> list[int | None]:
        group = _group(_written(tmp_path, name, **options))
        return [group.column(index).bloom_filter_length for index in range(2)]

    every, own = "parquet.bloom.filter.enabled", "parquet.bloom.filter.enabled#text"
    assert lengths("none") == [None, None]
    both = lengths("both", **{every: "true"})
    assert both[0] > both[1] > 1000
    assert lengths("one", **{own: "true"}) == [None, both[1]]
    few = lengths("few", **{own: "true", "parquet.bloom.filter.expected.ndv#text": "10"})
    assert 0 < few[1] < both[1] / 4
    loose = lengths("loose", **{every: "true", "parquet.bloom.filter.fpp": "0.5"})
    assert loose[0] < both[0]
    for value in ("0", "1", "x"):
        with pytest.raises(InvalidOption, match="fpp"):
            _written(tmp_path, "bad", **{"parquet.bloom.filter.fpp": value})


def test_settings_of_orc(tmp_path: Path) -> None:
    orc_file = {"file.format": "orc"}
    plain = _written(tmp_path, "plain", **orc_file).stat().st_size
    assert _written(tmp_path, "no_dict", **orc_file, **{"orc.dictionary.key.threshold": "0"}).stat().st_size != plain
    blooms = {"orc.bloom.filter.columns": "text, n", "orc.bloom.filter.fpp": "0.001"}
    assert _written(tmp_path, "bloom", **orc_file, **blooms).stat().st_size > plain + 10_000
    _written(tmp_path, "dense", **orc_file, **{"orc.compression.strategy": "COMPRESSION"})
    for key in ("orc.dictionary.key.threshold", "orc.bloom.filter.fpp", "orc.compression.strategy"):
        with pytest.raises(InvalidOption, match=key):
            _written(tmp_path, "bad", **orc_file, **{key: "7"})


def test_codec_of_avro(tmp_path: Path) -> None:
    path = _written(tmp_path, "deflate", **{"file.format": "avro", "avro.codec": "deflate"})
    assert b"deflate" in path.read_bytes()[:600]
    with pytest.raises(InvalidOption, match=r"avro\.codec"):
        _written(tmp_path, "bad", **{"file.format": "avro", "avro.codec": "lzo"})


def test_compactions_and_changelogs_use_the_settings(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.struct([("a", pa.list_(pa.string()))]))])
    options = {"bucket": "1", "changelog-producer": "full-compaction", "dredge.compaction.inline": "never"}
    options |= {"parquet.compression#k": "gzip", "parquet.bloom.filter.enabled#s.a.list.element": "true"}
    table = catalog.create_table("db.t", Schema(fields, ["k"], [], options))
    for text in ("a", "b"):
        table.refresh().write(pa.table({"k": range(50), "s": [{"a": [text]}] * 50}, schema=fields))
    table.refresh().compact(full=True)
    paths = sorted((tmp_path / "db.db/t/bucket-0").iterdir())
    assert {path.name.partition("-")[0] for path in paths} == {"data", "changelog"}
    for path in paths:
        group = _group(path)
        columns = {column["path_in_schema"]: column for column in group.to_dict()["columns"]}
        assert columns["k"]["compression"] == "GZIP"
        assert columns["s.a.list.element"]["compression"] == "ZSTD"
        names = list(columns)
        assert group.column(names.index("s.a.list.element")).bloom_filter_length
        assert group.column(names.index("k")).bloom_filter_length is None
    assert table.refresh().to_arrow().num_rows == 50
