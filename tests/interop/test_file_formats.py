"""Every format with every type: we read Java's files, Java reads ours, and both record the same statistics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.commit import CommitMessage, Committer
from lsm_core.files import AppendFileWriter, open_append
from lsm_core.format.binary_row import decode_row
from lsm_core.format.manifest import DataFileMeta, ManifestEntry, table_to_entries
from lsm_core.metadata import manifests, snapshots, support
from lsm_core.metadata.store import TableStore
from lsm_core.options.table_options import PaimonVersion
from lsm_core.storage import LocalFileIO
from lsm_core.types import TypeRoot
from tests.support.peers import java_paimon

Java = Callable[..., dict[str, Any]]
Row = dict[str, Any]


def row_type(**fields: Any) -> dict[str, Any]:
    return {"type": "ROW", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def array(element: Any) -> dict[str, Any]:
    return {"type": "ARRAY", "element": element}


def mapping(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "MAP", "key": key, "value": value}


LTZ = "WITH LOCAL TIME ZONE"
FIELDS: dict[str, Any] = {
    "id": "INT NOT NULL",
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "big": "BIGINT",
    "ratio": "FLOAT",
    "amount": "DOUBLE",
    "d9": "DECIMAL(9,2)",
    "d18": "DECIMAL(18,6)",
    "d38": "DECIMAL(38,10)",
    "code": "CHAR(5)",
    "name": "VARCHAR(40)",
    "note": "STRING",
    "fixed": "BINARY(4)",
    "short": "VARBINARY(30)",
    "blob": "BYTES",
    "day": "DATE",
    "clock": "TIME(3)",
    "clock0": "TIME(0)",
    "t0": "TIMESTAMP(0)",
    "t3": "TIMESTAMP(3)",
    "t6": "TIMESTAMP(6)",
    "t9": "TIMESTAMP(9)",
    "z3": f"TIMESTAMP(3) {LTZ}",
    "z6": f"TIMESTAMP(6) {LTZ}",
    "z9": f"TIMESTAMP(9) {LTZ}",
    "a": array("INT"),
    "aa": array(array("STRING")),
    "a9": array("TIMESTAMP(9)"),
    "ann": array("INT NOT NULL"),
    "ar": array(row_type(f="BOOLEAN", g="DATE")),
    "m": mapping("STRING", "INT"),
    "mi": mapping("INT", row_type(p="STRING", q="DECIMAL(20,2)")),
    "md": mapping("DATE", "TIMESTAMP(3)"),
    "mnn": mapping("STRING", "INT NOT NULL"),
    "bag": {"type": "MULTISET", "element": "STRING"},
    "numbers": {"type": "MULTISET", "element": "INT"},
    "r": row_type(x="INT", t="TIMESTAMP(6)", c="TIME(3)", n=row_type(u="STRING", v=array("DOUBLE"))),
}
MAPS = ("m", "mi", "md", "mnn", "bag", "numbers")
ROWS: list[Row] = [
    {
        "id": 1,
        "flag": True,
        "tiny": -128,
        "small": 32767,
        "big": -(2**63),
        "ratio": 1.5,
        "amount": -2.25,
        "d9": "-9999999.99",
        "d18": "1.000001",
        "d38": "-9999999999999999999999999999.0000000001",
        "code": "zzüzz",
        "name": "ü水🧊",
        "note": "x" * 50,
        "fixed": "00ff00ff",
        "short": "0a",
        "blob": "",
        "day": "0001-01-01",
        "clock": "23:59:59.999",
        "clock0": "12:00:00",
        "t0": "2020-01-01T00:00:00",
        "t3": "1900-01-01T00:00:01",
        "t6": "1969-12-31T23:59:59",
        "t9": "2261-04-11T23:47:16.854775807",
        "z3": "1900-01-01T00:00:01Z",
        "z6": "2000-02-29T23:59:59.999999Z",
        "z9": "2001-01-01T00:00:00.000000001Z",
        "a": [1, None, 3],
        "aa": [["a", None], [], None],
        "a9": ["2020-01-01T00:00:00.123456789", None],
        "ann": [1, 2],
        "ar": [None, {"f": True, "g": "2020-01-01"}],
        "m": [["a", 1], ["b", None]],
        "mi": [[5, {"p": "x", "q": "1.50"}], [7, None]],
        "md": [["1999-01-01", "2020-01-01T00:00:00.5"]],
        "mnn": [["q", 7]],
        "bag": [["k", 3]],
        "numbers": [[4, 2]],
        "r": {"x": 1, "t": "2020-01-01T00:00:00.123456", "c": "01:02:03.004", "n": {"u": None, "v": [1.0, None]}},
    },
    {"id": 2},
    {"id": 3, "ratio": -0.0, "amount": 0.0, "note": "", "r": {"n": None}, **{name: [] for name in (*MAPS, "a", "ar")}},
    {"id": 4, "amount": "-Infinity", "d9": "0.01", "note": "a" * 17, "t6": "2024-05-05T05:05:05.000005"},
]
EARLY: Row = {"id": 5, "t6": "1969-12-31T23:59:59.5", "t3": "1900-01-01T00:00:00.001", "ratio": "NaN", "amount": "NaN"}
FAR: Row = {"id": 6, "t6": "9999-12-31T23:59:59.999999", "t3": "0001-01-01T00:00:00"}


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    ("form", "left_out", "rows"),
    [
        (
            "parquet",
            (),
            [*ROWS, EARLY, FAR, {"id": 7, "t9": "1969-12-31T23:59:59.25", "z9": "1969-12-31T23:59:57.25Z"}],
        ),
        ("orc", ("r",), ROWS),
        ("orc", ("r", "code"), [*ROWS, EARLY]),
        ("orc", (), ROWS),
        ("avro", ("t9", "z9", "a9", "numbers"), [*ROWS, EARLY, FAR]),
    ],
    ids=["parquet", "orc", "orc-early", "orc-nested", "avro"],
)
def test_every_type_crosses_in_every_format(
    tmp_path: Path, java: Java, monkeypatch: pytest.MonkeyPatch, form: str, left_out: tuple[str, ...], rows: list[Row]
) -> None:
    for check in ("_unsupported_by_schema", "_unsupported_files"):
        monkeypatch.setattr(support, check, lambda *_: iter(()))
    fields = [{"name": name, "type": kind} for name, kind in FIELDS.items() if name not in left_out]
    given = [{name: value for name, value in row.items() if name not in left_out} for row in rows]
    java("create", schema={"fields": fields, "primaryKeys": [], "options": {"bucket": "-1", "file.format": form}})
    java("write", rows=given, compact="none")
    store = TableStore.open(LocalFileIO(), str(tmp_path / "db.db" / "t"), "db.t")
    latest = snapshots.latest(store)
    assert latest is not None
    (entry,) = table_to_entries(manifests.live_entries(store, latest))
    (mine,) = rewritten(store, entry)
    stays = form != "orc" or (left_out and EARLY not in rows)
    assert mine.file_name.endswith(f".{form if stays else 'parquet'}")
    if stays:
        assert mine.value_stats_cols == entry.file.value_stats_cols
        assert mine.value_stats == entry.file.value_stats
        if java_paimon().at_least(PaimonVersion.V2_0) and form != "orc":
            assert _has_bounds_of_bytes(store, mine)
    message = CommitMessage(entry.partition, entry.bucket, entry.total_buckets, new_files=(mine,))
    Committer(store).commit([message])
    copies: dict[int, list[str]] = defaultdict(list)
    for row in java("read")["rows"]:
        copies[row["id"]].append(repr({name: _canonical(name, value) for name, value in row.items()}))
    assert sorted(copies) == [row["id"] for row in given]
    for both in copies.values():
        assert len(both) == 2
        assert both[0] == both[1]


def rewritten(store: TableStore, entry: ManifestEntry) -> list[DataFileMeta]:
    """The rows of a Java file, read and written by us into a second one."""
    writer = AppendFileWriter(store, entry.partition, entry.bucket, entry.total_buckets, 0)
    for batch in open_append(store, entry.partition, entry.bucket, entry.file, batch_rows=3):
        writer.write(batch)
    return writer.close()


def _has_bounds_of_bytes(store: TableStore, file: DataFileMeta) -> bool:
    """Return whether a file's statistics have bounds of BINARY columns, which Java writes since 2.0."""
    kinds = [store.schema.field(name).type for name in file.value_stats_cols or store.schema.field_names]
    values = decode_row(file.value_stats.max_values, kinds)
    of_bytes = (TypeRoot.BINARY, TypeRoot.VARBINARY)
    return any(value is not None and kind.root in of_bytes for value, kind in zip(values, kinds, strict=True))


def _canonical(name: str, value: Any) -> Any:
    return sorted(value, key=repr) if name in MAPS and value else value


@pytest.mark.paimon_java
@pytest.mark.parametrize(
    ("form", "codecs"),
    [
        ("parquet", ["zstd", "snappy", "gzip", "lz4", "lz4_raw", "none"]),
        ("orc", ["zstd", "zlib", "snappy", "lz4", "none"]),
        ("avro", ["zstd", "snappy", "deflate", "bzip2", "null"]),
    ],
)
def test_every_codec_of_java_is_read_in_data_files_and_manifests(
    tmp_path: Path, java: Java, form: str, codecs: list[str]
) -> None:
    """Manifests are Avro whatever the data is: both options take the codec where Avro has it."""
    fields = [{"name": "k", "type": "INT NOT NULL"}, *({"name": f"value_{i}", "type": "STRING"} for i in range(30))]
    rows = [{"k": k, **{f"value_{i}": "the same again" * i for i in range(30)}} for k in range(200)]
    for codec in codecs:
        options = {"bucket": "1", "file.format": form, "file.compression": codec}
        if form == "avro":
            options["manifest.compression"] = codec
        name = f"db.t_{form}_{codec}"
        schema = {"fields": fields, "primaryKeys": ["k"], "partitionKeys": [], "options": options}
        java("create", table=name, schema=schema)
        java("write", table=name, rows=rows, compact="none")
        table = Catalog(tmp_path).table(name)
        assert sorted(table.to_arrow().to_pylist(), key=lambda row: int(row["k"])) == rows, codec
        table.write(pa.Table.from_pylist([{**rows[0], "k": 999}], schema=table.schema.arrow_schema))
        assert len(java("read", table=name)["rows"]) == 201, codec
