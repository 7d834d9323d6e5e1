"""Options that change what a table means are kept or refused, never passed over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, SchemaChange, Table, errors

FIELDS = [("k", "INT NOT NULL"), ("p", "INT NOT NULL"), ("v", "STRING")]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = Catalog(tmp_path)
    made.create_database("db")
    return made


def create(catalog: Catalog, **options: str) -> Table:
    return catalog.create_table("db.t", Schema(FIELDS, ["k", "p"], ["p"], {"bucket": "1", **options}))


def batch(*rows: tuple[int, int, str]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([row[0] for row in rows], pa.int32()),
            "p": pa.array([row[1] for row in rows], pa.int32()),
            "v": [row[2] for row in rows],
        }
    )


def keys(table: Table) -> list[int]:
    return sorted(table.to_arrow(columns=["k"])["k"].to_pylist())


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, [3]),
        ({"ignore-update-before": "true"}, [1, 3]),
        ({"ignore-delete": "true"}, [1, 2, 3]),
        ({"ignore-delete": "true", "ignore-update-before": "true"}, [1, 2, 3]),
    ],
)
def test_rows_that_take_back_are_dropped_where_the_table_says_so(
    catalog: Catalog, options: dict[str, str], left: list[int]
) -> None:
    table = create(catalog, **options)
    table.write(batch((1, 0, "a"), (2, 0, "a"), (3, 0, "a")))
    table.write(batch((1, 0, "a"), (2, 0, "a")), row_kinds=pa.array(["-U", "-D"]))
    assert keys(table) == left


def test_an_overwrite_replaces_everything_where_it_is_not_dynamic(catalog: Catalog) -> None:
    table = create(catalog)
    table.write(batch((1, 0, "a"), (2, 1, "a")))
    table.write(batch((3, 0, "b")), overwrite=True)
    assert keys(table) == [2, 3]
    table.copy({"dynamic-partition-overwrite": "false"}).write(batch((4, 0, "c")), overwrite=True)
    assert keys(table) == [4]
    table.write(batch((5, 1, "d")), overwrite={"p": 1})
    assert keys(table) == [4, 5]


@pytest.mark.parametrize(
    ("options", "feature"),
    [
        ({"scan.bucket": "0"}, "scan.bucket"),
        ({"incremental-to-auto-tag": "2024-01-01"}, "incremental-to-auto-tag"),
        ({"scan.fallback-delta-branch": "x"}, "fallback"),
        ({"branch": "x"}, "branch"),
        ({"query-auth.enabled": "true"}, "authorisation"),
        ({"chain-table.enabled": "true"}, "chain"),
        ({"manifest.format": "orc"}, "manifests of format 'orc'"),
        ({"type": "format-table"}, "format-table"),
        ({"pk-clustering-override": "true", "clustering.columns": "v"}, "cluster"),
    ],
)
def test_what_would_be_another_answer_is_refused_by_name(
    catalog: Catalog, tmp_path: Path, options: dict[str, str], feature: str
) -> None:
    create(catalog).write(batch((1, 0, "a")))
    path = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    inside = "".join(f'\n    "{key}" : "{value}",' for key, value in options.items())
    path.write_text(path.read_text().replace('"options" : {', '"options" : {' + inside))
    with pytest.raises(errors.UnsupportedFeature, match=feature):
        catalog.table("db.t").to_arrow()


def test_an_alteration_may_not_ask_for_what_dredge_cannot_keep_up(catalog: Catalog) -> None:
    create(catalog)
    for key, value in (("query-auth.enabled", "true"), ("scan.fallback-delta-branch", "x")):
        with pytest.raises(errors.UnsupportedFeature):
            catalog.alter_table("db.t", [SchemaChange.set_option(key, value)])
    assert catalog.table("db.t").schema.id == 0


def test_a_table_that_dredge_cannot_write_may_still_be_altered(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog)
    path = tmp_path / "db.db" / "t" / "schema" / "schema-0"
    path.write_text(path.read_text().replace('"options" : {', '"options" : {\n    "query-auth.enabled" : "true",'))
    catalog.alter_table("db.t", [SchemaChange.set_comment("why"), SchemaChange.set_option("write-only", "true")])
    assert catalog.table("db.t").schema.comment == "why"
