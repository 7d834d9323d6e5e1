"""Altering a table: options and comments change, what snapshots depend on does not, columns are refused by name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table, errors


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path, clock="fixed:1700000000000")
    made.create_database("db")
    fields = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
    made.create_table(
        "db.t", Schema(fields, primary_keys=["k"], options={"bucket": "2", "write.compaction-skip": "true"})
    )
    return made


def rows(table: Table) -> list[dict[str, object]]:
    return table.to_arrow().to_pylist()


def test_options_and_comment_change_and_rows_stay(catalog: Catalog) -> None:
    catalog.table("db.t").write(pa.table({"k": [1, 2], "v": ["a", "b"]}))
    catalog.alter_table(
        "db.t",
        [
            SchemaChange.set_option("num-sorted-run.compaction-trigger", "3"),
            SchemaChange.set_option("write-only", "false"),
            SchemaChange.set_comment("why it is"),
        ],
    )
    table = catalog.table("db.t")
    assert table.store.schema.id == 1
    assert table.store.schema.comment == "why it is"
    assert table.store.options.compaction_trigger == 3
    assert not table.store.options.write_only
    assert len(rows(table)) == 2
    assert table.write(pa.table({"k": [3], "v": ["c"]})) is not None
    catalog.alter_table(
        "db.t", [SchemaChange.remove_option("num-sorted-run.compaction-trigger"), SchemaChange.set_comment(None)]
    )
    again = catalog.table("db.t")
    assert (again.store.options.compaction_trigger, again.store.schema.comment) == (5, None)
    assert len(rows(again)) == 3


def test_a_change_that_changes_nothing_makes_no_schema(catalog: Catalog) -> None:
    catalog.alter_table("db.t", [SchemaChange.set_comment(None)])
    catalog.alter_table("db.t", [])
    assert catalog.table("db.t").store.schema.id == 0


def test_what_snapshots_depend_on_is_fixed_by_the_first_of_them(catalog: Catalog) -> None:
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "4")])
    table = catalog.table("db.t")
    table.write(pa.table({"k": [1], "v": ["a"]}))
    for key, value in {"bucket": "8", "merge-engine": "first-row", "bucket-key": "k"}.items():
        with pytest.raises(errors.InvalidOption, match=key):
            catalog.alter_table("db.t", [SchemaChange.set_option(key, value)])
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "4")])
    assert catalog.table("db.t").store.options.bucket == 4


@pytest.mark.parametrize(
    "change",
    [
        SchemaChange.add_column("c", pa.int32(), after="k", comment="new"),
        SchemaChange.rename_column("v", "w"),
        SchemaChange.drop_column("v"),
        SchemaChange.update_type("v", pa.binary()),
        SchemaChange.update_nullability("v", nullable=False),
        SchemaChange.update_default("v", "x"),
        SchemaChange.move("v"),
    ],
    ids=lambda change: change.action,
)
def test_changes_of_columns_are_refused_by_name_and_nothing_is_written(catalog: Catalog, change: SchemaChange) -> None:
    with pytest.raises(errors.UnsupportedFeature, match=change.action):
        catalog.alter_table("db.t", [SchemaChange.set_comment("half"), change])
    assert catalog.table("db.t").store.schema.id == 0


def test_bad_changes_name_the_thing(catalog: Catalog) -> None:
    with pytest.raises(errors.TableNotFound, match=r"db\.x"):
        catalog.alter_table("db.x", [SchemaChange.set_comment("c")])
    with pytest.raises(errors.InvalidOption, match=r"snapshot\.time-retained"):
        catalog.alter_table("db.t", [SchemaChange.set_option("snapshot.time-retained", "soon")])
    with pytest.raises(errors.InvalidOption, match=r"sequence\.field"):
        catalog.alter_table("db.t", [SchemaChange.set_option("sequence.field", "nope")])
    with pytest.raises(errors.UnsupportedFeature, match="changelog"):
        catalog.alter_table("db.t", [SchemaChange.set_option("changelog-producer", "input")])
    with pytest.raises(errors.InvalidSchema, match="primary-key"):
        catalog.alter_table("db.t", [SchemaChange.set_option("primary-key", "v")])
    assert catalog.table("db.t").store.schema.id == 0
