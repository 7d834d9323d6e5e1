"""Variables of the platform that say something impossible are refused by name when definitions load, before anything starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dredge.orchestration.definitions import build_definitions
from dredge.orchestration.verbs.dagster_process import start_platform
from dredge.platform_core.resources.settings import Settings
from lsm_core.errors import InvalidOption


@pytest.mark.parametrize("variable", ["DREDGE_RETENTION_CRON", "DREDGE_EXPECTATIONS_CRON"])
@pytest.mark.parametrize("text", ["soon", "61 * * * *", "* * * * * *", "0 0 30 2 *"])
def test_a_cron_that_never_comes_due_is_refused_by_name(tmp_path: Path, variable: str, text: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        build_definitions({"DREDGE_WAREHOUSE": str(tmp_path), variable: text})
    assert (caught.value.key, caught.value.value) == (variable, text)


def test_crons_are_taken_as_dagster_takes_them() -> None:
    found = Settings.from_environment(
        {"DREDGE_RETENTION_CRON": " @daily ", "DREDGE_EXPECTATIONS_CRON": "*/5 1 * * 1-5"}
    )
    assert (found.retention_cron, found.expectations_cron) == ("@daily", "*/5 1 * * 1-5")
    assert Settings.from_environment({"DREDGE_RETENTION_CRON": " "}) == Settings()


@pytest.mark.parametrize(
    "text",
    [
        *("localhost:3000", "here", "ftp://here", "http://", "http://:3000", "http://here:port", "http://here:99999"),
        *("http://user:secret@here", "http://here/?a=b", "http://he re", "http://[::1"),
    ],
)
def test_an_address_that_is_no_web_servers_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidOption, match=r"'DREDGE_DAGSTER_URL' cannot be .*http://localhost:3000") as caught:
        build_definitions({"DREDGE_WAREHOUSE": str(tmp_path), "DREDGE_DAGSTER_URL": text})
    assert "secret" not in str(caught.value)


def test_an_address_keeps_its_path_and_its_port() -> None:
    for text in ("http://here:3000", "https://here.example/dagster", "http://[::1]:3000"):
        assert Settings.from_environment({"DREDGE_DAGSTER_URL": f" {text}/ "}).dagster_url == text
    assert Settings.from_environment({}).dagster_url == ""


def test_the_web_server_that_is_started_listens_on_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(command: list[str], **_how: object) -> None:
        started.append(command)
        raise RuntimeError("far enough")

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(RuntimeError, match="far enough"):
        start_platform(tmp_path / "home", {})
    (command,) = started
    assert command[command.index("--host") + 1] == "127.0.0.1"
