"""Addresses of databases as Java writes them; a password in one is refused and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm_core.errors import InvalidOption, MetastoreFailed, UnsupportedFeature
from lsm_core.locks.database import Database


@pytest.mark.parametrize(
    "address",
    [
        "jdbc:postgresql://h/db?user=me&password=hunter2",
        "jdbc:postgresql://me:hunter2@h/db",
        "jdbc:postgresql://h/db?sslpassword=hunter2",
    ],
)
def test_a_password_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(InvalidOption, match="DREDGE_JDBC_PASSWORD") as failure:
        Database(address)
    assert "hunter2" not in str(failure.value)
    assert "hunter2" not in repr(failure.value.__dict__)


@pytest.mark.parametrize(
    "address",
    [
        *("", "sqlite:/x", "jdbc:", "jdbc:sqlite:", "jdbc:sqlite::memory:", "jdbc:sqlite:?mode=memory"),
        *("jdbc:postgresql:", "jdbc:postgresql://h", "jdbc:postgresql:///db", "jdbc:postgresql://a,b/db"),
        *("jdbc:postgresql://h:port/db", "jdbc:postgresql://h/db?socketFactory=x"),
    ],
)
def test_what_is_no_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(InvalidOption, match="option 'uri'"):
        Database(address)


def test_other_databases_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="mysql databases"):
        Database("jdbc:mysql://h/db")


def test_a_database_that_cannot_be_reached_is_named_without_parameters(tmp_path: Path) -> None:
    def ask(address: str) -> None:
        with Database(address).transaction() as sql:
            sql.rows("SELECT 1")

    with pytest.raises(MetastoreFailed, match=r"jdbc:sqlite:/.*/nowhere/x\.db cannot be used") as failure:
        ask(f"jdbc:sqlite:{tmp_path}/nowhere/x.db?cache=shared")
    assert "cache" not in str(failure.value)
    with pytest.raises(MetastoreFailed, match=r"jdbc:postgresql://127\.0\.0\.1:1/db cannot be used"):
        ask("jdbc:postgresql://127.0.0.1:1/db?user=me")


def test_a_transaction_is_kept_whole_or_not_at_all(database_address: str) -> None:
    database = Database(database_address)
    with database.transaction() as sql:
        sql.run("CREATE TABLE IF NOT EXISTS seen (n INT)")
        sql.run("DELETE FROM seen")
    with pytest.raises(RuntimeError, match="stop"), database.transaction() as sql:
        assert sql.run("INSERT INTO seen VALUES (:n)", n=1) == 1
        raise RuntimeError("stop")
    with database.transaction() as sql:
        assert sql.rows("SELECT n FROM seen") == []
