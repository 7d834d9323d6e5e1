"""Statements that a newcomer tried: counts of system tables, doubled quotes, and numbers that would lose their fraction."""

from __future__ import annotations

import pytest

from lsm_core import Catalog
from lsm_core.errors import DredgeError, InvalidOption
from lsm_core.sql.commands import Session
from lsm_core.sql.local_engine import LocalEngine
from lsm_core.sql.reading import with_quoted_names
from lsm_core.sql.running import StatementRunner


def run(session, text):
    return StatementRunner(session, LocalEngine()).run(text)


@pytest.fixture
def session(tmp_path):
    session = Session(Catalog(tmp_path))
    for text in (
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id BIGINT, v STRING) TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')",
    ):
        run(session, text)
    return session


def rows(session, text):
    return run(session, text).rows.to_pylist()


@pytest.mark.parametrize("view", ["snapshots", "files", "options", "schemas", "audit_log"])
def test_a_count_of_a_system_table_counts_its_rows(session, view):
    run(session, "INSERT INTO d.t VALUES (1, 'a'), (2, 'b')")
    all_rows = rows(session, f"SELECT * FROM d.`t${view}`")
    assert all_rows
    assert rows(session, f"SELECT count(*) AS n FROM d.`t${view}`") == [{"n": len(all_rows)}]
    assert rows(session, "SELECT count(*) AS n FROM d.t") == [{"n": 2}]


def test_a_doubled_quote_is_one_quote_in_every_statement(session):
    run(session, 'INSERT INTO d.t VALUES (1, \'it\'\'s\'), (2, "say ""so""")')
    run(session, "UPDATE d.t SET v = 'b''q' WHERE v = 'it''s'")
    assert rows(session, "SELECT v FROM d.t ORDER BY id") == [{"v": "b'q"}, {"v": 'say "so"'}]
    assert rows(session, "SELECT id FROM d.t WHERE v = 'b''q'") == [{"id": 1}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 'it''s'", r"SELECT 'it\'s'"),
        (r"SELECT 'a\'''b'", r"SELECT 'a\'\'b'"),
        ("SELECT '', 'x'", "SELECT '', 'x'"),
        ("SELECT '''x'''", r"SELECT '\'x\''"),
        ("SELECT r'a''b'", "SELECT r'a''b'"),
        ("SELECT 1 -- it''s", "SELECT 1 -- it''s"),
        ("SELECT `a``b`, t$files", "SELECT `a``b`, `t$files`"),
    ],
)
def test_doubled_quotes_become_escaped_ones(text, expected):
    assert with_quoted_names(text) == expected


def test_values_are_cut_off_for_whole_columns_as_by_spark(session):
    run(session, "INSERT INTO d.t (id) VALUES (1.2), (-1.9), (2.0), (3.7D)")
    assert rows(session, "SELECT id FROM d.t ORDER BY id") == [{"id": value} for value in (-1, 1, 2, 3)]
    with pytest.raises(DredgeError):
        run(session, "INSERT INTO d.t (id) VALUES (1e30)")


def test_a_retention_that_no_tag_can_hold_is_refused(session):
    run(session, "INSERT INTO d.t VALUES (1, 'a')")
    table = session.catalog.table("d.t")
    with pytest.raises(InvalidOption, match="time_retained"):
        table.create_tag("k", time_retained="99999999999 d")
    table.create_tag("long", time_retained="100000000 d")
    assert list(table.tags()) == ["long"]
