"""`dredge status` and `dredge metrics` say how a table keeps the promises of its policy."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from lsm_core.cli.app import run
from tests.maintenance.tables import HOUR, NOW, keyed, rows

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
    import pyarrow as pa

    from lsm_core import Catalog, Schema

    log = Catalog(tmp_path / "wh").create_table(
        "db.log", Schema(pa.schema([("v", pa.int64())]), options={"bucket": "-1"})
    )
    log.write(pa.table({"v": [1]}))
    printed = dredge("metrics")[1]
    assert 'dredge_promise_met{table="db.t"' in printed and 'dredge_promise_met{table="db.log"' not in printed
