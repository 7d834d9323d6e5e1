"""States of tables and alerts as files for Prometheus, written by the hourly job and by the sensor `watch`."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dredge.orchestration.sensors.metric_files import alert_samples, write_metrics
from dredge.platform_core import names
from dredge.platform_core.names import WarehouseNames
from dredge.platform_core.policies.decisions import DAY_MS
from dredge.platform_core.policies.findings import AlertCondition, Finding, Severity
from lsm_core.clock import FileClock
from tests.support.platform import commit, keyed_table, open_house


def test_the_hourly_job_writes_states_and_the_watch_writes_alerts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, clock, folder = tmp_path / "wh", FileClock(str(tmp_path / "clock")), tmp_path / "metrics"
    folder.mkdir()
    commit(keyed_table(root, "shop.busy", partitioned=False), 6)
    calm = keyed_table(root, "shop.calm", partitioned=False)
    commit(calm)
    keyed_table(root, "shop.torn", partitioned=False)
    (root / "shop.db" / "torn" / "schema" / "schema-0").write_text("{")
    clock.set(max(bucket.newest_file_ms or 0 for bucket in calm.health()) + DAY_MS)
    monkeypatch.setenv("DREDGE_METRICS_DIR", str(folder))
    with open_house(root, DREDGE_CLOCK=clock.to_spec(), DREDGE_METRICS_DIR=str(folder)) as house:
        assert house.execute(names.WAREHOUSE_HEALTH).success
        states = (folder / "dredge_states_wh.prom").read_text("utf-8").splitlines()
        assert 'dredge_table_state{table="shop.busy",state="due"} 1' in states
        assert 'dredge_table_state{table="shop.torn",state="corrupt"} 1' in states
        assert 'dredge_tables_in_state{state="healthy"} 1' in states
        assert 'dredge_tables_in_state{state="blocked"} 0' in states  # so that a line in a graph goes down to 0
        assert f"dredge_states_timestamp_seconds {clock.now_ms() / 1000!r}" in states

        house.tick(names.WATCH_SENSOR)
        alerts = (folder / "dredge_alerts_wh.prom").read_text("utf-8").splitlines()
        assert 'dredge_alerts{condition="maintenance stands still",severity="error"} 1' in alerts
        assert 'dredge_alert{subject="shop.torn",condition="cannot be looked at",severity="error"} 1' in alerts
    assert sorted(path.name for path in folder.iterdir()) == ["dredge_alerts_wh.prom", "dredge_states_wh.prom"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in folder.iterdir())


def test_alerts_have_bounded_series_and_a_count_of_all() -> None:
    findings = [
        Finding(f"shop.t{number}", AlertCondition.STALLED, Severity.ERROR, "text") for number in range(1_500)
    ] * 2
    samples = list(alert_samples(findings, 5_000))
    assert samples[0].value == 5.0
    assert [sample.value for sample in samples if sample.metric == "dredge_alerts"] == [3_000]
    assert len([sample for sample in samples if sample.metric == "dredge_alert"]) == 1_000
    assert [sample.metric for sample in alert_samples([], 0)] == ["dredge_alerts_timestamp_seconds"]


def test_without_a_folder_nothing_is_written_and_a_lost_folder_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert write_metrics(WarehouseNames("/data/wh"), "alerts", alert_samples([], 0), {}) is None
    missing = {"DREDGE_METRICS_DIR": str(tmp_path / "none")}
    assert write_metrics(WarehouseNames("/data/wh"), "alerts", alert_samples([], 0), missing) is None
    assert "DREDGE_METRICS_DIR: the metrics of alerts cannot be written" in caplog.text
