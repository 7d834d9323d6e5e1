"""Values of options that the first write, or the first merge, would fail at are refused when a table is created or altered."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.errors import InvalidOption

COLUMNS = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string()), ("a", pa.list_(pa.int32()))]
)
ROWS = pa.table({"k": [1, 2], "v": [1, 2], "s": ["+I", "+I"], "a": [[1], None]}, schema=COLUMNS)
BAD = [
    ({"file.compression": "bogus"}, "file.compression", "zstd, snappy"),
    ({"file.compression": " "}, "file.compression", "zstd, snappy"),
    ({"file.format": "orc", "file.compression": "gzip"}, "file.compression", "for ORC"),
    ({"file.format": "avro", "file.compression": "lz4"}, "file.compression", "for Avro"),
    ({"file.compression.per.level": "0:bogus"}, "file.compression.per.level", "zstd"),
    ({"changelog-file.compression": "bogus"}, "changelog-file.compression", "zstd, snappy"),
    ({"file.format.per.level": "5:avro", "file.compression": "brotli"}, "file.compression", "for Avro"),
    ({"parquet.page.size": "0"}, "parquet.page.size", "at least 1 byte"),
    ({"parquet.page.size": "big"}, "parquet.page.size", "a size"),
    ({"orc.stripe.size": "0 kb"}, "orc.stripe.size", "at least 1 byte"),
    ({"orc.compress.size": "x"}, "orc.compress.size", "a size"),
    ({"rowkind.field": "v"}, "rowkind.field", "one text column of: s"),
    ({"rowkind.field": "a"}, "rowkind.field", "one text column"),
    ({"rowkind.field": "k,s"}, "rowkind.field", "one text column"),
    ({"rowkind.field": ""}, "rowkind.field", "one text column"),
    ({"data-file.prefix": "../x"}, "data-file.prefix", "plain file name"),
    ({"data-file.prefix": "a/b"}, "data-file.prefix", "plain file name"),
    ({"data-file.path-directory": "../x"}, "data-file.path-directory", "below the table's own"),
    ({"data-file.path-directory": "/x"}, "data-file.path-directory", "below the table's own"),
    ({"spill-compression": "bogus"}, "spill-compression", "lz4"),
    ({"sequence.field": "a"}, "sequence.field", "comparable"),
    ({"file-index.bloom-filter.columns": "a"}, "file-index.bloom-filter.columns", "columns of texts"),
    ({"file-index.bloom-filter.columns": ""}, "file-index.bloom-filter.columns", "columns of the table"),
]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path)
    made.create_database("db")
    return made


@pytest.mark.parametrize(("options", "key", "accepted"), BAD, ids=lambda value: str(value)[:40])
def test_a_value_that_no_write_could_use_is_refused_at_once(
    catalog: Catalog, options: dict[str, str], key: str, accepted: str
) -> None:
    with pytest.raises(InvalidOption, match=rf"'{key}' of table db\.t cannot be") as caught:
        catalog.create_table("db.t", Schema(COLUMNS, ["k"], options={"bucket": "1", **options}))
    assert caught.value.key == key
    assert accepted in caught.value.accepted
    assert catalog.list_tables("db") == []
    catalog.create_table("db.t", Schema(COLUMNS, ["k"], options={"bucket": "1"}))
    with pytest.raises(InvalidOption, match=rf"'{key}' of table db\.t cannot be"):
        catalog.alter_table("db.t", [SchemaChange.set_option(*pair) for pair in options.items()])
    catalog.table("db.t").write(ROWS)


@pytest.mark.parametrize("key", ["file.compression", "parquet.page.size", "spill-compression"])
def test_a_stored_value_hinders_neither_reads_nor_other_changes(catalog: Catalog, tmp_path: Path, key: str) -> None:
    catalog.create_table("db.t", Schema(COLUMNS, ["k"], options={"bucket": "1"})).write(ROWS)
    path = tmp_path / "db.db/t/schema/schema-0"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "options": {**stored["options"], key: "bogus"}}))
    catalog.alter_table("db.t", [SchemaChange.add_column("more", pa.int32())])
    table = catalog.table("db.t")
    assert table.to_arrow().num_rows == 2
    with pytest.raises(InvalidOption, match=rf"'{key}' of table db\.t"):
        table.write(ROWS)
    catalog.alter_table("db.t", [SchemaChange.remove_option(key)])
    assert catalog.table("db.t").write(ROWS) == 2


@pytest.mark.parametrize("count", ["0", "-1"])
def test_manifests_may_be_merged_from_none_on(catalog: Catalog, count: str) -> None:
    options = {"bucket": "1", "manifest.merge-min-count": count}
    table = catalog.create_table("db.t", Schema(COLUMNS, ["k"], options=options))
    assert [table.write(ROWS) for _ in range(3)] == [1, 2, 3]
    assert table.to_arrow().num_rows == 2
