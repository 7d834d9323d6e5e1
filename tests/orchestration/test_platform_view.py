"""`dredge status` and the scrape endpoint show what Dagster knows if they may read it, and say so if they do not."""

from __future__ import annotations

import json
import threading
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path

import dagster as dg
import pytest

from dredge.platform_core import names
from lsm_core.cli.app import run
from lsm_core.cli.metrics_server import open_server
from lsm_core.cli.verbs import metrics as metrics_verb
from lsm_core.maintenance.metrics import format_metrics
from tests.support.platform import House, commit, keyed_table, open_house

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def declared_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [EntryPoint(name, value, group) for name, value in declared.get(group, {}).items()],
    )
    for variable in ("DAGSTER_HOME", "DREDGE_POLICIES"):
        monkeypatch.delenv(variable, raising=False)


@contextmanager
def blocked_house(root: Path) -> Iterator[House]:
    for name in ("shop.orders", "shop.calm"):
        commit(keyed_table(root, name, partitioned=False), 1)
    with open_house(root) as house:
        failed = dg.AssetCheckEvaluation(
            house.layout("shop.orders"), names.TREE_CHECK, passed=False, description="overlap"
        )
        house.instance.report_runless_asset_event(failed)
        (Path(house.instance.root_directory) / "dagster.yaml").touch()
        yield house


def test_status_shows_what_dagster_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with blocked_house(tmp_path / "wh") as house:
        monkeypatch.delenv("DAGSTER_HOME")  # set by Dagster's instance for tests
        home = house.instance.root_directory
        place = ["-w", str(tmp_path / "wh")]
        assert run(["status", *place]) == 0
        printed = capsys.readouterr().out
        assert "blocked" not in printed
        assert "states are from metadata alone: failed checks, suspensions, runs, back-off and budgets" in printed
        assert "set DAGSTER_HOME or --dagster-home" in printed.replace("\n", " ")
        for how in ("option", "variable"):
            if how == "variable":
                monkeypatch.setenv("DAGSTER_HOME", home)
            assert run(["status", *place, *(["--dagster-home", home] if how == "option" else [])]) == 0
            printed = capsys.readouterr().out
            assert "shop.orders: blocked: tree_is_valid failed: overlap; since " in printed
            assert "next: repair the table as the check says, then execute the check: by hand" in printed
            assert "states include failed checks, runs, back-off and budgets of the Dagster instance" in printed
        assert run(["status", "shop.orders", *place, "--json"]) == 0
        row = json.loads(capsys.readouterr().out)
        assert (row["state"], row["state_from"]) == ("blocked", "dagster")


@pytest.mark.parametrize("home", ["nowhere", "empty"])
def test_a_folder_that_is_no_dagster_instance_is_named_and_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], home: str
) -> None:
    commit(keyed_table(tmp_path / "wh", partitioned=False), 1)
    (tmp_path / "empty").mkdir()
    assert run(["status", "-w", str(tmp_path / "wh"), "--dagster-home", str(tmp_path / home)]) == 0
    printed = capsys.readouterr().out
    assert "states are from metadata alone" in printed and "DAGSTER_HOME" in printed and home in printed
    assert not (tmp_path / "nowhere").exists() and not list((tmp_path / "empty").iterdir())


def test_the_scrape_endpoint_serves_states_and_alerts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "wh")
    with blocked_house(tmp_path / "wh") as house:
        monkeypatch.delenv("DAGSTER_HOME")  # set by Dagster's instance for tests

        def scrape() -> list[str]:
            samples = metrics_verb._read_platform_samples(place, None)
            server = open_server("127.0.0.1:0", lambda: format_metrics(samples), 0.0)
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/metrics") as answer:
                text = answer.read().decode()
            thread.join()
            server.server_close()
            return text.splitlines()

        assert not [line for line in scrape() if not line.startswith("#")], "without DAGSTER_HOME"
        monkeypatch.setenv("DAGSTER_HOME", house.instance.root_directory)
        lines = scrape()
        assert "dredge_platform_readable 1" in lines
        assert 'dredge_table_state{table="shop.orders",state="blocked"} 1' in lines
        assert 'dredge_tables_in_state{state="blocked"} 1' in lines
        assert 'dredge_alerts{condition="a blocking check failed",severity="error"} 1' in lines
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "nowhere"))
        assert "dredge_platform_readable 0" in scrape()
