"""The bar that long verbs show: on a terminal alone, with what the work itself tells, and never in what programs read."""

from __future__ import annotations

import io
import sys

import pytest

from lsm_core import progress
from lsm_core.cli.progress_bar import progress_bar
from tests.cli.shell import Shell


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Heard:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def begins(self, label: str, total: int | None, unit: str) -> None:
        self.lines.append(f"{label}: {total} {unit}")

    def advanced(self, amount: int) -> None:
        self.lines.append(f"+{amount}")

    def reached(self, amount: int) -> None:
        self.lines.append(f"={amount}")

    def ends(self) -> None:
        self.lines.append("end")


def test_a_terminal_sees_how_far_a_compaction_is_and_nobody_else_does(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = shell("compact", "db.t", "--dry-run")
    assert quiet.code == 0 and quiet.err == ""
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert shell("compact", "db.t", "--dry-run", "--json").json["action"] == "compact"
    assert terminal.getvalue() == ""
    answer = shell("compact", "db.t", "--full")
    assert answer.code == 0 and "compacting" not in answer.out
    assert "compact db.t" in terminal.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    terminal.truncate(0)
    assert shell("check", "db.t").code == 0
    assert terminal.getvalue() == ""


def test_work_tells_whoever_listens_and_only_while_they_do(shell: Shell) -> None:
    heard = _Heard()
    with progress.report_progress_to(heard):
        assert shell("compact", "db.t", "--full").code == 0
        assert shell("verify", "db.t").code == 0
    assert heard.lines[0] == "compacting db.t: 100 rows" and "+20" in heard.lines
    assert "comparing db.t: 126 rows" in heard.lines and "=126" in heard.lines
    assert heard.lines.count("end") == 2
    result = len(heard.lines)
    assert shell("verify", "db.t").code == 0
    assert len(heard.lines) == result


def test_a_bar_never_goes_back_or_past_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar("work"), progress.stage("part", 10, "rows"):
        progress.advance(4)
        progress.reached(2)
        progress.advance(90)
        with progress.stage("inner", None, "files"):
            progress.advance(3)
    assert "10 of 10 rows" in terminal.getvalue() and "94" not in terminal.getvalue()
