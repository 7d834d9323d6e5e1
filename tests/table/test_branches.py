"""Branches by name: "db.t$branch_dev" is a table of its own that shares files, and what belongs to all branches is asked by the plain name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, errors
from lsm_core.table.names import TableName


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path)
    made.create_database("db")
    made.create_table("db.t", Schema([("k", "INT NOT NULL"), ("v", "STRING")], ["k"], options={"bucket": "1"}))
    made.table("db.t").write(pa.table({"k": pa.array([1, 2], pa.int32()), "v": ["a", "b"]}))
    # A branch at snapshot 1, as Paimon lays it out.
    root = tmp_path / "db.db" / "t"
    branch = root / "branch" / "branch-dev"
    for part, name in (("schema", "schema-0"), ("snapshot", "snapshot-1")):
        (branch / part).mkdir(parents=True)
        shutil.copy(root / part / name, branch / part / name)
    return made


def rows(catalog: Catalog, name: str) -> dict[object, object]:
    table = catalog.table(name).to_arrow(columns=["k", "v"])
    return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def more(key: int, value: str) -> pa.Table:
    return pa.table({"k": pa.array([key], pa.int32()), "v": [value]})


def test_a_branch_is_read_and_written_by_itself(catalog: Catalog) -> None:
    assert rows(catalog, "db.t$branch_dev") == {1: "a", 2: "b"}
    dev = catalog.table("db.t$branch_dev")
    assert dev.name == "db.t$branch_dev"
    assert dev.write(more(3, "dev")) == 2
    assert catalog.table("db.t").write(more(1, "main")) == 2
    assert rows(catalog, "db.t$branch_dev") == {1: "a", 2: "b", 3: "dev"}
    assert rows(catalog, "db.t$branch_main") == rows(catalog, "db.t") == {1: "main", 2: "b"}
    dev.compact(full=True)
    assert rows(catalog, "db.t$branch_dev") == {1: "a", 2: "b", 3: "dev"}
    assert rows(catalog, "db.t") == {1: "main", 2: "b"}
    assert catalog.list_tables("db") == ["t"]


def test_a_branch_has_schemas_of_its_own(catalog: Catalog) -> None:
    catalog.alter_table("db.t$branch_dev", [SchemaChange.set_option("write-only", "true")])
    assert catalog.table("db.t$branch_dev").options == {"bucket": "1", "write-only": "true"}
    assert catalog.table("db.t").options == {"bucket": "1"}
    assert catalog.table("db.t").schema.id == 0


def test_system_tables_tell_about_the_branch(catalog: Catalog) -> None:
    catalog.table("db.t$branch_dev").write(more(3, "dev"))
    assert catalog.table("db.t$branch_dev$snapshots").to_arrow().num_rows == 2
    assert catalog.table("db.t$snapshots").to_arrow().num_rows == 1
    assert catalog.table("db.t$branch_dev$snapshots").name == "db.t$branch_dev$snapshots"


def test_a_branch_that_is_not_there_is_named_with_those_that_are(catalog: Catalog) -> None:
    with pytest.raises(errors.TableNotFound, match=r"db\.t has no branch 'prod'; it has: dev"):
        catalog.table("db.t$branch_prod")
    with pytest.raises(errors.TableNotFound, match=r"db\.u is not in"):
        catalog.table("db.u$branch_dev")


def test_tables_come_go_and_move_with_all_their_branches(catalog: Catalog) -> None:
    schema = Schema([("k", "INT")])
    for act in (
        lambda: catalog.create_table("db.u$branch_dev", schema),
        lambda: catalog.drop_table("db.t$branch_dev"),
        lambda: catalog.rename_table("db.t$branch_dev", "db.u"),
        lambda: catalog.rename_table("db.t", "db.u$branch_dev"),
        lambda: catalog.create_table("db.u$files", schema),
        lambda: catalog.drop_table("db.t$files"),
        lambda: catalog.alter_table("db.t$branch_dev$files", []),
    ):
        with pytest.raises(errors.UnsupportedFeature):
            act()
    catalog.rename_table("db.t", "db.u")
    assert rows(catalog, "db.u$branch_dev") == {1: "a", 2: "b"}


def test_the_database_of_the_catalogs_own_tables_is_no_database_to_change(catalog: Catalog) -> None:
    with pytest.raises(errors.DatabaseExists, match="sys"):
        catalog.create_database("sys", ignore_if_exists=True)
    schema = Schema([("k", "INT")])
    for act in (
        lambda: catalog.create_table("sys.t", schema),
        lambda: catalog.drop_table("sys.tables"),
        lambda: catalog.alter_table("sys.tables", []),
        lambda: catalog.rename_table("db.t", "sys.t"),
    ):
        with pytest.raises(errors.UnsupportedFeature, match="sys"):
            act()
    with pytest.raises(errors.TableNotFound, match=r"sys\.nothing"):
        catalog.table("sys.nothing")
    assert "sys" not in catalog.list_databases()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("db.t", TableName("db", "t")),
        ("db.t$files", TableName("db", "t", "files")),
        ("db.t$branch_dev", TableName("db", "t", "", "dev")),
        ("db.t$branch_dev$files", TableName("db", "t", "files", "dev")),
        ("db.t.u$branches", TableName("db", "t.u", "branches")),
        ("sys.tables", TableName("sys", "tables")),
    ],
)
def test_names_are_split_and_put_together_again(text: str, name: TableName) -> None:
    assert TableName.parse(text) == name
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        "db.t$branch_",
        "db.t$branch_dev$",
        "db.t$files$branch_dev",
        "db.t$files$more",
        "db.t$branch_dev$files$more",
        "db.t$branch_../main",
        "db.t$branch_a/b",
        "db.t$branch_\x00",
        "db.t$branch_..",
        "db.$branch_dev",
        "$branch_dev",
    ],
)
def test_hostile_names_are_none(catalog: Catalog, text: str) -> None:
    with pytest.raises(errors.InvalidSchema):
        catalog.table(text)
