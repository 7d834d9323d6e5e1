"""What the command line says when something is missing, misspelt, broken or done already: one line, with its name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lsm_core import Catalog, Schema
from lsm_core.cli.app import run
from tests.cli.shell import Shell


def test_what_is_named_and_not_there_is_said(shell: Shell) -> None:
    for verb in ("plan", "compact"):
        refused = shell(verb, "db.t", "--bucket", "7")
        assert (refused.code, refused.out) == (1, "")
        assert "option 'buckets' of table db.t cannot be 7; accepted: 0 to 0: there is 1 bucket" in refused.err
        told = shell(verb, "db.t", "--partition", "dt=zz")
        assert told.code == 0 and "dt=zz" in told.out and "no file lies there" in told.out
    assert shell("health", "db.t", "--partition", "dt=zz").out == "db.t: no file lies there: dt=zz\n"
    assert shell("health", "db.t", "--partition", "dt=zz", "--json").json == []


@pytest.mark.parametrize(("text", "reason"), [(None, "No such file"), ("soon", "'soon', not epoch milliseconds")])
def test_a_clock_file_that_tells_no_time_is_one_line(
    shell: Shell,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    reason: str,
) -> None:
    clock = tmp_path / "clock"
    if text is not None:
        clock.write_text(text)
    assert run(["status", "-w", str(shell.place), "--clock", f"file:{clock}"]) == 1
    assert capsys.readouterr().err.startswith(f"dredge: option '--clock' cannot be 'file:{clock}'; accepted: ")
    monkeypatch.setenv("DREDGE_CLOCK", f"file:{clock}")
    assert run(["status", "-w", str(shell.place)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"dredge: option 'DREDGE_CLOCK' cannot be 'file:{clock}'; accepted: ")
    assert reason in said and said.count("\n") == 1


def test_a_broken_table_does_not_hide_the_others(shell: Shell) -> None:
    catalog = Catalog(shell.place)
    catalog.create_table("db.u", Schema(pa.schema([("a", pa.int32())]))).write({"a": [1]})
    (shell.place / "db.db" / "t" / "snapshot" / "snapshot-6").write_text("{")
    answer = shell("status", "--json")
    assert (answer.code, [row["table"] for row in answer.json]) == (1, ["db.u"])
    assert answer.err.startswith("dredge: 1 of 2 tables cannot be looked at: db.t: corrupt file")
    assert answer.err.count("\n") == 1
    assert shell("status", "db.t").code == 1
