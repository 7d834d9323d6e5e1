"""`dredge status` and `dredge metrics` say how a table keeps the promises of its policy."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pyarrow as pa
import pytest

from dredge.platform_core import names
from lsm_core import Catalog, Schema
from lsm_core.cli.app import run
from tests.maintenance.tables import HOUR, NOW, keyed, rows
from tests.support.platform import commit, keyed_table, open_house

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def dredge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a verb with the entry points of this checkout on a warehouse with a policy file."""
    declared = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group: [EntryPoint(name, value, group) for name, value in declared.get(group, {}).items()],
    )
    monkeypatch.setenv("DREDGE_POLICIES", str(tmp_path / "policies.yaml"))
    table = keyed(tmp_path, write_only="true")
    for number in range(4):
        table.write(rows(range(3), v=number))

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([*words, "-w", str(tmp_path / "wh"), "--clock", f"fixed:{NOW + 2 * HOUR}"])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_status_and_metrics_report_promises(tmp_path: Path, dredge: Callable[..., tuple[int, str, str]]) -> None:
    (tmp_path / "policies.yaml").write_text("tables: {db.t: {slo: {sorted_runs_p95: 3, freshness: 3 h}}}")
    code, printed, _ = dredge("status")
    assert code == 0
    assert (
        "db.t: sorted_runs_p95 <= 3 for 99 % of the week: broken: within it for 0.00% of the known time "
        "(2 h of 2 h known); now 4\n" in printed
    )
    assert "db.t: freshness <= 3 h for 99 % of the week: kept: within it for 100.00%" in printed
    assert len(json.loads(dredge("status", "db.t", "--json")[1])["promises"]) == 2
    lines = dredge("metrics")[1].splitlines()
    assert "dredge_policy_file_valid 1" in lines
    assert 'dredge_promise_met{table="db.t",promise="sorted_runs_p95"} 0' in lines
    assert 'dredge_promise_within_ratio{table="db.t",promise="freshness"} 1.0' in lines
    assert 'dredge_promise_target_ratio{table="db.t",promise="freshness"} 0.99' in lines


def test_without_promises_nothing_is_added(tmp_path: Path, dredge: Callable[..., tuple[int, str, str]]) -> None:
    (tmp_path / "policies.yaml").write_text("defaults: {idle_after: 3 d}")
    assert "of the week" not in dredge("status")[1]
    assert "dredge_promise" not in dredge("metrics")[1]


def test_an_invalid_policy_file_is_a_metric_and_loses_no_other(
    tmp_path: Path, dredge: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "policies.yaml").write_text("defaults: {slo: 7}")
    code, printed, _ = dredge("metrics")
    assert code == 0 and "dredge_policy_file_valid 0" in printed.splitlines()
    assert 'dredge_table_readable{table="db.t"} 1' in printed
    code, printed, errors = dredge("status")
    assert code == 0 and "db.t" in printed and "defaults.slo" in errors


def test_an_append_table_has_no_sorted_runs_to_promise(
    tmp_path: Path, dredge: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "policies.yaml").write_text("defaults: {slo: {sorted_runs_p95: 1}}")
    log = Catalog(tmp_path / "wh").create_table(
        "db.log", Schema(pa.schema([("v", pa.int64())]), options={"bucket": "-1"})
    )
    log.write(pa.table({"v": [1]}))
    printed = dredge("metrics")[1]
    assert 'dredge_promise_met{table="db.t"' in printed and 'dredge_promise_met{table="db.log"' not in printed


_PRICES = "cost: {core_hour: 3.6, gb_month: 30000, currency: EUR, reads_a_day: 10}"


def test_cost_shows_runs_storage_and_saved_reads_by_table_and_owner(
    tmp_path: Path, dredge: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "policies.yaml").write_text(f'tables: {{db.t: {{owners: ["team:a"], {_PRICES}}}}}')
    assert dredge("compact", "db.t", "--full")[0] == 0
    Catalog(tmp_path / "wh").create_table("db.free", Schema(pa.schema([("v", pa.int64())]), options={"bucket": "-1"}))
    code, printed, _ = dredge("cost")
    assert code == 0 and "2023-11  db.t   team:a     1 " in printed and " EUR" in printed
    assert "1 table has no prices: set cost.core_hour" in printed and "db.free" not in printed
    (row,) = json.loads(dredge("cost", "db", "--json")[1])
    assert row["work"] == pytest.approx(row["seconds"] * 3.6 / 3600)
    assert row["held_bytes"] > 0 < row["live_bytes"] and row["saved"] >= 0 and row["runs"] == 1
    # The table was created two hours ago.
    assert row["storage"] == pytest.approx(30_000 * (row["live_bytes"] + row["held_bytes"]) / 1e9 / 30 / 12)
    rows = json.loads(dredge("cost", "--months", "2", "--by-owner", "--json")[1])
    assert [(row["month"], row["table"], row["owner"], row["storage"] is None) for row in rows] == [
        ("2023-10", "1 table", "team:a", True),
        ("2023-11", "1 table", "team:a", False),
    ]
    lines = dredge("metrics")[1].splitlines()
    labels = 'table="db.t",owner="team:a",currency="EUR"'
    assert f"dredge_storage_price{{{labels}}} 30000.0" in lines
    assert any(line.startswith(f"dredge_cost_runs{{{labels}}} ") for line in lines)


@pytest.mark.parametrize("words", [("nosuch",), ("nosuch.*",), ("db.nosuch",), ("nosuch", "--json")])
def test_cost_and_report_refuse_a_pattern_that_matches_no_table(
    tmp_path: Path, dredge: Callable[..., tuple[int, str, str]], words: tuple[str, ...]
) -> None:
    (tmp_path / "policies.yaml").write_text(f"defaults: {{{_PRICES}}}")
    for verb in (("cost",), ("report", "-o", str(tmp_path / "page.html"))):
        code, printed, errors = dredge(verb[0], *words, *verb[1:])
        assert (code, printed) == (1, "")
        assert f" matches {words[0]}; `dredge tables` lists its 1 table\n" in errors
    assert not (tmp_path / "page.html").exists()
    code, printed, _ = dredge("report", "db", "-o", str(tmp_path / "page.html"))
    assert code == 0 and "1 table" in printed, "a database means all of its tables, as in `cost` and `maintain`"


def test_cost_of_a_warehouse_without_tables_is_no_error(
    tmp_path: Path, dredge: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "policies.yaml").write_text(f"defaults: {{{_PRICES}}}")
    Catalog(tmp_path / "wh").drop_table("db.t")
    assert dredge("cost")[:2] == (0, "no tables yet\n")


def test_cost_of_an_unreadable_table_does_not_say_that_there_are_no_tables(
    tmp_path: Path, dredge: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "policies.yaml").write_text(f"defaults: {{{_PRICES}}}")
    (tmp_path / "wh" / "db.db" / "t" / "schema" / "schema-0").write_text("{")
    code, printed, errors = dredge("cost")
    assert (code, printed) == (1, "")
    assert "db.t: corrupt file " in errors


def test_cost_without_prices_or_policies_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dredge: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "policies.yaml").write_text("{}")
    assert "1 table has no prices" in dredge("cost")[1]
    assert dredge("cost", "--months", "0")[0] != 0
    monkeypatch.delenv("DREDGE_POLICIES")
    code, _, errors = dredge("cost")
    assert code == 1 and "no policy file" in errors


def test_unattended_maintenance_declines_what_does_not_pay_and_a_person_is_obeyed(
    tmp_path: Path, dredge: Callable[..., tuple[int, str, str]]
) -> None:
    (tmp_path / "policies.yaml").write_text("defaults: {cost: {core_hour: 1, reads_a_day: 0}}")
    Catalog(tmp_path / "wh").table("db.t").write(rows(range(3), v=9))
    code, printed, _ = dredge("maintain", "db.t", "--unattended")
    assert (
        code == 0 and "and 0 reads a day save 0.00 USD in 30 d: not worth a run (policies.yaml:1, defaults)" in printed
    )
    code, printed, _ = dredge("maintain", "db.t")
    assert code == 0 and "not worth a run" not in printed and "compact: done" in printed


def test_a_tick_declines_what_does_not_pay_until_the_backlog_is_critical(tmp_path: Path) -> None:
    root, policies = tmp_path / "shop", tmp_path / "p.yaml"
    policies.write_text("defaults: {cost: {core_hour: 1.0, currency: EUR, reads_a_day: 0.001}, level0_critical: 8}")
    table = keyed_table(root, partitioned=False)
    commit(table, 6)
    with open_house(root, DREDGE_POLICIES=str(policies)) as house:
        tick = house.tick(names.SORTED_RUN_SENSOR)
        (line,) = [line for line in house.lines(tick) if line.startswith("shop.orders")]
        assert "decline (costs more than it saves): 6 sorted runs >= 5; costs " in line and not tick.run_requests
        assert "and 0.001 reads a day save " in line and "not worth a run (p.yaml:1, defaults)" in line
        commit(table, 3)
        assert house.tick(names.SORTED_RUN_SENSOR).run_requests
