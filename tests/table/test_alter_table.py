"""Altering a table: options and comments change, what snapshots depend on does not, and what others alter meanwhile counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
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
    for key, value in {"bucket": "-1", "merge-engine": "first-row", "bucket-key": "k"}.items():
        with pytest.raises(errors.InvalidOption, match=key):
            catalog.alter_table("db.t", [SchemaChange.set_option(key, value)])
        with pytest.raises(errors.InvalidOption, match=key) if key == "bucket" else nullcontext():
            catalog.alter_table("db.t", [SchemaChange.remove_option(key)])
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "4")])
    assert catalog.table("db.t").store.schema.id == 1
    assert catalog.table("db.t").store.options.bucket == 4


def test_another_number_of_buckets_holds_for_partitions_that_are_overwritten(catalog: Catalog) -> None:
    fields = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("v", pa.string())])
    catalog.create_table("db.p", Schema(fields, ["k", "p"], ["p"], {"bucket": "2"}))
    old = catalog.table("db.p")
    old.write(pa.table({"k": range(20), "p": [n % 2 for n in range(20)], "v": ["a"] * 20}))
    catalog.alter_table("db.p", [SchemaChange.set_option("bucket", "5")])
    table = catalog.table("db.p")
    new_rows = pa.table({"k": range(20), "p": [0] * 20, "v": ["b"] * 20})
    with pytest.raises(errors.WriterStale, match="5"):
        table.write(new_rows)
    table.write(new_rows, overwrite={"p": 0})
    with pytest.raises(errors.DredgeError, match="buckets"):
        old.write(new_rows)
    assert table.to_arrow(filter=[("p", "=", 0)]).num_rows == 20
    assert table.to_arrow(filter=[("p", "=", 1)]).num_rows == 10
    for key in range(20):
        assert table.to_arrow(filter=[("p", "=", 0), ("k", "=", key)]).column("v").to_pylist() == ["b"]
        assert table.to_arrow(filter=[("p", "=", 1), ("k", "=", key)]).num_rows == key % 2


def test_a_table_opened_before_the_alteration_does_not_rewrite_files_by_the_old_one(catalog: Catalog) -> None:
    old = catalog.table("db.t")
    for value in "abc":
        old.write(pa.table({"k": [1], "v": [value]}))
    catalog.alter_table("db.t", [SchemaChange.set_comment("nothing that rewriting depends on")])
    assert old.compact(full=True).snapshot_id is not None
    old.write(pa.table({"k": [1], "v": ["d"]}))
    catalog.alter_table("db.t", [SchemaChange.set_option("sequence.field", "v")])
    with pytest.raises(errors.WriterStale, match="open it again"):
        old.compact(full=True)
    assert catalog.table("db.t").compact(full=True).snapshot_id is not None


def test_a_table_opened_before_the_alteration_reads_no_value_that_its_columns_cannot_tell(catalog: Catalog) -> None:
    old = catalog.table("db.t")
    old.write(pa.table({"k": [1], "v": ["a"]}))
    old.upsert(pa.table({"k": [2], "v": ["b"]}))
    catalog.alter_table("db.t", [SchemaChange.add_column("n", pa.int32())])
    catalog.table("db.t").write(pa.table({"k": [3], "v": ["c"], "n": pa.array([1], pa.int32())}))
    with_int = catalog.table("db.t")
    assert [row["v"] for row in sorted(rows(old), key=str)] == ["a", "b", "c"]
    for change in (lambda: old.update([("k", "=", 3)], {"v": "z"}), lambda: old.delete([("v", "=", "c")])):
        with pytest.raises(
            errors.WriterStale, match=r"db\.t was opened with schema 0 and has schema 1 now: open it again"
        ):
            change()  # an UPDATE would write the row without its n
    catalog.alter_table("db.t", [SchemaChange.update_type("n", "BIGINT")])
    catalog.table("db.t").write(pa.table({"k": [3], "v": ["c"], "n": [2]}))
    assert sorted(row["n"] or 0 for row in rows(with_int)) == [0, 0, 2]  # what fits is read as the type of then
    catalog.table("db.t").write(pa.table({"k": [4], "v": ["d"], "n": [2**40 + 7]}))
    for read in (
        with_int.to_arrow,
        lambda: with_int.to_arrow(["k"], [("n", ">", 7)]),
        lambda: with_int.lookup(pa.table({"k": [4]})),
    ):
        with pytest.raises(
            errors.InvalidSchema, match=r"db\.t: column 'n' was changed from INT to BIGINT .*: 1099511627783 is no INT"
        ):
            read()
    assert with_int.to_arrow(["k", "v"]).num_rows == with_int.lookup(pa.table({"k": [1, 2, 3, 4]}), ["v"]).num_rows == 4
    assert (
        with_int.to_arrow(snapshot_id=5).column("n").type == pa.int64()
    )  # a version that was asked for has its own columns
    catalog.alter_table("db.t", [SchemaChange.drop_column("v")])
    catalog.alter_table("db.t", [SchemaChange.add_column("v", pa.string())])
    catalog.table("db.t").write(pa.table({"k": [5], "n": [1], "v": ["new"]}))
    with pytest.raises(errors.InvalidSchema, match="column 'v' was dropped and added again"):
        old.to_arrow()
    assert len(rows(catalog.table("db.t"))) == 5


def test_a_writer_opened_before_the_alteration_commits_what_it_wrote(catalog: Catalog) -> None:
    table = catalog.table("db.t")
    with table.new_write() as writer:
        writer.write(pa.table({"k": [1], "v": ["a"]}))
        catalog.alter_table("db.t", [SchemaChange.add_column("c", pa.int32())])
        table.new_commit().commit(writer.prepare_commit())
    snapshot = catalog.table("db.t").latest_snapshot()
    assert snapshot is not None
    assert snapshot.schema_id == 1
    assert catalog.table("db.t$files").to_arrow()["schema_id"].to_pylist() == [0]


def test_an_option_replaces_its_old_name(catalog: Catalog) -> None:
    catalog.alter_table("db.t", [SchemaChange.set_option("write-only", "false")])
    assert catalog.table("db.t").schema.options == {"bucket": "2", "write-only": "false"}
    catalog.alter_table("db.t", [SchemaChange.remove_option("write.compaction-skip")])
    assert catalog.table("db.t").schema.options == {"bucket": "2"}


def test_alterations_at_the_same_time_all_happen(catalog: Catalog) -> None:
    def alter(number: int) -> None:
        catalog.alter_table("db.t", [SchemaChange.add_column(f"c{number}", pa.int32())])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(alter, range(24)))
    schema = catalog.table("db.t").schema
    assert schema.id == 24
    assert sorted(f.id for f in schema.fields) == list(range(26))
    assert set(schema.field_names) == {"k", "v", *(f"c{n}" for n in range(24))}


def test_an_alteration_lost_to_a_twin_is_refused_by_what_the_twin_did(catalog: Catalog) -> None:
    catalog.alter_table("db.t", [SchemaChange.add_column("c", pa.int32())])
    with pytest.raises(errors.InvalidSchema, match="already has a column 'c'"):
        catalog.alter_table("db.t", [SchemaChange.add_column("c", pa.int32())])


def test_a_schema_file_that_is_damaged_or_gone_is_named(catalog: Catalog, tmp_path: Path) -> None:
    catalog.alter_table("db.t", [SchemaChange.set_comment("one")])
    folder = tmp_path / "db.db" / "t" / "schema"
    whole = (folder / "schema-1").read_bytes()
    deep = b'{"type":"ARRAY","element":' * 5000 + b'"INT"' + b"}" * 5000
    damaged = {
        "cut short": whole[:-20],
        "empty": b"",
        "another id": whole.replace(b'"id" : 1', b'"id" : 7', 1),
        "no json": b"\x00\xff",
        "nested too deep": whole.replace(b'"STRING"', deep),
        "two columns of one name": whole.replace(b'"v"', b'"k"'),
        "a type that cannot be read": whole.replace(b'"STRING"', b'"DECIMAL(99)"'),
        "a key that is no column": whole.replace(b'"primaryKeys" : [ "k" ]', b'"primaryKeys" : [ "x" ]'),
    }
    for what, data in damaged.items():
        assert data != whole, what
        (folder / "schema-1").write_bytes(data)
        with pytest.raises(errors.CorruptFile, match="schema-1"):
            catalog.table("db.t")
        with pytest.raises(errors.CorruptFile, match="schema-1"):
            catalog.alter_table("db.t", [SchemaChange.set_comment("two")])
    with (folder / "schema-1").open("wb") as hole:
        hole.truncate(1 << 40)
    with pytest.raises(errors.CorruptFile, match="schema-1"):
        catalog.table("db.t")
    (folder / "schema-1").write_bytes(whole)
    assert catalog.table("db.t").schema.comment == "one"
    (folder / "schema-0").unlink()
    with pytest.raises(errors.CorruptFile, match="schema-0"):
        catalog.table("db.t").store.schema_of(0)


def test_bad_changes_name_the_thing(catalog: Catalog) -> None:
    with pytest.raises(errors.TableNotFound, match=r"db\.x"):
        catalog.alter_table("db.x", [SchemaChange.set_comment("c")])
    with pytest.raises(errors.InvalidOption, match=r"snapshot\.time-retained"):
        catalog.alter_table("db.t", [SchemaChange.set_option("snapshot.time-retained", "soon")])
    with pytest.raises(errors.InvalidOption, match=r"sequence\.field"):
        catalog.alter_table("db.t", [SchemaChange.set_option("sequence.field", "nope")])
    with pytest.raises(errors.UnsupportedFeature, match="callbacks"):
        catalog.alter_table("db.t", [SchemaChange.set_option("commit.callbacks", "a.B")])
    with pytest.raises(errors.InvalidSchema, match="primary-key"):
        catalog.alter_table("db.t", [SchemaChange.set_option("primary-key", "v")])
    assert catalog.table("db.t").store.schema.id == 0
