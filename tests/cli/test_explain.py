"""`dredge explain`: where a row comes from, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.cli.app import run
from tests.maintenance.tables import keyed, rows


def _say(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = run(["explain", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_story_as_tables_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = keyed(tmp_path, merge_engine="partial-update")
    table.write(rows([1, 5], v=10))
    table.write(rows([5], v=20))
    place = ["db.t", "5", "-w", str(tmp_path / "wh")]
    code, out, _ = _say(capsys, *place)
    assert code == 0 and "2 versions in 2 files; merged by partial-update" in out
    assert "the last value that is not null" in out and table.explain_row({"k": 5}).versions[0].file in out
    story = json.loads(_say(capsys, *place, "--json")[1])
    assert story["answer"] == {"k": 5, "v": 25, "s": None} and [v["number"] for v in story["versions"]] == [1, 2]
    only = json.loads(_say(capsys, "db.t", "k=5", "-w", str(tmp_path / "wh"), "--column", "v", "--json")[1])
    assert only["versions"] == [1] and only["roles"]["2"] == "replaced by a newer value"
    assert "effect" in _say(capsys, *place, "--column", "v")[1]
    assert "1 version in 1 file" in _say(capsys, *place, "--snapshot", "1")[1]


def test_missing_and_broken_keys_are_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keyed(tmp_path, partitioned=True).write(rows([1], dt="a"))
    warehouse = ["-w", str(tmp_path / "wh")]
    code, out, _ = _say(capsys, "db.t", "dt=a,k=2", *warehouse)
    assert code == 0 and "no version" in out
    for key, reason in (("7", "is no key"), ("dt=a", "exactly the columns dt, k"), ("dt=a,k=x", "'x' is no int64")):
        code, out, err = _say(capsys, "db.t", key, *warehouse)
        assert (code, out) == (1, "") and reason in err and err.count("\n") == 1
    assert "no column 'nope'" in _say(capsys, "db.t", "dt=a,k=1", "--column", "nope", *warehouse)[2]


def test_null_keys_and_the_text_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(tmp_path)
    catalog.create_database("db")
    fields = pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.string())])
    options = {"bucket": "1", "primary-key.nullable": "true"}
    table = catalog.create_table("db.z", Schema(fields, ["k", "j"], options=options))
    table.write(pa.table({"k": [None, 2, 3], "j": ["x", None, "null"], "v": ["a", "b", "c"]}, fields))
    for key, shown in (
        ("k=null,j=x", "k=null, j=x"),
        ("k=2,j=NULL", "k=2, j=null"),
        ('k=3,j="null"', 'k=3, j="null"'),
    ):
        assert run(["explain", "-w", str(tmp_path), "db.z", key]) == 0
        assert f"{shown}: 1 version in 1 file" in capsys.readouterr().out
    assert run(["explain", "-w", str(tmp_path), "db.z", "k=3,j=null"]) == 0
    assert "no version of this key is stored" in capsys.readouterr().out
    one = catalog.create_table("db.o", Schema(fields, ["j"], options=options))
    one.write(pa.table({"k": [1], "j": [None], "v": ["a"]}, fields))
    assert run(["explain", "-w", str(tmp_path), "db.o", "null"]) == 0
    assert "j=null: 1 version" in capsys.readouterr().out
