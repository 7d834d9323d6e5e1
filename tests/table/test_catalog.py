"""A warehouse: what may be created, what is refused before a file is written, and how things are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.errors import (
    CorruptFile,
    DatabaseExists,
    DatabaseNotFound,
    InvalidData,
    InvalidOption,
    InvalidSchema,
    StorageRefused,
    TableExists,
    TableNotFound,
    UnsupportedFeature,
)
from lsm_core.types import DataType, RowField, TypeRoot

INT = DataType(TypeRoot.INT)
FIELDS = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string()), pa.field("dt", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path / "wh", clock="fixed:1700000000000")
    made.create_database("db")
    return made


def test_databases_and_tables_come_and_go(catalog: Catalog) -> None:
    with pytest.raises(DatabaseExists, match="database db"):
        catalog.create_database("db")
    catalog.create_database("db", ignore_if_exists=True)
    catalog.create_database("b2")
    assert catalog.list_databases() == ["b2", "db"]
    catalog.create_table("db.t", Schema(FIELDS, ["k"], options={"bucket": "1"}))
    catalog.create_table("db.a", Schema(FIELDS, options={"bucket": "-1"}))
    assert catalog.list_tables("db") == ["a", "t"]
    with pytest.raises(TableExists, match=r"db\.t"):
        catalog.create_table("db.t", Schema(FIELDS, ["k"], options={"bucket": "1"}))
    assert catalog.create_table("db.t", Schema(FIELDS), ignore_if_exists=True).primary_keys == ("k",)
    with pytest.raises(DatabaseExists, match="still holds 2 tables"):
        catalog.drop_database("db")
    catalog.rename_table("db.t", "b2.moved")
    with pytest.raises(TableExists, match=r"db\.a"):
        catalog.rename_table("b2.moved", "db.a")
    with pytest.raises(TableNotFound, match=r"db\.t"):
        catalog.rename_table("db.t", "db.x")
    catalog.drop_table("b2.moved")
    with pytest.raises(TableNotFound, match=r"b2\.moved"):
        catalog.drop_table("b2.moved")
    catalog.drop_table("b2.moved", ignore_if_not_exists=True)
    catalog.drop_database("b2")
    assert catalog.list_databases() == ["db"]
    with pytest.raises(DatabaseNotFound, match="b2"):
        catalog.drop_database("b2")


def test_a_database_goes_with_its_tables_only_when_told(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("db.t", Schema(FIELDS))
    (tmp_path / "wh" / "db.db" / "no-table").mkdir()
    assert catalog.list_tables("db") == ["t"]
    with pytest.raises(DatabaseExists, match="still holds 1 tables: t"):
        catalog.drop_database("db")
    catalog.drop_database("db", cascade=True)
    assert catalog.list_databases() == []


def test_lists_of_columns_are_stored_as_java_reads_them(catalog: Catalog) -> None:
    options = {"bucket": "2", "bucket-key": " k , v", "sequence.field": "dt ", "my.list": "a, b"}
    table = catalog.create_table("db.t", Schema(FIELDS, ["k", "v"], options=options))
    assert table.options == {"bucket": "2", "bucket-key": "k,v", "sequence.field": "dt", "my.list": "a, b"}


def test_what_is_missing_is_named_with_what_there_is(catalog: Catalog) -> None:
    catalog.create_table("db.orders", Schema(FIELDS, ["k"], options={"bucket": "1"}))
    with pytest.raises(TableNotFound, match=r"db\.order is not in .*database db has: orders"):
        catalog.table("db.order")
    with pytest.raises(DatabaseNotFound, match="it has: db"):
        catalog.table("nope.orders")
    with pytest.raises(UnsupportedFeature, match=r"\$nothing; known ones: .*\$files"):
        catalog.table("db.orders$nothing")
    with pytest.raises(DatabaseNotFound):
        catalog.list_tables("nope")


@pytest.mark.parametrize(
    "name", ["plain", ".t", "db.", "db.t$", "db.../x", "../db.t", "db.a/b", "db.\x00", "db.%2e%2e", "a$b.t"]
)
def test_names_that_are_none_are_refused(catalog: Catalog, name: str) -> None:
    with pytest.raises((InvalidSchema, DatabaseNotFound)):
        catalog.table(name)
    with pytest.raises((InvalidSchema, DatabaseNotFound, UnsupportedFeature)):
        catalog.create_table(name, Schema(FIELDS, options={"bucket": "-1"}))


@pytest.mark.parametrize("name", [None, 5, b"db.t"])
def test_names_that_are_no_text_are_refused(catalog: Catalog, name: Any) -> None:
    with pytest.raises(InvalidSchema, match="table name"):
        catalog.table(name)
    with pytest.raises(InvalidSchema, match="database name"):
        catalog.create_database(name)


def _schema(**changes: object) -> Schema:
    given = {"fields": FIELDS, "primary_keys": ["k"], "options": {"bucket": "1"}}
    return Schema(**{**given, **changes})


BAD = {
    "no columns": (_schema(fields=pa.schema([]), primary_keys=[]), InvalidSchema, "no columns"),
    "reserved name": (_schema(fields=FIELDS.append(pa.field("_VALUE_KIND", pa.int8()))), InvalidSchema, "_VALUE_KIND"),
    "reserved prefix": (_schema(fields=FIELDS.append(pa.field("_KEY_k", pa.int8()))), InvalidSchema, "_KEY_k"),
    "rowkind": (_schema(fields=FIELDS.append(pa.field("rowkind", pa.int8()))), InvalidSchema, "rowkind"),
    "twice": (_schema(fields=FIELDS.append(pa.field("v", pa.int8()))), InvalidSchema, "'v' is defined twice"),
    "blank": (_schema(fields=FIELDS.append(pa.field(" ", pa.int8()))), InvalidSchema, "blank"),
    "path": (_schema(options={"bucket": "1", "path": "/elsewhere"}), InvalidOption, "path"),
    "twice inside": (
        _schema(fields=FIELDS.append(pa.field("r", pa.struct([("x", pa.int8()), ("x", pa.int8())])))),
        InvalidSchema,
        r"'r\.x' is defined twice",
    ),
    "blank inside": (
        _schema(fields=FIELDS.append(pa.field("r", pa.list_(pa.struct([("", pa.int8())]))))),
        InvalidSchema,
        r"of r\.element has a blank name",
    ),
    "array as key": (
        _schema(fields=FIELDS.append(pa.field("l", pa.list_(pa.int8()))), primary_keys=["l"]),
        InvalidSchema,
        "primary key column 'l' cannot be of type ARRAY",
    ),
    "row as partition": (
        _schema(fields=FIELDS.append(pa.field("r", pa.struct([("x", pa.int8())]))), partition_keys=["r"]),
        InvalidSchema,
        "partition column 'r' cannot be of type ROW",
    ),
    "no type text": (_schema(fields=[("k", "INT"), ("v", "TEXTILE")]), InvalidSchema, "'v'.*TEXTILE"),
    "buckets without key": (_schema(primary_keys=[], options={"bucket": "2"}), InvalidOption, "bucket-key"),
    "key without buckets": (_schema(options={"bucket": "-1", "bucket-key": "k"}), InvalidOption, "bucket-key"),
    "postponed append": (_schema(primary_keys=[], options={"bucket": "-2"}), InvalidOption, "bucket"),
    "bucket key in partition": (
        _schema(primary_keys=["k", "dt"], partition_keys=["dt"], options={"bucket": "1", "bucket-key": "dt"}),
        InvalidOption,
        "bucket-key",
    ),
    "sequence twice": (_schema(options={"bucket": "1", "sequence.field": "v,v"}), InvalidOption, "sequence.field"),
    "option of no column": (
        _schema(options={"bucket": "1", "fields.x.ignore-retract": "true"}),
        InvalidOption,
        r"fields\.x\.ignore-retract",
    ),
    "index of no column": (
        _schema(options={"bucket": "1", "file-index.bloom-filter.columns": "x"}),
        InvalidOption,
        r"file-index\.bloom-filter\.columns",
    ),
    "changelog of append": (
        _schema(primary_keys=[], options={"changelog-producer": "input"}),
        InvalidOption,
        "changelog-producer",
    ),
    "expiry without partitions": (
        _schema(options={"bucket": "1", "partition.expiration-time": "1 d"}),
        InvalidOption,
        r"partition\.expiration-time",
    ),
    "vectors and first row": (
        _schema(options={"bucket": "1", "merge-engine": "first-row", "deletion-vectors.enabled": "true"}),
        InvalidOption,
        r"deletion-vectors\.enabled",
    ),
    "nanoseconds in avro": (
        _schema(
            fields=FIELDS.append(pa.field("n", pa.timestamp("ns"))), options={"bucket": "1", "file.format": "avro"}
        ),
        InvalidSchema,
        "'n'.*Avro",
    ),
    "spaces in avro": (
        _schema(fields=FIELDS.append(pa.field("a b", pa.int32())), options={"bucket": "1", "file.format": "avro"}),
        InvalidSchema,
        "Avro.*'a b'",
    ),
    "a digit first in avro": (
        _schema(
            fields=FIELDS.append(pa.field("r", pa.list_(pa.struct([("1a", pa.int32())])))),
            options={"bucket": "1", "file.format.per.level": "0:avro"},
        ),
        InvalidSchema,
        "Avro.*'1a'",
    ),
    "unknown key": (_schema(primary_keys=["x"]), InvalidSchema, "primary key column 'x'"),
    "key twice": (_schema(primary_keys=["k", "k"]), InvalidSchema, "twice"),
    "unknown partition": (_schema(partition_keys=["x"]), InvalidSchema, "partition column 'x'"),
    "key is partition": (_schema(primary_keys=["dt"], partition_keys=["dt"]), InvalidSchema, "only partition columns"),
    "unknown bucket key": (_schema(options={"bucket": "1", "bucket-key": "x"}), InvalidOption, "bucket-key"),
    "bucket key not key": (_schema(options={"bucket": "1", "bucket-key": "v"}), InvalidOption, "bucket-key"),
    "unknown sequence": (_schema(options={"bucket": "1", "sequence.field": "x"}), InvalidOption, "sequence.field"),
    "bucket text": (_schema(options={"bucket": "four"}), InvalidOption, "bucket"),
    "bucket zero": (_schema(options={"bucket": "0"}), InvalidOption, "bucket"),
    "duration": (
        _schema(options={"bucket": "1", "snapshot.time-retained": "1 parsec"}),
        InvalidOption,
        "time-retained",
    ),
    "no type": (_schema(fields=FIELDS.append(pa.field("n", pa.null()))), InvalidSchema, "'n'"),
    "engine": (_schema(options={"bucket": "1", "merge-engine": "replace"}), InvalidOption, "merge-engine"),
    "function": (
        _schema(options={"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "median"}),
        InvalidOption,
        "median",
    ),
    "callbacks": (_schema(options={"bucket": "1", "commit.callbacks": "a.B"}), UnsupportedFeature, "callbacks"),
    "format": (_schema(options={"bucket": "1", "file.format": "lance"}), UnsupportedFeature, "lance"),
    "cross partition": (
        _schema(partition_keys=["dt"], options={"bucket": "-2"}),
        UnsupportedFeature,
        "partition",
    ),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_tables_that_break_a_rule_are_refused_and_leave_nothing(catalog: Catalog, tmp_path: Path, case: str) -> None:
    schema, error, text = BAD[case]
    with pytest.raises(error, match=text):
        catalog.create_table("db.bad", schema)
    assert not (tmp_path / "wh" / "db.db" / "bad").exists()


def test_a_new_table_is_written_as_paimon_writes_it(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create_table(
        "db.t", Schema(FIELDS, ["dt", "k"], ["dt"], {"bucket": "2", "snapshot.num-retained.min": "3"}, "hello")
    )
    written = json.loads((tmp_path / "wh" / "db.db" / "t" / "schema" / "schema-0").read_text())
    assert written["fields"] == [
        {"id": 0, "name": "k", "type": "BIGINT NOT NULL"},
        {"id": 1, "name": "v", "type": "STRING"},
        {"id": 2, "name": "dt", "type": "STRING NOT NULL"},
    ]
    assert (written["version"], written["highestFieldId"], written["timeMillis"]) == (3, 2, 1700000000000)
    assert (written["primaryKeys"], written["partitionKeys"]) == (["dt", "k"], ["dt"])
    assert written["comment"] == "hello"
    assert table.options == {"bucket": "2", "snapshot.num-retained.min": "3"}
    assert table.partition_keys == ("dt",)


def test_keys_may_come_as_options_and_catalog_defaults_apply(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "wh", {"table-default.bucket": "3"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(FIELDS, options={"primary-key": "dt,k", "partition": "dt"}))
    assert (table.primary_keys, table.partition_keys, table.options) == (("dt", "k"), ("dt",), {"bucket": "3"})
    with pytest.raises(InvalidSchema, match="exclude each other"):
        catalog.create_table("db.u", Schema(FIELDS, ["k"], options={"primary-key": "k"}))


def test_other_storage_and_other_metastores_are_named() -> None:
    with pytest.raises(UnsupportedFeature, match="viewfs"):
        Catalog("viewfs://host/wh")
    with pytest.raises(InvalidOption, match=r"metastore.*glue.*filesystem, jdbc, rest, hive"):
        Catalog("/tmp/x", {"metastore": "glue"})
    with pytest.raises(InvalidOption, match="secrets"):
        Catalog("/tmp/x", {"s3.secret-key": "hunter2"})


def test_spaces_around_options_are_not_stored(tmp_path: Path) -> None:
    """Java opens no table of " 2 " buckets; in free text a space is a space."""
    given = {"bucket": " 2 ", "merge-engine": " deduplicate ", "metadata.stats-mode": " full", "file.format": "orc "}
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", _schema(options={**given, "partition.default-name": " x "}))
    kept = {key: table.options[key] for key in given}
    assert kept == {"bucket": "2", "merge-engine": "deduplicate", "metadata.stats-mode": "full", "file.format": "orc"}
    assert table.options["partition.default-name"] == " x "
    catalog.alter_table("db.t", [SchemaChange.set_option("num-levels", " 4 ")])
    assert catalog.table("db.t").options["num-levels"] == "4"


def test_names_that_java_gave_to_avro_files_may_stay(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    fields = FIELDS.append(pa.field("a b", pa.int32()))
    catalog.create_table("db.t", _schema(fields=fields, options={"bucket": "1", "note": "file.format"}))
    path = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    path.write_text(path.read_text().replace('"note" : "file.format"', '"file.format" : "avro"'))
    catalog.alter_table("db.t", [SchemaChange.set_comment("still there"), SchemaChange.add_column("é1", pa.int32())])
    with pytest.raises(InvalidSchema, match=r"Avro.*'c d'"):
        catalog.alter_table("db.t", [SchemaChange.add_column("c d", pa.int32())])


@pytest.mark.parametrize("link", ["table", "database"])
def test_a_symbolic_link_is_shown_and_read_but_neither_dropped_nor_moved(
    tmp_path: Path, catalog: Catalog, link: str
) -> None:
    table = catalog.create_table("db.t", Schema(FIELDS, ["k"], options={"bucket": "1"}))
    place, linked = (tmp_path / "wh/db.db/t", "db.t") if link == "table" else (tmp_path / "wh/db.db", "db")
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    table.write(pa.table({"k": [1], "v": ["a"], "dt": ["d"]}, schema=table.schema.arrow_schema))
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert catalog.list_databases() == ["db"]
    assert catalog.list_tables("db") == ["t"]
    assert catalog.table("db.t").to_arrow().num_rows == 1
    refused = StorageRefused if link == "table" else (StorageRefused, CorruptFile)
    with pytest.raises(refused, match=rf"{place}.* symbolic link"):
        catalog.drop_table("db.t")
    with pytest.raises(StorageRefused, match=rf"{place}.* symbolic link"):
        catalog.drop_database("db", cascade=True)
    if link == "table":
        with pytest.raises(StorageRefused, match=f"cannot move {place}: it is a symbolic link"):
            catalog.rename_table(linked, "db.other")
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    assert catalog.list_tables("db") == ["t"]


def test_a_link_that_leads_nowhere_is_one_entry_and_hides_no_other(tmp_path: Path, catalog: Catalog) -> None:
    catalog.create_table("db.t", Schema(FIELDS, ["k"], options={"bucket": "1"}))
    (tmp_path / "wh/db.db/loop").symlink_to("loop")
    (tmp_path / "wh/db.db/notes").write_text("no table")
    (tmp_path / "wh/db.db/link-to-notes").symlink_to("notes")
    (tmp_path / "wh/db.db/gone").symlink_to("nowhere")
    assert catalog.list_tables("db") == ["loop", "t"]
    assert catalog.table("db.t").schema.field_names == ("k", "v", "dt")
    with pytest.raises(CorruptFile, match=r"db.db/loop/.*symbolic links"):
        catalog.table("db.loop")
    plan = catalog.plan_maintenance("db", ["compact"])
    assert {line.subject: line.reason for line in plan.declined} == {"db.loop": "failed", "db.t": "nothing"}
    (tmp_path / "wh/round.db").symlink_to("round.db")
    assert [row["table_name"] for row in catalog.table("sys.tables").to_arrow().to_pylist()] == ["loop", "t"]


HALF = "\ud800"


def test_half_a_character_is_refused_naming_what_holds_it(catalog: Catalog) -> None:
    def create(name: str = "db.t", comment: str | None = None, **options: str) -> None:
        catalog.create_table(name, Schema(FIELDS, ["k"], options={"bucket": "1", **options}, comment=comment))

    columns = [("k", "INT NOT NULL"), ("v" + HALF, "ROW<a INT>")]
    inner = [("k", "INT NOT NULL"), ("v", DataType(TypeRoot.ROW, fields=(RowField(2, "a" + HALF, INT),)))]
    refused = {
        r"the part 'n\\ud800'": lambda: catalog.create_database("n" + HALF),
        r"db\.n\\ud800.* the part": lambda: create("db.n" + HALF),
        r"db\.t: the name of option 'o\\ud800'": lambda: create(**{"o" + HALF: "x"}),
        r"db\.t: the value of option 'o': 'x\\ud800'": lambda: create(o="x" + HALF),
        r"db\.t: comment '\\ud800'": lambda: create(comment=HALF),
        r"db\.t: the name of column 'v\\ud800'": lambda: catalog.create_table("db.t", Schema(columns, ["k"])),
        r"db\.t: the name of column 'a\\ud800'": lambda: catalog.create_table("db.t", Schema(inner, ["k"])),
    }
    for message, act in refused.items():
        with pytest.raises(InvalidSchema, match=message):
            act()
    assert (catalog.list_databases(), catalog.list_tables("db")) == (["db"], [])
    create()
    for change, message in (
        (SchemaChange.set_option("o", HALF), "the value of option 'o'"),
        (SchemaChange.set_comment(HALF), "comment"),
        (SchemaChange.update_column_comment("v", HALF), "the comment of column 'v'"),
        (SchemaChange.update_default("v", HALF), "the default of column 'v'"),
    ):
        with pytest.raises(InvalidSchema, match=f"db.t: {message}"):
            catalog.alter_table("db.t", [change])
    table = catalog.table("db.t")
    with pytest.raises(InvalidData, match="a property of the commit"):
        table.write({"k": [1], "v": ["a"], "dt": ["d"]}, properties={"by": HALF})
    with pytest.raises(InvalidData, match="commit user"):
        table.new_stream_commit(HALF)
    assert (table.schema.id, table.snapshots()) == (0, [])


@pytest.mark.parametrize("name", ["db. ", "db.\t", "db.\u00a0", " .t", "db.t$branch_ "])
def test_a_blank_name_is_none(catalog: Catalog, name: str) -> None:
    with pytest.raises(InvalidSchema, match="cannot be a name"):
        catalog.create_table(name, Schema(FIELDS, ["k"], options={"bucket": "1"}))
    with pytest.raises(InvalidSchema, match="cannot be a name"):
        catalog.create_database(" ")
    assert catalog.list_databases() == ["db"]


def test_options_that_are_not_acted_on_are_warned_about_when_they_come(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"bucket": "1", "metastore.tag-to-partition": "dt", "page-size": "64 kb"}
    catalog.create_table("db.t", Schema(FIELDS, ["k"], options=options))
    (messages,) = caplog.messages
    assert messages == "table db.t: options that are kept but not acted on here: 'metastore.tag-to-partition' = 'dt'"
    caplog.clear()
    catalog.alter_table("db.t", [SchemaChange.set_option("num-levels", "7"), SchemaChange.set_comment("c")])
    catalog.table("db.t")
    assert caplog.messages == []
    catalog.alter_table("db.t", [SchemaChange.set_option("lookup.hash-load-factor", "0.5")])
    (messages,) = caplog.messages
    assert messages.endswith("not acted on here: 'lookup.hash-load-factor' = '0.5'")


def test_one_table_that_cannot_be_read_hides_no_other(
    tmp_path: Path, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        table = catalog.create_table(f"db.{name}", Schema(FIELDS, partition_keys=["dt"], options={"my.own": name}))
        table.write(pa.table({"k": [1], "v": ["a"], "dt": ["d"]}, schema=FIELDS))
    (tmp_path / "wh/db.db/a/schema/schema-0").write_text('{"version": ' + "9" * 5000 + "}")
    (tmp_path / "wh/db.db/b/snapshot/snapshot-1").write_bytes(b"\xff")
    caplog.clear()
    assert catalog.table("sys.tables").to_arrow()["partitioned"].to_pylist() == [None, True, True]
    owned = catalog.table("sys.all_table_options").to_arrow(filter=[("key", "=", "my.own")])
    assert owned["value"].to_pylist() == ["b", "c"]
    assert catalog.table("sys.partitions").to_arrow()["table_name"].to_pylist() == ["c"]
    assert {text.split()[1] for text in caplog.messages if text.startswith("table ")} == {"db.a", "db.b"}
