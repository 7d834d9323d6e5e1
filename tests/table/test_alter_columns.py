"""Changing a table's columns: what the next schema holds, ids that are never used again, and Paimon's own refusals by column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsm_core import Catalog, Schema, SchemaChange, errors
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.types import parse

OPTIONS = {"bucket": "2", "sequence.field": "n", "file-index.bloom-filter.columns": "v"}
COLUMNS = [
    ("k", "BIGINT NOT NULL"),
    ("v", "STRING"),
    ("n", "INT"),
    ("dt", "STRING"),
    ("r", "ROW<x INT, y ROW<z STRING NOT NULL>>"),
    ("a", "ARRAY<INT>"),
    ("ar", "ARRAY<ROW<x INT>>"),
    ("m", "MAP<STRING NOT NULL, ROW<x INT>>"),
]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path, clock="fixed:1700000000000")
    made.create_database("db")
    return made


@pytest.fixture(autouse=True)
def _any_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about schemas, whatever readers and writers can do with them."""
    monkeypatch.setattr("lsm_core.table.catalog.require_possible", lambda store, purpose: None)
    monkeypatch.setattr("lsm_core.table.catalog.unsupported", lambda store, purpose: [])


def create(catalog: Catalog, **options: str) -> None:
    catalog.create_table("db.t", Schema(COLUMNS, ["k", "dt"], ["dt"], {**OPTIONS, **options}))


def alter(catalog: Catalog, *changes: SchemaChange) -> TableSchema:
    catalog.alter_table("db.t", changes)
    return catalog.table("db.t").schema


def types(schema: TableSchema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema.fields}


def column(schema: TableSchema, name: str) -> dict[str, Any]:
    return schema.field(name).to_object()


def test_a_new_tables_fields_are_numbered_as_paimon_numbers_them(catalog: Catalog) -> None:
    create(catalog)
    schema = catalog.table("db.t").schema
    assert [field.id for field in schema.fields] == [0, 1, 2, 3, 4, 8, 9, 11]
    assert schema.highest_field_id == 12
    inside = column(schema, "r")["type"]["fields"]
    assert [(f["name"], f["id"]) for f in inside] == [("x", 5), ("y", 7)]
    assert inside[1]["type"]["fields"][0]["id"] == 6


def test_columns_are_added_where_told_and_numbered_on(catalog: Catalog) -> None:
    create(catalog)
    schema = alter(
        catalog,
        SchemaChange.add_column("p", pa.int32(), comment="said"),
        SchemaChange.add_column("q", pa.float64(), first=True),
        SchemaChange.add_column("s", "VARCHAR(10)", after="k"),
        SchemaChange.add_column("u", "ROW<i INT, j ARRAY<ROW<g INT>>>", before="v"),
        SchemaChange.add_column("r.w", pa.date32(), after="x"),
        SchemaChange.add_column("r.y.w", pa.date32(), after="r.y.z"),
        SchemaChange.add_column(("ar", "element", "w"), pa.date32(), first=True),
        SchemaChange.add_column("m.value.w", pa.date32(), comment="deep"),
    )
    assert list(schema.field_names) == ["q", "k", "s", "u", "v", "n", "dt", "r", "a", "ar", "m", "p"]
    assert column(schema, "p") == {"id": 13, "name": "p", "type": "INT", "description": "said"}
    assert column(schema, "s") == {"id": 15, "name": "s", "type": "VARCHAR(10)"}
    assert column(schema, "u")["id"] == 16
    assert types(schema)["r"] == "ROW<`x` INT, `w` DATE, `y` ROW<`z` STRING NOT NULL, `w` DATE>>"
    assert types(schema)["ar"] == "ARRAY<ROW<`w` DATE, `x` INT>>"
    assert types(schema)["m"] == "MAP<STRING NOT NULL, ROW<`x` INT, `w` DATE 'deep'>>"
    assert schema.highest_field_id == 23


def test_new_columns_go_before_the_partition_when_the_table_says_so(catalog: Catalog) -> None:
    create(catalog, **{"add-column-before-partition": "true"})
    schema = alter(catalog, SchemaChange.add_column("c", pa.int8()), SchemaChange.add_column("d", pa.int8(), last=True))
    assert list(schema.field_names)[:5] == ["k", "v", "n", "c", "dt"]
    assert schema.field_names[-1] == "d"


def test_the_id_of_a_dropped_column_is_never_used_again(catalog: Catalog) -> None:
    create(catalog)
    schema = alter(catalog, SchemaChange.drop_column("m"), SchemaChange.add_column("m", pa.int32()))
    assert schema.field("m").id == 13
    schema = alter(catalog, SchemaChange.drop_column("m"))
    assert schema.highest_field_id == 13
    assert alter(catalog, SchemaChange.add_column("m", pa.int32())).field("m").id == 14


def test_ids_are_not_reused_when_another_writer_did_not_count_nested_fields(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog)
    path = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "highestFieldId": 7}))
    assert alter(catalog, SchemaChange.add_column("c", pa.int32())).field("c").id == 13


def test_columns_are_renamed_with_all_that_names_them(catalog: Catalog) -> None:
    create(
        catalog,
        **{
            "bucket-key": "k",
            "fields.n.stats-mode": "none",
            "fields.v,n.sequence-group": "a,r",
            "file-index.bloom-filter.columns": "v,n",
            "file-index.bloom-filter.n.items": "10",
            "record-level.time-field": "n",
            "fields.ar.nested-key": "x",
            "clustering.columns": "n,v",
            "my.n.option": "n",
        },
    )
    schema = alter(
        catalog,
        SchemaChange.rename_column("k", "key"),
        SchemaChange.rename_column("n", "number"),
        SchemaChange.rename_column("ar.element.x", "x2"),
        SchemaChange.rename_column("r.x", "x3"),
    )
    assert schema.primary_keys == ("key", "dt")
    assert [field.id for field in schema.fields] == [0, 1, 2, 3, 4, 8, 9, 11]
    assert types(schema)["ar"] == "ARRAY<ROW<`x2` INT>>"
    assert schema.options == {
        "bucket": "2",
        "bucket-key": "key",
        "sequence.field": "number",
        "fields.number.stats-mode": "none",
        "fields.v,number.sequence-group": "a,r",
        "file-index.bloom-filter.columns": "v,number",
        "file-index.bloom-filter.number.items": "10",
        "record-level.time-field": "number",
        "fields.ar.nested-key": "x2",
        "clustering.columns": "number,v",
        "my.n.option": "n",
    }


def test_columns_may_swap_names_step_by_step(catalog: Catalog) -> None:
    create(catalog)
    schema = alter(
        catalog,
        SchemaChange.rename_column("v", "tmp"),
        SchemaChange.rename_column("a", "v"),
        SchemaChange.rename_column("tmp", "a"),
    )
    assert (schema.field("v").id, schema.field("a").id) == (8, 1)


@pytest.mark.parametrize(
    ("change", "order"),
    [
        (SchemaChange.move("n"), "n k v dt"),
        (SchemaChange.move("n", first=True), "n k v dt"),
        (SchemaChange.move("n", after="k"), "k n v dt"),
        (SchemaChange.move("k", after="n"), "v n k dt"),
        (SchemaChange.move("n", before="v"), "k n v dt"),
        (SchemaChange.move("k", before="dt"), "v n k dt"),
    ],
)
def test_columns_move(catalog: Catalog, change: SchemaChange, order: str) -> None:
    create(catalog)
    assert " ".join(alter(catalog, change).field_names[:4]) == order


def test_columns_move_to_the_end_and_inside_rows(catalog: Catalog) -> None:
    create(catalog)
    schema = alter(catalog, SchemaChange.move("k", last=True), SchemaChange.move("r.y", before="r.x"))
    assert schema.field_names[-1] == "k"
    assert types(schema)["r"] == "ROW<`y` ROW<`z` STRING NOT NULL>, `x` INT>"


def test_types_nullability_comments_and_defaults_change(catalog: Catalog) -> None:
    create(catalog)
    schema = alter(
        catalog,
        SchemaChange.update_type("n", pa.int64()),
        SchemaChange.update_type("a.element", "BIGINT NOT NULL"),
        SchemaChange.update_type("m.value.x", pa.int64()),
        SchemaChange.update_nullability("r.y.z", nullable=True),
        SchemaChange.update_column_comment("v", "words"),
        SchemaChange.update_column_comment("r.x", "deep words"),
        SchemaChange.update_default("v", "none yet"),
        SchemaChange.set_comment("a table"),
    )
    assert types(schema)["n"] == "BIGINT"
    assert types(schema)["a"] == "ARRAY<BIGINT>"
    assert types(schema)["m"] == "MAP<STRING NOT NULL, ROW<`x` BIGINT>>"
    assert types(schema)["r"] == "ROW<`x` INT 'deep words', `y` ROW<`z` STRING>>"
    assert column(schema, "v") == {
        "id": 1,
        "name": "v",
        "type": "STRING",
        "description": "words",
        "defaultValue": "none yet",
    }
    assert schema.comment == "a table"
    schema = alter(catalog, SchemaChange.update_default("v", None), SchemaChange.update_column_comment("v", None))
    assert column(schema, "v") == {"id": 1, "name": "v", "type": "STRING"}


def test_a_column_becomes_not_null_only_where_the_table_allows_it_beforehand(catalog: Catalog) -> None:
    create(catalog)
    allow = SchemaChange.set_option("alter-column-null-to-not-null.disabled", "false")
    to_not_null = SchemaChange.update_nullability("v", nullable=False)
    for changes in ([to_not_null], [allow, to_not_null]):
        with pytest.raises(errors.InvalidSchema, match=r"'v'.*alter-column-null-to-not-null\.disabled"):
            alter(catalog, *changes)
    alter(catalog, allow)
    assert types(alter(catalog, to_not_null))["v"] == "STRING NOT NULL"
    schema = alter(catalog, SchemaChange.update_type("n", "BIGINT NOT NULL", keep_nullability=False))
    assert types(schema)["n"] == "BIGINT NOT NULL"


def test_only_widening_where_explicit_casts_are_disabled(catalog: Catalog) -> None:
    create(catalog, **{"disable-explicit-type-casting": "true"})
    assert types(alter(catalog, SchemaChange.update_type("n", pa.int64())))["n"] == "BIGINT"
    with pytest.raises(errors.InvalidSchema, match=r"'n'.*disable-explicit-type-casting"):
        alter(catalog, SchemaChange.update_type("n", pa.int8()))


def test_a_column_whose_name_holds_a_dot_is_one_column(catalog: Catalog) -> None:
    catalog.create_table(
        "db.t", Schema([("k", "INT NOT NULL"), ("a.b", "INT"), ("a", "ROW<b INT>")], ["k"], options=OPTIONS_PLAIN)
    )
    schema = alter(catalog, SchemaChange.rename_column("a.b", "c"), SchemaChange.add_column(("x.y",), pa.int32()))
    assert schema.field_names == ("k", "c", "a", "x.y")
    assert types(alter(catalog, SchemaChange.rename_column("a.b", "d")))["a"] == "ROW<`d` INT>"


OPTIONS_PLAIN = {"bucket": "1"}
REFUSED = {
    "add not null": (SchemaChange.add_column("c", "INT NOT NULL"), "'c' must be nullable"),
    "add twice": (SchemaChange.add_column("v", pa.int32()), "already has a column 'v'"),
    "add twice inside": (SchemaChange.add_column("r.x", pa.int32()), r"already has a column 'r\.x'"),
    "add into nothing": (SchemaChange.add_column("q.x", pa.int32()), "no column 'q'"),
    "add into a number": (SchemaChange.add_column("n.x", pa.int32()), "'n' is INT"),
    "add to an array itself": (SchemaChange.add_column("a.x", pa.int32()), "'a' is ARRAY"),
    "add behind nothing": (SchemaChange.add_column("c", pa.int32(), after="q"), "no column 'q'"),
    "add a reserved name": (SchemaChange.add_column("_VALUE_KIND", pa.int32()), "'_VALUE_KIND' is reserved"),
    "add a reserved prefix": (SchemaChange.add_column("_KEY_v", pa.int32()), "'_KEY_v' is reserved"),
    "add a blank": (SchemaChange.add_column("  ", pa.int32()), "blank"),
    "add no type": (SchemaChange.add_column("c", "TEXTILE"), "'c'.*TEXTILE"),
    "add an arrow type of no use": (SchemaChange.add_column("c", pa.null()), "'c'"),
    "add what is no type": (SchemaChange.add_column("c", 7), "'c'.*7"),
    "rename the partition": (SchemaChange.rename_column("dt", "c"), "partition column 'dt'"),
    "rename onto another": (SchemaChange.rename_column("v", "n"), "already has a column 'n'"),
    "rename onto itself": (SchemaChange.rename_column("v", "v"), "already has a column 'v'"),
    "rename nothing": (SchemaChange.rename_column("q", "c"), "no column 'q'"),
    "rename to reserved": (SchemaChange.rename_column("v", "rowkind"), "'rowkind' is reserved"),
    "rename an element": (SchemaChange.rename_column("a.element", "c"), "'a' is ARRAY"),
    "drop the key": (SchemaChange.drop_column("k"), "primary key column 'k'"),
    "drop the partition": (SchemaChange.drop_column("dt"), "partition column 'dt'"),
    "drop nothing": (SchemaChange.drop_column("q"), "no column 'q'"),
    "drop the last inside": (SchemaChange.drop_column("r.y.z"), r"'r\.y\.z' is the last column"),
    "drop an element": (SchemaChange.drop_column("ar.element"), "'ar' is ARRAY"),
    "type of the key": (SchemaChange.update_type("k", pa.int32()), "primary key column 'k'"),
    "type of the partition": (SchemaChange.update_type("dt", pa.int32()), "partition column 'dt'"),
    "type of nothing": (SchemaChange.update_type("q", pa.int32()), "no column 'q'"),
    "type without a cast": (SchemaChange.update_type("n", pa.date32()), "'n' of type INT cannot become DATE"),
    "type as a whole": (
        SchemaChange.update_type("a", pa.list_(pa.int64())),
        "'a' cannot become ARRAY<BIGINT> as a whole",
    ),
    "type of a map's key": (SchemaChange.update_type("m.key", pa.int64()), r"no column 'm\.key'.*only 'value'"),
    "type of a field of a number": (SchemaChange.update_type("r.x.q", pa.int64()), r"no column 'r\.x\.q'"),
    "key made nullable": (SchemaChange.update_nullability("k", nullable=True), "primary key column 'k'"),
    "element made not null": (SchemaChange.update_nullability("ar.element", nullable=False), r"'ar\.element'"),
    "default that is none": (SchemaChange.update_default("n", "many"), "'n'.*many"),
    "default inside that is none": (SchemaChange.update_default("r.x", "many"), r"'r\.x'.*many"),
    "move nothing": (SchemaChange.move("q"), "no column 'q'"),
    "move behind nothing": (SchemaChange.move("v", after="q"), "no column 'q'"),
    "move behind itself": (SchemaChange.move("v", after="v"), "'v' cannot be placed before or after itself"),
    "move first what is first": (SchemaChange.move("k"), "'k' cannot be placed before or after itself"),
    "no column at all": (SchemaChange.drop_column(()), "is not a column"),
    "an empty step": (SchemaChange.drop_column("r."), "is not a column"),
    "an unknown change": (SchemaChange("shuffle", "v"), "shuffle"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_paimon_refuses_is_refused_naming_the_column_and_nothing_is_written(catalog: Catalog, case: str) -> None:
    create(catalog)
    change, message = REFUSED[case]
    with pytest.raises(errors.InvalidSchema, match=message) as caught:
        catalog.alter_table("db.t", [SchemaChange.set_comment("half"), change])
    assert "db.t" in str(caught.value)
    assert catalog.table("db.t").schema.id == 0


def test_a_column_that_an_option_needs_is_not_dropped(catalog: Catalog) -> None:
    create(catalog)
    for name, option in (("n", r"sequence\.field"), ("v", r"file-index\.bloom-filter\.columns")):
        with pytest.raises(errors.InvalidOption, match=option):
            alter(catalog, SchemaChange.drop_column(name))
    schema = alter(catalog, SchemaChange.remove_option("sequence.field"), SchemaChange.drop_column("n"))
    assert not schema.has_field("n")


def test_settings_of_parquet_columns_follow_renamed_columns(catalog: Catalog) -> None:
    inner = pa.struct([("x", pa.string()), ("element", pa.string())])
    fields = pa.schema([("a", pa.string()), ("r", inner), ("l", pa.list_(inner))])
    options = {
        "parquet.compression#a": "gzip",
        "parquet.bloom.filter.enabled#r.x": "true",
        "parquet.enable.dictionary#l.list.element.x": "false",
        "parquet.compression": "zstd",
    }
    catalog.create_table("db.p", Schema(fields, options=options))
    changes = [(("a",), "A"), (("r",), "R"), (("R", "x"), "X"), (("l", "element", "x"), "y"), (("l",), "L")]
    catalog.alter_table("db.p", [SchemaChange.rename_column(path, name) for path, name in changes])
    table = catalog.table("db.p")
    assert {key: value for key, value in table.schema.options.items() if key.startswith("parquet.")} == {
        "parquet.compression#A": "gzip",
        "parquet.bloom.filter.enabled#R.X": "true",
        "parquet.enable.dictionary#L.list.element.y": "false",
        "parquet.compression": "zstd",
    }
    table.write([{"A": "1", "R": {"X": "v"}}])
    (path,) = Path(table.store.root).rglob("data-*.parquet")
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        columns = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    assert columns["A"].compression == "GZIP"


def test_a_renamed_key_is_still_a_key(catalog: Catalog) -> None:
    create(catalog)
    with pytest.raises(errors.InvalidSchema, match="primary key column 'key'"):
        alter(catalog, SchemaChange.rename_column("k", "key"), SchemaChange.drop_column("key"))
    assert alter(
        catalog, SchemaChange.rename_column("k", "k2"), SchemaChange.rename_column("k2", "k3")
    ).primary_keys == ("k3", "dt")


def test_the_type_of_a_bucket_key_stays(catalog: Catalog) -> None:
    catalog.create_table("db.t", Schema([("a", "INT"), ("b", "INT")], options={"bucket": "2", "bucket-key": "a"}))
    with pytest.raises(errors.InvalidSchema, match="'a' is a bucket key"):
        alter(catalog, SchemaChange.update_type("a", pa.int64()))


def test_only_one_place_can_be_given() -> None:
    with pytest.raises(errors.InvalidSchema, match="one of"):
        SchemaChange.add_column("c", pa.int32(), after="a", before="b")


def test_definitions_carry_comments_and_defaults(catalog: Catalog) -> None:
    fields = [DataField(7, "k", parse("INT NOT NULL"), "the key"), DataField(3, "v", parse("STRING"), None, "none")]
    catalog.create_table("db.t", Schema(fields, ["k"], options=OPTIONS_PLAIN))
    written = catalog.table("db.t").schema
    assert column(written, "k") == {"id": 0, "name": "k", "type": "INT NOT NULL", "description": "the key"}
    assert column(written, "v") == {"id": 1, "name": "v", "type": "STRING", "defaultValue": "none"}
    arrow = pa.schema([pa.field("k", pa.int32(), metadata={"description": "said"})])
    catalog.create_table("db.u", Schema(arrow))
    assert catalog.table("db.u").schema.field("k").description == "said"


def test_what_another_engine_left_behind_does_not_stop_other_changes(catalog: Catalog, tmp_path: Path) -> None:
    """Java renames a column and leaves its file index behind."""
    create(catalog)
    path = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    path.write_text(
        path.read_text().replace(
            '"file-index.bloom-filter.columns" : "v"', '"file-index.bloom-filter.columns" : "gone"'
        )
    )
    assert alter(catalog, SchemaChange.set_comment("why")).comment == "why"
    with pytest.raises(errors.InvalidOption, match=r"file-index\.bitmap\.columns"):
        alter(catalog, SchemaChange.set_option("file-index.bitmap.columns", "gone"))
