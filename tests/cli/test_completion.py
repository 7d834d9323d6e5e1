"""What a shell offers: verbs, flags, and tables of the command's own warehouse, but no name that a shell could take for code."""

from __future__ import annotations

import pytest

from lsm_core.cli.app import run
from lsm_core.cli.completion import read_verb
from tests.cli.shell import Shell


def _offered(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    words = line.split(" ")
    monkeypatch.setenv("_DREDGE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    capsys.readouterr()
    assert run([]) == 0
    return capsys.readouterr().out.split()


def test_tables_are_offered_from_their_folders_and_hostile_names_are_not(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("orders", "x$(touch pwned)", "y'z", "no_table"):
        (shell.place / "db.db" / name).mkdir()
        if name != "no_table":
            (shell.place / "db.db" / name / "schema").mkdir()
    (shell.place / "shop.db" / "carts" / "schema").mkdir(parents=True)
    place = f"-w {shell.place}"
    assert _offered(f"dredge compact {place} ", monkeypatch, capsys) == ["db.orders", "db.t", "shop.carts"]
    assert _offered(f"dredge health {place} db.o", monkeypatch, capsys) == ["db.orders"]
    monkeypatch.setenv("DREDGE_WAREHOUSE", str(shell.place))
    assert _offered("dredge status sh", monkeypatch, capsys) == ["shop.carts"]
    assert _offered("dredge advise db.t", monkeypatch, capsys) == ["db.t"]
    monkeypatch.setenv("DREDGE_WAREHOUSE", str(shell.place / "nowhere"))
    assert _offered("dredge status ", monkeypatch, capsys) == []


def test_verbs_flags_and_a_catalog_with_options(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _offered("dredge ver", monkeypatch, capsys) == ["verify"]
    assert "policy" in _offered("dredge ", monkeypatch, capsys)
    assert "--dry-run" in _offered("dredge compact --d", monkeypatch, capsys)
    line = f"dredge files -w {shell.place} --catalog-option metastore=filesystem d"
    assert _offered(line, monkeypatch, capsys) == ["db.t"]


@pytest.mark.parametrize(
    ("environment", "verb"),
    [
        ({"COMP_WORDS": "dredge comp", "COMP_CWORD": "1"}, None),
        ({"COMP_WORDS": "dredge compact ", "COMP_CWORD": "2"}, "compact"),
        ({"_TYPER_COMPLETE_ARGS": "dredge compact"}, None),
        ({"_TYPER_COMPLETE_ARGS": "dredge compact "}, "compact"),
        ({"_TYPER_COMPLETE_ARGS": "dredge compact 'db"}, "compact"),
        ({}, None),
    ],
)
def test_the_verb_of_an_unfinished_line(environment: dict[str, str], verb: str | None) -> None:
    assert read_verb(environment) == verb


def test_the_script_of_a_shell_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_DREDGE_COMPLETE", "source_zsh")
    assert run([]) == 0
    assert "_DREDGE_COMPLETE=complete_zsh" in capsys.readouterr().out
