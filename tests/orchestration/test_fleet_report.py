"""`dredge report` and the hourly job write a page on all tables, from the warehouse and from Dagster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dredge.orchestration.fleet_report import read_scores, replace_file, report_files
from dredge.orchestration.verbs.report import report as report_verb
from dredge.platform_core import names
from dredge.platform_core.names import WarehouseNames
from dredge.platform_core.report.scores import ScoreHistory
from dredge.platform_core.resources.settings import Settings
from lsm_core.cli.app import run
from lsm_core.clock import FileClock
from lsm_core.errors import InvalidOption
from tests.support.platform import append_table, commit, keyed_table, open_house


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run ``dredge report`` as an installed package offers it; without Dagster unless a test sets DAGSTER_HOME."""
    from importlib.metadata import EntryPoint

    entry = EntryPoint("report", "dredge.orchestration.verbs.report:report", "dredge.verbs")
    monkeypatch.setattr("lsm_core.cli.app._list_plugins", lambda verbs: {"report": entry})
    for name in ("DAGSTER_HOME", "DREDGE_POLICIES", "DREDGE_DAGSTER_URL", "DREDGE_REPORT_DIR", "DREDGE_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)
    return lambda *words: run(["report", *map(str, words)])


def make_warehouse(root: Path) -> None:
    """Five tables: due, healthy after a compaction with a tag, paused by policy, an append table, and a torn one."""
    commit(keyed_table(root, "shop.busy", partitioned=False), 6)
    calm = keyed_table(root, "shop.calm", partitioned=False)
    commit(calm, 3)
    calm.create_tag("kept")
    calm.compact(full=True)
    commit(keyed_table(root, "depot.resting", partitioned=False), 7)
    commit(append_table(root), 5)
    keyed_table(root, "shop.torn", partitioned=False)
    (root / "shop.db" / "torn" / "schema" / "schema-0").write_text("{")


def test_the_entry_point_is_declared() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'report = "{report_verb.__module__}:{report_verb.__name__} [dagster]"' in text


def test_the_verb_writes_a_page_and_prints_json(verb: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, page, policies = tmp_path / "wh", tmp_path / "page.html", tmp_path / "policies.yaml"
    policies.write_text(
        "defaults: {cost: {core_hour: 3600, gb_month: 1000000}}\n"
        "tables: {depot.resting: {paused: storage move, owners: [ann@example.org], slo: {sorted_runs_p95: 3}}}"
    )
    make_warehouse(root)
    assert verb("-w", root, "-o", page, "--policies", policies) == 0
    printed = capsys.readouterr().out
    assert f"{page}: 5 tables (" in printed.replace("\n", "") and "1 paused" in printed
    text = page.read_text()
    assert text.index("shop.torn</button>") < text.index("depot.resting</button>") < text.index("shop.calm</button>")
    assert "DAGSTER_HOME is not set" in text
    left = {file.name for file in tmp_path.iterdir() if file.is_file()}
    assert left == {"page.html", "policies.yaml"}, "no draft is left, and no history without a platform"

    assert verb("-w", root, "shop.*", "depot.resting", "--policies", policies, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    tables = {table["table"]: table for table in document["tables"]}
    assert set(tables) == {"shop.busy", "shop.calm", "shop.log", "shop.torn", "depot.resting"}
    busy, calm, resting, torn = (tables[name] for name in ("shop.busy", "shop.calm", "depot.resting", "shop.torn"))
    assert (busy["state"], busy["sorted_runs"], busy["level0_files"]) == ("due", 6, 6)
    assert busy["reason"].startswith("6 sorted runs >= 5") and (busy["action"], busy["when"]) == (
        "compact",
        "the next tick",
    )
    assert [score for _, score in busy["trend"]] == sorted(score for _, score in busy["trend"])
    assert len(busy["trend"]) == 7 and busy["trend"][0][1] < busy["trend"][-1][1] == busy["score"]
    assert resting["state"] == "paused" and "storage move" in resting["reason"]
    assert resting["owners"] == ["ann@example.org"]
    assert resting["promises"][0].startswith("sorted_runs_p95 <= 3 for ")
    assert (torn["state"], torn["readable"]) == ("corrupt", False) and "CorruptFile" in torn["reason"]
    entry, tagged = calm["entries"]
    assert tagged["action"] == "create_tag"
    assert (entry["action"], entry["outcome"], entry["runs_before"], entry["runs_after"]) == ("compact", "done", 3, 1)
    assert entry["bytes_in"] == calm["spent_bytes"] > 0
    priced = re.fullmatch(r"maintenance ([\d.]+) USD in 7 d; storage ([\d.]+) USD a month", calm["costs"])
    assert priced and float(priced[1]) == pytest.approx(calm["spent_seconds"], rel=0.02)
    assert float(priced[2]) == pytest.approx((calm["total_bytes"] + calm["held_bytes"]) / 1000, rel=0.02)
    assert "tag kept" in {holder["name"] for holder in calm["holders"]} and calm["held_bytes"] > 0
    assert document["counts"] == {
        state: sum(t["state"] == state for t in tables.values()) for state in document["counts"]
    }


def test_the_verb_names_what_is_wrong(
    verb: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root, "shop.calm", partitioned=False))
    for words, message in (
        ((), "--output, or print JSON with --json"),
        (("x.*", "--json"), "matches x.*; `dredge tables` lists its 1 table"),
        (("-o", tmp_path), "a file in a folder that exists"),
        (("-o", tmp_path / "no" / "page.html"), "a file in a folder that exists"),
    ):
        assert verb("-w", root, *words) != 0
        assert message in capsys.readouterr().err
    assert verb("-w", tmp_path / "nothing", "--json") == 1
    assert "there is no warehouse" in capsys.readouterr().err
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "no home"))
    assert verb("-w", root, "--json") == 1
    assert "option 'DAGSTER_HOME'" in capsys.readouterr().err


def test_an_empty_warehouse_has_a_report(verb: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wh").mkdir()
    assert verb("-w", tmp_path / "wh", "-o", tmp_path / "page.html") == 0
    assert "0 tables" in capsys.readouterr().out and "0 tables" in (tmp_path / "page.html").read_text()


def test_with_dagster_the_verb_shows_its_failed_checks_and_the_trend_of_the_hourly_report(
    verb: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "wh"
    commit(keyed_table(root, "shop.wrong", partitioned=False), 2)
    with open_house(root) as house:
        house.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                house.layout("shop.wrong"), names.TREE_CHECK, passed=False, description="files overlap"
            )
        )
        monkeypatch.setenv("DAGSTER_HOME", house.instance.root_directory)
        files = report_files(WarehouseNames(str(root)), Settings(), house.instance.root_directory)
        assert files is not None
        files.scores.parent.mkdir(parents=True)
        history = ScoreHistory()
        for hour in range(5):
            history = history.add_point(hour * 3_600_000, {"shop.wrong": 10.0 * hour})
        files.scores.write_text(history.to_json())
        monkeypatch.chdir(root.parent)
        assert verb("-w", "wh", "--json") == 0
        assert files.scores.read_text() == history.to_json(), "only the hourly job adds points"
    document = json.loads(capsys.readouterr().out)
    (table,) = document["tables"]
    assert (table["state"], document["notes"]) == ("blocked", [])
    assert "files overlap" in table["reason"]
    assert [score for _, score in table["trend"]][:-1] == [0.0, 10.0, 20.0, 30.0, 40.0]


def test_a_failed_write_leaves_the_earlier_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.html"
    replace_file(page, "old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError):
        replace_file(page, "new")
    assert page.read_text() == "old" and list(tmp_path.iterdir()) == [page]


def test_the_same_warehouse_at_the_same_time_gives_the_same_page(verb: Any, tmp_path: Path) -> None:
    root = tmp_path / "wh"
    make_warehouse(root)
    pages = []
    for number in range(2):
        assert verb("-w", root, "-o", tmp_path / f"{number}.html", "--clock", "fixed:1795753572000") == 0
        pages.append((tmp_path / f"{number}.html").read_bytes())
    assert pages[0] == pages[1]


def test_the_hourly_job_writes_the_page_and_links_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, clock = tmp_path / "wh", FileClock(str(tmp_path / "clock"))
    monkeypatch.setenv("DREDGE_DAGSTER_URL", "https://dagster.example.org")
    monkeypatch.delenv("DREDGE_REPORT_DIR", raising=False)
    monkeypatch.delenv("DREDGE_UI_URL", raising=False)
    commit(keyed_table(root, "shop.busy", partitioned=False), 3)
    wrong = keyed_table(root, "shop.wrong", partitioned=False)
    commit(wrong, 6)
    clock.set(1_795_753_572_000)
    with open_house(root, DREDGE_CLOCK=clock.to_spec()) as house:
        house.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                house.layout("shop.wrong"), names.TREE_CHECK, passed=False, description="files <b>overlap"
            )
        )

        def hour(number: int) -> dict[str, Any]:
            clock.set(1_795_753_572_000 + number * 3_600_000)
            result = house.execute(names.WAREHOUSE_HEALTH)
            assert result.success
            (event,) = result.get_asset_materialization_events()
            return {name: value.value for name, value in event.materialization.metadata.items()}

        page = Path(hour(0)["report"])
        assert page.parent == Path(house.instance.root_directory) / "dredge" / "report" and page.name == "wh.html"
        text = page.read_text()
        assert "files &lt;b&gt;overlap" in text
        assert text.index("shop.wrong</button>") < text.index("shop.busy</button>")
        assert 'href="https://dagster.example.org/assets/wh/shop/busy_layout"' in text
        for number in range(1, 5):
            hour(number)
        assert "5 points (one point for each report)" in page.read_text()

        monkeypatch.setenv("DREDGE_REPORT_DIR", str(tmp_path / "served"))
        monkeypatch.setenv("DREDGE_REPORT_URL", "https://reports.example.org/dredge/")
        output = hour(6)
        assert output["report"] == str(tmp_path / "served" / "wh.html")
        assert output["report address"] == "https://reports.example.org/dredge/wh.html"

        (tmp_path / "file").write_text("")
        monkeypatch.setenv("DREDGE_REPORT_DIR", str(tmp_path / "file"))
        assert hour(7)["report"].startswith("not written: "), "the ranking is made without its page"


def test_a_run_of_dagster_is_linked_from_its_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "wh"
    monkeypatch.setenv("DREDGE_DAGSTER_URL", "https://dagster.example.org")
    commit(keyed_table(root, "shop.busy", partitioned=False), 6)
    with open_house(root) as house:
        run_id = house.maintain("shop.busy").run_id
        text = Path(
            next(
                value.value
                for event in house.execute(names.WAREHOUSE_HEALTH).get_asset_materialization_events()
                for name, value in event.materialization.metadata.items()
                if name == "report"
            )
        ).read_text()
    assert f'href="https://dagster.example.org/runs/{run_id}"' in text


def test_the_folder_and_the_address_come_from_the_settings(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="DREDGE_REPORT_URL"):
        Settings.from_environment({"DREDGE_REPORT_URL": "javascript:alert(1)"})
    assert report_files(WarehouseNames("/data/wh"), Settings(), "") is None
    home = report_files(WarehouseNames("/data/wh"), Settings(), str(tmp_path))
    assert home is not None and (home.page, home.address) == (tmp_path / "dredge" / "report" / "wh.html", "")
    settings = Settings.from_environment({"DREDGE_REPORT_DIR": str(tmp_path), "DREDGE_REPORT_URL": "https://x.org/r/"})
    served = report_files(WarehouseNames("s3://lake/wh"), settings, "")
    assert served is not None and (served.page, served.address) == (tmp_path / "wh.html", "https://x.org/r/wh.html")
    served.scores.write_text("[")
    assert read_scores(served.scores).times == ()
