"""UPDATE and DELETE with conditions and values of any form, on every kind of table that takes them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.errors import ColumnNotFound, DredgeError, InvalidData, InvalidOption, TableNotFound, UnsupportedFeature
from lsm_core.sql.commands import Session, StatementResult
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.running import StatementRunner

KINDS = {
    "keyed": "'primary-key' = 'id,p', bucket = 1",
    "partial": "'primary-key' = 'id,p', bucket = 1, 'merge-engine' = 'partial-update', 'partial-update.remove-record-on-delete' = 'true'",
    "dynamic": "'primary-key' = 'id,p'",
    "append": "bucket = -1",
    "vectors": "bucket = -1, 'deletion-vectors.enabled' = 'true'",
    "tracking": "bucket = -1, 'row-tracking.enabled' = 'true'",
}


def run(catalog: Catalog, text: str) -> StatementResult:
    return StatementRunner(Session(catalog), LocalEngine()).run(text)


def rows(catalog: Catalog, text: str = "SELECT * FROM db.t ORDER BY id") -> list[tuple[Any, ...]]:
    found = run(catalog, text).rows
    assert found is not None
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.fixture(params=list(KINDS))
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    return made(tmp_path, KINDS[request.param])


@pytest.fixture
def keyed(tmp_path: Path) -> Catalog:
    return made(tmp_path, KINDS["keyed"])


def made(place: Path, options: str) -> Catalog:
    catalog = Catalog(str(place))
    run(catalog, "CREATE DATABASE db")
    run(
        catalog,
        f"CREATE TABLE db.t (id INT, v DOUBLE, S STRING, p STRING) PARTITIONED BY (p) TBLPROPERTIES ({options})",
    )
    run(
        catalog,
        "INSERT INTO db.t VALUES (1, 1.5, 'a', 'x'), (2, CAST('NaN' AS DOUBLE), 'b', 'x'), (3, NULL, NULL, 'y')",
    )
    run(catalog, "INSERT INTO db.t VALUES (4, 4.0, 'd', 'y')")
    run(catalog, "CREATE TABLE db.other (id BIGINT, w DOUBLE)")
    run(catalog, "INSERT INTO db.other VALUES (1, 10), (4, 40), (NULL, 0)")
    return catalog


def test_conditions_and_values_are_computed(catalog: Catalog) -> None:
    before = catalog.table("db.t").latest_snapshot()
    assert before is not None
    done = run(
        catalog,
        "UPDATE db.t AS t SET v = t.v * 2 + id, s = upper(coalesce(t.s, 'none')) WHERE id % 2 = 1 OR t.s LIKE 'd%'",
    )
    assert done.snapshot_id == before.id + 1
    assert rows(catalog, "SELECT id, v, s FROM db.t WHERE id <> 2 ORDER BY id") == [
        (1, 4.0, "A"),
        (3, None, "NONE"),
        (4, 12.0, "D"),
    ]
    run(catalog, "UPDATE db.t SET V = (SELECT max(w) FROM db.other) WHERE id IN (SELECT id FROM db.other)")
    assert rows(catalog, "SELECT id, v FROM db.t WHERE id IN (1, 4) ORDER BY id") == [(1, 40.0), (4, 40.0)]
    run(catalog, "DELETE FROM db.t WHERE v > 100 AND S = 'b'")  # NaN is above all numbers, as in Spark
    run(catalog, "DELETE FROM db.t x WHERE EXISTS (SELECT 1 FROM db.other WHERE other.id = x.id AND w < 20)")
    assert rows(catalog, "SELECT id FROM db.t ORDER BY id") == [(3,), (4,)]
    run(catalog, "DELETE FROM db.t WHERE p = 'y' AND id = 3")
    assert run(catalog, "DELETE FROM db.t WHERE id = 99").snapshot_id is None
    assert rows(catalog, "SELECT id FROM db.t") == [(4,)]
    run(catalog, "DELETE FROM db.t")
    assert rows(catalog) == []


def test_a_condition_over_partitions_drops_them_by_metadata(keyed: Catalog) -> None:
    run(keyed, "DELETE FROM db.t WHERE p = 'x' OR p LIKE 'z%'")
    assert [row[0] for row in rows(keyed)] == [3, 4]
    snapshot = keyed.table("db.t").latest_snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind == "OVERWRITE"


def test_all_rows_take_literals_and_defaults(keyed: Catalog) -> None:
    run(keyed, "ALTER TABLE db.t ALTER COLUMN s SET DEFAULT 'plain'")
    run(keyed, "UPDATE db.t SET v = 1, s = DEFAULT")
    assert {row[1:3] for row in rows(keyed)} == {(1.0, "plain")}
    run(keyed, "CREATE TABLE db.d (id INT, c DECIMAL(10, 2) DEFAULT 1.5, day DATE DEFAULT DATE '2024-01-31')")
    run(keyed, "INSERT INTO db.d VALUES (1, 2.25, DEFAULT), (2, DEFAULT, DATE '2024-02-01')")
    assert rows(keyed, "SELECT c, day FROM db.d ORDER BY id") == [
        (Decimal("2.25"), dt.date(2024, 1, 31)),
        (Decimal("1.50"), dt.date(2024, 2, 1)),
    ]
    run(keyed, "UPDATE db.d SET c = DEFAULT, day = DEFAULT WHERE id >= 1")
    assert {row[1:] for row in rows(keyed, "SELECT * FROM db.d")} == {(Decimal("1.50"), dt.date(2024, 1, 31))}


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("UPDATE db.t SET nothing = 1", ColumnNotFound, "no column 'nothing'"),
        ("UPDATE db.t SET id = 1", UnsupportedFeature, "UPDATE of the primary key column 'id'"),
        ("UPDATE db.t SET v = 1, V = 2", InvalidOption, "a column once"),
        ("UPDATE db.t SET v = frob(id)", UnsupportedFeature, r"the function frob\(\)"),
        ("UPDATE db.t SET v = 'many' WHERE id = 1", InvalidData, "column 'v'"),
        ("UPDATE db.t SET v = nothing WHERE id = 1", InvalidOption, "No field named nothing"),
        ("UPDATE db.`t$files` SET v = 1", UnsupportedFeature, "UPDATE of a system table, which is read only"),
        ("DELETE FROM db.t$files WHERE v = 1", UnsupportedFeature, "DELETE of a system table"),
        ("INSERT INTO db.t$files VALUES (1)", UnsupportedFeature, "INSERT of a system table"),
        (
            "MERGE INTO db.`t$files` f USING db.t ON true WHEN MATCHED THEN DELETE",
            UnsupportedFeature,
            "MERGE of a system",
        ),
        ("DELETE FROM other.db.t WHERE id = 1", TableNotFound, "name tables as database.table"),
        ("UPDATE db.t JOIN db.other ON t.id = other.id SET v = 1", DredgeError, "."),
        ("UPDATE db.t, db.other SET v = 1", DredgeError, "."),
        ("UPDATE db.t SET v = 1 LIMIT 1", DredgeError, "LIMIT"),
        ("DELETE FROM db.t WHERE id > 0 ORDER BY id LIMIT 1", DredgeError, "."),
        ("DELETE FROM db.t x (a) WHERE id > 0", DredgeError, "."),
        ("DELETE FROM db.t WHERE id > 0 RETURNING id", DredgeError, "."),
        ("DELETE FROM db.t PARTITION (p = 'x')", DredgeError, "."),
        ("DELETE FROM db.t WHERE id > 0; DELETE FROM db.t", InvalidOption, "one statement"),
        ("UPDATE db.nothing SET v = 1", TableNotFound, "db.nothing"),
        ("UPDATE t SET v = 1", TableNotFound, "name tables as database.table"),
        ("UPDATE db.t SET v = 1 FROM db.other", DredgeError, "FROM"),
        ("UPDATE db.t SET s.x = 1", DredgeError, "no column 'S.x'"),
        ("UPDATE db.t", DredgeError, "SQL"),
        ("DELETE FROM db.t USING db.other WHERE t.id = other.id", UnsupportedFeature, "USING in DELETE"),
        ("DELETE FROM db.t VERSION AS OF 1 WHERE id = 1", UnsupportedFeature, "version behind the table"),
        ("DELETE FROM db.t WHERE nothing = 1", InvalidOption, "No field named nothing"),
        ("DELETE FROM db.t WHERE id", DredgeError, "."),
    ],
)
def test_what_cannot_be_changed_is_named_and_nothing_is(
    keyed: Catalog, text: str, error: type[DredgeError], match: str
) -> None:
    before = rows(keyed, "SELECT id, s FROM db.t ORDER BY id")
    with pytest.raises(error, match=match):
        run(keyed, text)
    assert rows(keyed, "SELECT id, s FROM db.t ORDER BY id") == before


def test_a_table_that_aggregates_takes_no_update(tmp_path: Path) -> None:
    catalog = made(tmp_path, "'primary-key' = 'id,p', bucket = 1, 'merge-engine' = 'first-row'")
    for text in ("UPDATE db.t SET v = v + 1", "DELETE FROM db.t WHERE v > 1"):
        with pytest.raises(UnsupportedFeature, match="first-row"):
            run(catalog, text)
