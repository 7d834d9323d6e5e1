"""Options that make other answers of the rows that are there are set, and what follows is said."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.errors import InvalidOption, InvalidSchema
from lsm_core.format.snapshot import Snapshot

FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64())])
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
PARTIAL = {"merge-engine": "partial-update"}
LOOKUP = ("changelog-producer", "lookup")
VECTORS = ("deletion-vectors.enabled", "true")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path / "wh")
    made.create_database("db")
    return made


def create(catalog: Catalog, **options: str) -> Table:
    given = {"bucket": "1", "num-sorted-run.compaction-trigger": "2", "num-levels": "6", **options}
    return catalog.create_table("db.t", Schema(FIELDS, ["k"], options=given))


def write(table: Table, rows: dict[int, int]) -> None:
    table.write(pa.table({"k": list(rows), "v": list(rows.values())}, schema=FIELDS))


def in_two_levels(table: Table) -> None:
    """A large run on the top level, a small one below it."""
    chance = random.Random(1)
    write(table, {k: chance.getrandbits(60) if k > 1 else 1 for k in range(1, 4_000)})
    table.compact(full=True)
    write(table, {1: 2})
    write(table, {2: 4})
    table.compact()
    levels = {file.level for split in table.plan_scan() for file in split.files}
    assert levels == {4, 5}


@pytest.mark.parametrize("engine", [SUM, PARTIAL], ids=["aggregation", "partial-update"])
@pytest.mark.parametrize("option", [LOOKUP, VECTORS], ids=["lookup", "vectors"])
def test_looking_keys_up_from_now_on_is_told_to_leave_out_what_several_levels_hold(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, engine: dict[str, str], option: tuple[str, str]
) -> None:
    table = create(catalog, **engine, **{"deletion-vectors.modifiable": "true"})
    in_two_levels(table)
    caplog.clear()
    catalog.alter_table("db.t", [SchemaChange.set_option(*option)])
    (messages,) = caplog.messages
    assert messages.startswith("table db.t: rows of 1 bucket lie on several levels above 0")
    assert f"this {engine['merge-engine']} table" in messages and "compact the table fully" in messages
    if engine is SUM:
        assert catalog.table("db.t").to_arrow(filter=[("k", "=", 1)]).to_pylist() == [{"k": 1, "v": 2}]
    # as it says: the option back, a full compaction, and the option again
    caplog.clear()
    catalog.alter_table("db.t", [SchemaChange.remove_option(option[0])])
    catalog.table("db.t").compact(full=True)
    catalog.alter_table("db.t", [SchemaChange.set_option(*option)])
    assert caplog.messages == []
    if engine is SUM:
        assert catalog.table("db.t").to_arrow(filter=[("k", "=", 1)]).to_pylist() == [{"k": 1, "v": 3}]


def test_nothing_is_said_where_nothing_is_left_out(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    table = create(catalog)  # the newest version of a key counts, wherever it lies
    catalog.alter_table("db.t", [SchemaChange.set_option(*LOOKUP)])
    catalog.alter_table("db.t", [SchemaChange.set_option("changelog-producer", "none")])
    in_two_levels(table)
    caplog.clear()
    catalog.alter_table("db.t", [SchemaChange.set_option(*LOOKUP)])
    assert caplog.messages == []


@pytest.mark.parametrize("key", ["ignore-delete", "ignore-update-before"])
def test_ignored_retracts_count_again_only_until_2_1_and_that_is_said(
    catalog: Catalog, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    table = create(catalog, **{key: "true"})
    write(table, {1: 1})
    with pytest.raises(InvalidOption, match=f"{key}.*no change back from true"):
        catalog.alter_table("db.t", [SchemaChange.set_option(key, "false")])
    catalog.alter_table("db.t", [SchemaChange.remove_option(key)])
    (messages,) = caplog.messages
    assert messages.startswith(f"table db.t: without '{key}' retracts are applied from now on")
    assert key not in catalog.table("db.t").schema.options
    catalog.alter_table("db.t", [SchemaChange.set_option(key, "true")])
    path = Path(table.store.snapshot_path(1))
    path.write_bytes(replace(Snapshot.from_json(path.read_bytes(), str(path)), writer_version="java-2.1.0").to_json())
    with pytest.raises(InvalidOption, match=f"{key}.*no change back from true"):
        catalog.alter_table("db.t", [SchemaChange.remove_option(key)])


def test_a_column_becomes_no_type_that_cannot_hold_its_numbers(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    types = [("k", "INT NOT NULL"), ("v", "INT"), ("d", "DOUBLE"), ("m", "DECIMAL(6, 2)"), ("n", "INT")]
    table = catalog.create_table("db.t", Schema(types, ["k"], options={"bucket": "1"}))
    table.write({"k": [1, 2], "v": [300, -1], "d": [1.5, None], "m": [1, 2], "n": [None, None]})
    for change, message in (
        (SchemaChange.update_type("v", "TINYINT"), "'v' of type INT cannot become TINYINT: it holds 300"),
        (SchemaChange.update_type("v", "DECIMAL(4, 2)"), r".*cannot become DECIMAL\(4, 2\): it holds 300"),
    ):
        with pytest.raises(InvalidSchema, match=f"table db.t: column {message}"):
            catalog.alter_table("db.t", [SchemaChange.set_comment("half"), change])
    assert catalog.table("db.t").schema.comment is None
    table.write({"k": [1], "v": [100], "d": [None], "m": [3], "n": [None]})
    with pytest.raises(InvalidSchema, match="it holds 300"):  # the row of before is still in a file
        catalog.alter_table("db.t", [SchemaChange.update_type("v", "TINYINT")])
    catalog.table("db.t").compact(full=True)
    caplog.clear()
    narrower = {"v": "TINYINT", "d": "INT", "m": "DECIMAL(3, 2)", "n": "TINYINT"}
    catalog.alter_table("db.t", [SchemaChange.update_type(name, kind) for name, kind in narrower.items()])
    assert [message.getMessage() for message in caplog.records if "db.t" in message.getMessage()] == []
    rows = catalog.table("db.t").to_arrow(["k", "v", "d"]).to_pylist()
    assert rows == [{"k": 1, "v": 100, "d": None}, {"k": 2, "v": -1, "d": None}]


def test_where_no_statistics_tell_narrowing_is_warned_about(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    write(create(catalog, **{"metadata.stats-mode": "none"}), {1: 300})
    caplog.clear()
    catalog.alter_table("db.t", [SchemaChange.update_type("v", "TINYINT")])
    messages = [record.getMessage() for record in caplog.records]
    assert any(item.startswith("table db.t: values of column 'v' that TINYINT cannot hold") for item in messages)
    assert catalog.table("db.t").to_arrow().to_pylist() == [{"k": 1, "v": 44}]  # as Java shows it


def test_deletion_vectors_are_made_modifiable_and_switched_by_one_alter(catalog: Catalog) -> None:
    table = create(catalog)
    in_two_levels(table)
    with pytest.raises(InvalidOption, match="the same ALTER may set it"):
        catalog.alter_table("db.t", [SchemaChange.set_option(*VECTORS)])
    permit = SchemaChange.set_option("deletion-vectors.modifiable", "true")
    with pytest.raises(InvalidOption, match="the same ALTER may set it"):
        changes = [SchemaChange.set_option(*VECTORS), SchemaChange.set_option("deletion-vectors.modifiable", "false")]
        catalog.alter_table("db.t", changes)
    catalog.alter_table("db.t", [SchemaChange.set_option(*VECTORS), permit])
    assert catalog.table("db.t").options["deletion-vectors.enabled"] == "true"
    catalog.alter_table("db.t", [SchemaChange.remove_option(permit.column), SchemaChange.remove_option(VECTORS[0])])
    assert not {VECTORS[0], permit.column} & catalog.table("db.t").options.keys()
