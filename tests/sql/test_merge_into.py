"""MERGE INTO with all clauses, on every kind of table that takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lsm_core import Catalog
from lsm_core.errors import ColumnNotFound, CommitConflict, DredgeError, InvalidData, InvalidOption, UnsupportedFeature
from lsm_core.sql import merge_into
from tests.sql.test_update_delete import KINDS, rows, run


def made(place: Path, options: str) -> Catalog:
    catalog = Catalog(str(place))
    run(catalog, "CREATE DATABASE db")
    run(
        catalog,
        f"CREATE TABLE db.t (id INT, v BIGINT, S STRING DEFAULT 'new', p STRING) PARTITIONED BY (p) TBLPROPERTIES ({options})",
    )
    run(catalog, "INSERT INTO db.t VALUES (1, 10, 'a', 'x'), (2, 20, 'b', 'x'), (3, 30, 'c', 'y')")
    run(catalog, "INSERT INTO db.t VALUES (4, 40, 'd', 'y')")
    run(catalog, "CREATE TABLE db.s (id INT, v BIGINT, s STRING, p STRING)")
    run(
        catalog,
        "INSERT INTO db.s VALUES (2, 200, 'B', 'x'), (4, -1, 'D', 'y'), (5, 50, 'e', 'y'), (6, 60, 'f', 'z'), (NULL, 0, 'n', 'z')",
    )
    return catalog


@pytest.fixture(params=list(KINDS))
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    return made(tmp_path, KINDS[request.param])


@pytest.fixture
def keyed(tmp_path: Path) -> Catalog:
    return made(tmp_path, KINDS["keyed"])


def test_all_clauses_in_one_commit(catalog: Catalog) -> None:
    before = catalog.table("db.t").latest_snapshot()
    assert before is not None
    done = run(
        catalog,
        """MERGE INTO db.t AS x USING (SELECT id, v, s, p FROM db.s WHERE v <> 60) AS y ON x.id = y.id AND x.p = y.p
           WHEN MATCHED AND y.v < 0 THEN DELETE
           WHEN MATCHED THEN UPDATE SET x.v = x.v + y.v, S = concat(y.s, '!')
           WHEN NOT MATCHED BY TARGET AND y.id IS NOT NULL THEN INSERT (id, v, p) VALUES (y.id, y.v * 2, y.p)
           WHEN NOT MATCHED BY SOURCE AND x.v > 20 THEN UPDATE SET v = 0
           WHEN NOT MATCHED BY SOURCE THEN DELETE""",
    )
    assert done.snapshot_id == before.id + 1
    assert rows(catalog) == [(2, 220, "B!", "x"), (3, 0, "c", "y"), (5, 100, "new", "y")]


def test_columns_that_are_newer_than_the_snapshot_are_merged(catalog: Catalog) -> None:
    run(catalog, "ALTER TABLE db.t ADD COLUMNS (x INT)")
    run(catalog, "ALTER TABLE db.t RENAME COLUMN v TO w")
    run(
        catalog,
        """MERGE INTO db.t USING (SELECT 3 AS id, 'y' AS p, 7 AS x UNION ALL SELECT 9, 'y', 8) AS s
           ON t.id = s.id AND t.p = s.p
           WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED THEN INSERT (id, p, x) VALUES (s.id, s.p, s.x)""",
    )
    found = [(row["id"], row["w"], row["x"]) for row in catalog.table("db.t").to_arrow().to_pylist()]
    assert sorted(found) == [(1, 10, None), (2, 20, None), (3, 30, 7), (4, 40, None), (9, None, 8)]


@pytest.mark.parametrize("catalog", ["keyed", "tracking"], indirect=True)
def test_stars_set_and_insert_every_column(catalog: Catalog) -> None:
    text = "MERGE INTO db.t USING db.s ON t.id = s.id AND s.p = t.p WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.id > 0 THEN INSERT *"
    run(catalog, text)
    wanted = [
        (1, 10, "a", "x"),
        (2, 200, "B", "x"),
        (3, 30, "c", "y"),
        (4, -1, "D", "y"),
        (5, 50, "e", "y"),
        (6, 60, "f", "z"),
    ]
    assert rows(catalog) == wanted
    assert (
        run(
            catalog, "MERGE INTO db.t USING db.s ON t.id = s.id WHEN NOT MATCHED AND s.id > 0 THEN INSERT *"
        ).snapshot_id
        is None
    )
    run(catalog, "MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id >= s.id WHEN MATCHED THEN DELETE")
    assert rows(catalog) == []
    run(
        catalog,
        "MERGE INTO db.t USING db.s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.v = 50 THEN INSERT *",
    )
    assert rows(catalog) == [(5, 50, "e", "y")]


def test_the_first_clause_that_fits_decides(keyed: Catalog) -> None:
    run(
        keyed,
        """MERGE INTO db.t USING db.s ON t.id = s.id
           WHEN MATCHED AND s.v > 0 THEN UPDATE SET v = 1 WHEN MATCHED AND s.v > 100 THEN DELETE
           WHEN NOT MATCHED AND s.v = 50 THEN INSERT (id, p, s) VALUES (s.id, s.p, DEFAULT)
           WHEN NOT MATCHED AND s.v >= 50 THEN INSERT (id, p, v) VALUES (s.id, s.p, 7)""",
    )
    assert rows(keyed) == [
        *((1, 10, "a", "x"), (2, 1, "b", "x"), (3, 30, "c", "y"), (4, 40, "d", "y")),
        *((5, None, "new", "y"), (6, 7, "new", "z")),
    ]


@pytest.mark.parametrize("catalog", ["keyed", "append", "vectors"], indirect=True)
def test_several_matches_of_a_row_are_one_error(catalog: Catalog) -> None:
    before = rows(catalog)
    source = "(SELECT 1 AS id, 5 AS v UNION ALL SELECT 1, 6 UNION ALL SELECT 9, 9)"
    with pytest.raises(InvalidData, match="1 rows are matched by more than one row of the source"):
        run(catalog, f"MERGE INTO db.t USING {source} q ON t.id = q.id WHEN MATCHED THEN UPDATE SET v = q.v")
    assert rows(catalog) == before
    run(catalog, f"MERGE INTO db.t USING {source} q ON t.id = q.id WHEN MATCHED THEN DELETE")  # all say the same
    assert rows(catalog) == before[1:]


def test_only_files_in_the_range_of_the_source_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = made(tmp_path, KINDS["append"])
    (tmp_path / "db.db" / "t" / "p=x" / "bucket-0").rename(tmp_path / "hidden")
    monkeypatch.setattr(merge_into, "several_matches", lambda table: None)
    run(
        catalog,
        "MERGE INTO db.t USING (SELECT * FROM db.s WHERE id = 4) s ON t.id = s.id AND t.p = s.p WHEN MATCHED THEN UPDATE SET v = 0",
    )
    (tmp_path / "hidden").rename(tmp_path / "db.db" / "t" / "p=x" / "bucket-0")
    assert rows(catalog, "SELECT id, v FROM db.t ORDER BY id") == [(1, 10), (2, 20), (3, 30), (4, 0)]


def test_a_write_to_the_same_bucket_meanwhile_is_a_conflict_and_not_overwritten(
    keyed: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = merge_into.source_query

    def and_write(*arguments: Any) -> pa.Table:
        run(keyed, "INSERT INTO db.t VALUES (5, 555, 'mine', 'y')")
        return ask(*arguments)

    monkeypatch.setattr(merge_into, "source_query", and_write)
    for clause in ("", "WHEN MATCHED THEN UPDATE SET v = 1"):
        with pytest.raises(CommitConflict):
            run(
                keyed, f"MERGE INTO db.t USING db.s ON t.id = s.id {clause} WHEN NOT MATCHED AND s.id = 5 THEN INSERT *"
            )
    assert rows(keyed, "SELECT v FROM db.t WHERE id IN (2, 5) ORDER BY id") == [(20,), (555,)]


@pytest.mark.parametrize(
    ("clauses", "error", "match"),
    [
        ("WHEN MATCHED THEN UPDATE SET id = s.id + 1", UnsupportedFeature, "UPDATE of the primary key column 'id'"),
        ("WHEN MATCHED THEN UPDATE SET nothing = 1", ColumnNotFound, "no column 'nothing'"),
        ("WHEN MATCHED THEN INSERT *", DredgeError, "INSERT"),
        ("WHEN MATCHED THEN UPDATE SET v = 1 WHERE t.id = 2", DredgeError, "."),
        ("WHEN MATCHED THEN DELETE RETURNING t.id", DredgeError, "."),
        ("WHEN NOT MATCHED THEN DELETE", UnsupportedFeature, "WHEN NOT MATCHED THEN DELETE; it takes INSERT"),
        ("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", UnsupportedFeature, r"UPDATE SET \*"),
        ("WHEN NOT MATCHED THEN INSERT (id, v) VALUES (1)", InvalidOption, r"2 values \(id, v\)"),
        ("WHEN NOT MATCHED THEN INSERT (v) VALUES (1)", InvalidData, "column 'id'"),
        ("WHEN NOT MATCHED THEN INSERT *", InvalidData, "column 'id'.*null"),
        ("WHEN MATCHED THEN UPDATE SET v = frob(1)", UnsupportedFeature, "frob"),
        ("", DredgeError, "."),
    ],
)
def test_what_cannot_be_merged_is_named_and_nothing_is(
    keyed: Catalog, clauses: str, error: type[DredgeError], match: str
) -> None:
    before = keyed.table("db.t").latest_snapshot()
    with pytest.raises(error, match=match):
        run(keyed, f"MERGE INTO db.t USING db.s ON t.id = s.id {clauses}")
    assert keyed.table("db.t").latest_snapshot() == before


def test_a_source_without_a_column_is_named(keyed: Catalog) -> None:
    with pytest.raises(ColumnNotFound, match="of the source q has no column 'v'; it has id"):
        run(keyed, "MERGE INTO db.t USING (SELECT 1 AS id) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET *")
    with pytest.raises(InvalidOption, match="a source with a name other than t"):
        run(keyed, "MERGE INTO db.t USING (SELECT 1 AS id) ON t.id = 1 WHEN MATCHED THEN DELETE")
