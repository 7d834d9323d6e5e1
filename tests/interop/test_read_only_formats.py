"""Tables whose files Java writes as JSON, CSV or text: we read them as Java does, and write Parquet files next to them.

Row files are in `test_newer_kinds`, because only Paimon 2.x has them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Catalog
from lsm_core.errors import UnsupportedFeature
from lsm_core.options.table_options import PaimonVersion
from tests.interop.test_file_formats import EARLY, FAR, FIELDS, MAPS, ROWS
from tests.support.peers import java_paimon

Java = Callable[..., dict[str, Any]]
ZONED = ("z3", "z6", "z9")
NESTED = ("a", "aa", "a9", "ann", "ar", "r")


def create(java: Java, file_format: str, fields: list[dict[str, Any]], keys: tuple[str, ...] = (), **more: str) -> None:
    options = {"bucket": "1" if keys else "-1", "file.format": file_format, "file.compression": "none", **more}
    java("create", schema={"fields": fields, "primaryKeys": list(keys), "options": options})


def columns_without(left_out: tuple[str, ...]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the fields and rows of every type, without some columns."""
    fields = [{"name": name, "type": kind} for name, kind in FIELDS.items() if name not in left_out]
    rows = [{name: value for name, value in row.items() if name not in left_out} for row in [*ROWS, EARLY, FAR]]
    return fields, rows


def require_twins(java: Java, warehouse: Path, fields: list[dict[str, Any]], keys: tuple[str, ...] = ()) -> None:
    """Require that a Parquet table with the rows that we read has for Java the rows of the table itself."""
    catalog = Catalog(str(warehouse))
    schema = {"fields": fields, "primaryKeys": list(keys), "options": {"bucket": "1" if keys else "-1"}}
    java("create", table="db.twin", schema=schema)
    catalog.table("db.twin").write(catalog.table("db.t").to_arrow())

    def rows_of(table: str) -> list[str]:
        rows = java("read", table=table)["rows"]
        return sorted(repr({n: sorted(v, key=repr) if n in MAPS and v else v for n, v in row.items()}) for row in rows)

    assert rows_of("db.twin") == rows_of("db.t")


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    ("file_format", "left_out", "keys"),
    [
        ("json", (*MAPS, *ZONED), ()),
        ("json", (*MAPS, *ZONED), ("id",)),
        ("csv", (*MAPS, *ZONED, *NESTED), ()),
    ],
)
def test_every_type_is_read(
    tmp_path: Path, java: Java, file_format: str, left_out: tuple[str, ...], keys: tuple[str, ...]
) -> None:
    fields, rows = columns_without(left_out)
    create(java, file_format, fields, keys)
    java("write", rows=rows, compact="none")
    require_twins(java, tmp_path, fields, keys)


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    ("file_format", "keys", "codec"), [("json", ("k",), "gzip"), ("csv", (), "none"), ("json", (), "bzip2")]
)
def test_turns_of_reads_writes_and_compactions(
    tmp_path: Path, java: Java, file_format: str, keys: tuple[str, ...], codec: str
) -> None:
    """Java writes its format, we write and compact to Parquet, and Java reads and compacts the mixture."""
    fields = [{"name": "k", "type": "INT NOT NULL"}, {"name": "v", "type": "STRING"}]
    create(java, file_format, fields, keys, **{"file.compression": codec, "compaction.min.file-num": "2"})
    texts = ['a,"b"', "ü", None, "x y", '"', " z", "a''b", "[1]", "{}"]
    expected: dict[int, Any] = dict(enumerate(texts))
    java("write", rows=[{"k": k, "v": v} for k, v in expected.items()], compact="none")
    table = Catalog(str(tmp_path)).table("db.t")

    def require_rows() -> None:
        assert dict(zip(*table.to_arrow().to_pydict().values(), strict=True)) == expected
        assert {row["k"]: row["v"] for row in java("read")["rows"]} == expected

    require_rows()
    assert table.to_arrow(columns=["v"], filter=pc.field("k") == 1).to_pylist() == [{"v": "ü"}]
    assert table.to_arrow(filter=pc.field("v").is_null()).column("k").to_pylist() == [2]
    table.write(pa.table({"k": pa.array([20], pa.int32()), "v": ["new"]}))
    expected[20] = "new"
    require_rows()
    table.compact(full=True)
    require_rows()
    java("write", rows=[{"k": 21, "v": "java"}], compact="none")
    expected[21] = "java"
    java("compact", full=True)
    require_rows()


@pytest.mark.paimon_java
def test_text_tables(tmp_path: Path, java: Java) -> None:
    create(java, "text", [{"name": "v", "type": "STRING"}])
    values = ["a", "", "x, y", "ü" * 10, "  "]
    java("write", rows=[{"v": value} for value in values], compact="none")
    table = Catalog(str(tmp_path)).table("db.t")
    assert table.to_arrow().column("v").to_pylist() == values == [row["v"] for row in java("read")["rows"]]
    table.write(pa.table({"v": ["\n", None]}))
    assert [row["v"] for row in java("read")["rows"]] == [*values, "\n", None]
    java("write", rows=[{"v": "two\nlines"}], compact="none")
    with pytest.raises(UnsupportedFeature, match="more lines than its 1 rows"):
        table.to_arrow()


@pytest.mark.paimon_java
def test_texts_that_java_does_not_read_back_are_refused(tmp_path: Path, java: Java) -> None:
    create(java, "csv", [{"name": "k", "type": "STRING NOT NULL"}, {"name": "v", "type": "STRING"}])
    java("write", rows=[{"k": "a", "v": ""}], compact="none")
    table = Catalog(str(tmp_path)).table("db.t")
    assert [row["v"] for row in java("read")["rows"]] == [None] == table.to_arrow().column("v").to_pylist()
    for row, reason in (({"k": "b", "v": "x\ny"}, "line break"), ({"k": "c", "v": "x\ry"}, "carriage return")):
        java("write", rows=[row], compact="none")
        with pytest.raises(UnsupportedFeature, match=rf"csv file .*{reason}.*'file.format' = 'parquet'"):
            table.to_arrow()
        java("rollback", snapshot=1)
    java("write", rows=[{"k": "", "v": "x"}], compact="none")
    with pytest.raises(UnsupportedFeature, match="an empty text of the NOT NULL column 'k'"):
        table.to_arrow()


@pytest.mark.paimon_java
def test_a_column_whose_text_has_no_time_zone_or_key_types_is_refused_alone(tmp_path: Path, java: Java) -> None:
    kinds = {"k": "INT", "m": FIELDS["m"], "z": FIELDS["z6"]}
    create(java, "json", [{"name": name, "type": kind} for name, kind in kinds.items()])
    java("write", rows=[{"k": 1, "m": [["a", 1]], "z": "2020-01-01T00:00:00Z"}], compact="none")
    table = Catalog(str(tmp_path)).table("db.t")
    for name, reason in (("m", "column 'm' of type MAP"), ("z", "time zone of its writer")):
        with pytest.raises(UnsupportedFeature, match=reason):
            table.to_arrow(columns=[name])
    assert table.to_arrow(columns=["k"]).column("k").to_pylist() == [1]


@pytest.mark.paimon_java
def test_csv_options(tmp_path: Path, java: Java) -> None:
    fields = [{"name": "k", "type": "INT"}, {"name": "v", "type": "STRING"}, {"name": "w", "type": "STRING"}]
    create(java, "csv", fields, **{"csv.field-delimiter": "|", "csv.null-literal": "NIL", "csv.quote-character": "'"})
    rows = [{"k": 1, "v": "a|b", "w": "'"}, {"k": 2, "v": "", "w": None}, {"k": 3, "v": "x", "w": "y"}]
    java("write", rows=rows, compact="none")
    seen = [{name: row[name] for name in ("k", "v", "w")} for row in java("read")["rows"]]
    assert Catalog(str(tmp_path)).table("db.t").to_arrow().to_pylist() == seen == rows


@pytest.mark.paimon_java
def test_csv_tables_with_a_key_are_wrong_in_java_and_refused(tmp_path: Path, java: Java) -> None:
    create(java, "csv", [{"name": "k", "type": "INT"}, {"name": "v", "type": "INT"}], ("k",))
    java("write", rows=[{"k": 1, "v": 100}, {"k": 2, "v": 200}], compact="none")
    if java_paimon().at_least(PaimonVersion.V2_0):
        assert [row["v"] for row in java("read")["rows"]] != [100, 200]
    with pytest.raises(UnsupportedFeature, match=r"'csv' in a table with a primary key: Paimon 2.0 and 2.1 read"):
        Catalog(str(tmp_path)).table("db.t").to_arrow()


@pytest.mark.paimon_java
def test_large_files_are_read_in_parts(tmp_path: Path, java: Java) -> None:
    create(java, "csv", [{"name": "k", "type": "INT"}, {"name": "v", "type": "STRING"}])
    count = 20_000
    java("write", rows=[{"k": k, "v": f"{k} " * 20} for k in range(count)], compact="none")
    rows = Catalog(str(tmp_path)).table("db.t").to_arrow()
    assert rows.num_rows == count
    assert pc.sum(rows.column("k")).as_py() == count * (count - 1) // 2
    assert rows.column("v")[count - 1].as_py() == f"{count - 1} " * 20
