"""Null and texts that share its directory are different partitions, and every verb tells them apart and can name each."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema, Table
from tests.cli.shell import Shell

NULL = "dt=__DEFAULT_PARTITION__"
VALUES = {NULL: None, 'dt=""': "", 'dt="  "': "  ", 'dt="__DEFAULT_PARTITION__"': "__DEFAULT_PARTITION__", "dt=x": "x"}
COLUMNS = pa.schema([pa.field("dt", pa.string()), pa.field("k", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(COLUMNS, [], ["dt"], {"bucket": "-1", "compaction.min.file-num": "2"}))
    for number in range(2):
        for value in VALUES.values():
            table.write(pa.table({"dt": [value], "k": [number]}, schema=COLUMNS))
    return table


@pytest.fixture
def blank(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path / "wh", capsys)


def test_every_partition_has_a_name_of_its_own(table: Table, blank: Shell) -> None:
    assert {bucket.partition_text: bucket.partition["dt"] for bucket in table.health()} == VALUES
    assert {item.partition_text for item in table.plan_maintenance("compact").items} == set(VALUES)
    for shown in (blank("health", "db.t").out, blank("plan", "db.t").out):
        assert all(name in shown.split("\n", 1)[1] for name in VALUES)
    assert {bucket.name for bucket in Path(table.store.root).glob("dt=*")} == {NULL, "dt=x"}, (
        "the directories are Paimon's"
    )


@pytest.mark.parametrize(("name", "value"), VALUES.items())
def test_the_name_that_is_shown_chooses_the_partition(table: Table, blank: Shell, name: str, value: str | None) -> None:
    (found,) = blank("health", "db.t", "--partition", name, "--json").json
    assert (found["partition"], found["partition_text"]) == ({"dt": value}, name)
    blank("compact", "db.t", "--partition", name)
    assert {bucket.partition_text for bucket in table.health() if bucket.files == 1} == {name}
    assert [bucket.partition for bucket in table.health() if bucket.files == 1] == [{"dt": value}]


@pytest.mark.parametrize("name", ["dt=x ", "dt= x", "dt=x\t", "dt=  "])
def test_blanks_around_a_value_need_quotes(table: Table, blank: Shell, name: str) -> None:
    """`dt=x ` may mean either partition, so none is touched."""
    table.write(pa.table({"dt": ["x "], "k": [9]}, schema=COLUMNS))
    refused = blank("drop-partitions", "db.t", "--partition", name)
    assert refused.code == 1
    assert "a value without outer blanks (dt=" in refused.err and 'or in quotes (dt="' in refused.err
    blank("drop-partitions", "db.t", "--partition", 'dt="x "')
    assert {bucket.partition["dt"] for bucket in table.health()} == set(VALUES.values())
    blank("drop-partitions", "db.t", "--partition", " dt=x")
    assert {bucket.partition["dt"] for bucket in table.health()} == {*VALUES.values()} - {"x"}


def test_explain_tells_null_from_blank_texts_and_takes_them_as_it_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    columns = pa.schema(
        [pa.field("dt", pa.string(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.string())]
    )
    table = catalog.create_table("db.p", Schema(columns, ["dt", "k"], ["dt"], {"bucket": "1"}))
    values = {"null": None, '""': "", '"null"': "null", "x": "x"}
    table.write(pa.table({"dt": [""] * 4, "k": list(range(4)), "v": list(values.values())}, schema=columns))
    shell = Shell(tmp_path / "wh", capsys)
    for number, shown in enumerate(values):
        printed = shell("explain", "db.p", f'dt="",k={number}').out
        assert printed.startswith(f'db.p dt="", k={number}: 1 version') and f"v={shown} " in printed
        assert printed == shell("explain", "db.p", f"dt=,k={number}").out
    assert [bucket.partition_text for bucket in table.health()] == ['dt=""']


@pytest.mark.parametrize("name", ["day=19723", "day=2024-01-01"])
def test_a_date_is_chosen_by_the_name_that_is_shown_or_as_people_write_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    columns = pa.schema([pa.field("day", pa.date32()), pa.field("k", pa.int64())])
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(columns, [], ["day"], {"bucket": "-1"}))
    for day in (19723, 19724):
        table.write(pa.table({"day": pa.array([day], pa.int32()).cast(pa.date32()), "k": [1]}, schema=columns))
    shell = Shell(tmp_path / "wh", capsys)
    (found,) = shell("health", "db.t", "--partition", name, "--json").json
    assert found["partition_text"] == "day=19723"
    refused = shell("health", "db.t", "--partition", "day=soon")
    assert refused.code
    assert "such as 2024-01-01 for column day" in refused.err


def test_a_value_may_hold_commas_and_is_named_as_plans_name_it_or_in_quotes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = pa.schema([pa.field("dt", pa.string()), pa.field("h", pa.int32()), pa.field("k", pa.int64())])
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    table = catalog.create_table("db.t", Schema(columns, [], ["dt", "h"], {"bucket": "-1"}))
    values = {"a": "dt=a/h=1", "a,b": "dt=a,b/h=1", "a,h=2": "dt=a,h%3D2/h=1", "50%/x": "dt=50%25%2Fx/h=1"}
    table.write(pa.table({"dt": list(values), "h": [1] * 4, "k": [1] * 4}, schema=columns))
    assert [bucket.partition_text for bucket in table.health()] == sorted(values.values())
    shell = Shell(tmp_path / "wh", capsys)
    spelt = {
        "a,b": ["dt=a,b,h=1", 'dt="a,b",h=1', "h=1,dt=a,b", "h=1/dt=a,b"],
        "a,h=2": ['dt="a,h=2", h=1', 'h=1,dt="a,h=2"'],
        "50%/x": ["dt=50%/x,h=1", 'dt="50%/x",h=1'],
    }
    for value, shown in values.items():
        for name in [shown, *spelt.get(value, ())]:
            (found,) = shell("health", "db.t", "--partition", name, "--json").json
            assert (found["partition"]["dt"], found["partition"]["h"]) == (value, 1), name
    refused = {
        "dt=a,h=2,h=1": "each column once, not h twice",
        "dt=a,day=2,h=1": "'day' is none of them; quote a value that holds 'day='",
        "dt=a": "exactly the columns dt, h",
        "a": "such as dt=...,h=...",
        'dt="a,h=1': "such as dt=...,h=...",
    }
    for name, why in refused.items():
        answer = shell("drop-partitions", "db.t", "--partition", name)
        assert answer.code == 1 and why in answer.err and name in answer.err and len(answer.err.splitlines()) == 1, (
            answer.err
        )
    assert shell("drop-partitions", "db.t", "--partition", "dt=a,b/h=1").code == 0
    assert sorted({bucket.partition["dt"] for bucket in table.health()}) == ["50%/x", "a", "a,h=2"]
