"""`dredge metrics` and `dredge doctor`: numbers that Prometheus reads, and what Dredge stands on, with an exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lsm_core import Catalog
from lsm_core.cli.app import run
from lsm_core.cli.verbs import doctor as doctors
from lsm_core.maintenance.metrics import METRICS, Sample, format_metrics
from lsm_core.storage.local_file_io import LocalFileIO
from tests.cli.shell import Answer, Shell
from tests.maintenance.tables import HOUR

_SAMPLE = re.compile(r'([a-z_0-9]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (-?[0-9.e+]+)')


def _parsed(text: str) -> dict[tuple[str, ...], float]:
    """Every sample by metric and labels; a line that is neither a sample nor a comment in Prometheus's format fails."""
    found: dict[tuple[str, ...], float] = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# "):
            if line.startswith("# TYPE "):
                name = line.split()[2]
                assert name not in typed, f"{name} comes twice"
                typed.add(name)
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] in typed
        found[match[1], *re.findall(r'="((?:[^"\\]|\\.)*)"', match[2] or "")] = float(match[3])
    return found


def test_metrics_tell_health_history_and_ledger_in_prometheus_text(shell: Shell, tmp_path: Path) -> None:
    assert shell("compact", "db.t").code == 0
    shell.clock += HOUR
    (shell.place / "db.db" / "torn" / "schema").mkdir(parents=True)
    (shell.place / "db.db" / "torn" / "schema" / "schema-0").write_text("{")
    found = _parsed(shell("metrics").out)
    table = "db.t"
    assert found["dredge_tables",] == 2
    assert (found["dredge_table_readable", table], found["dredge_table_readable", "db.torn"]) == (1, 0)
    assert ("dredge_table_score", "db.torn") not in found
    assert (found["dredge_table_snapshots", table], found["dredge_table_sorted_runs", table]) == (7, 1)
    assert found["dredge_maintenance_runs", table, "compact", "done"] == 1
    assert (
        found["dredge_maintenance_last_run_timestamp_seconds", table, "compact", "done"] == (shell.clock - HOUR) / 1000
    )
    assert not any(
        name == "dredge_maintenance_runs" for name, *_ in _parsed(shell("metrics", "--window", "30 min").out)
    )
    assert {name for name, *_ in found} <= set(METRICS)

    target = tmp_path / "dredge.prom"
    target.write_text("old")
    assert shell("metrics", "--output", str(target)).out == ""
    assert _parsed(target.read_text()) == found
    assert [path.name for path in tmp_path.glob(".*prom*")] == []
    assert shell("metrics", "--json").json[1] == {"metric": "dredge_tables", "value": 2, "labels": {}}
    missing = shell("metrics", "-o", str(tmp_path / "no" / "x.prom"))
    assert missing.code == 1 and "x.prom cannot be written" in missing.err


def test_labels_that_strangers_wrote_stay_labels() -> None:
    text = format_metrics([Sample("dredge_table_score", 1.5, {"table": 'a"} 7\nx\\'})])
    assert text.splitlines()[-1] == r'dredge_table_score{table="a\"} 7\nx\\"} 1.5'
    assert _parsed(text)


def test_bytes_and_predictions_come_by_action_and_ledgers_cannot_add_series_without_end(shell: Shell) -> None:
    assert shell("compact", "db.t").code == 0
    ledger = shell.place / "db.db" / "t" / "dredge" / "ledger"
    (entry,) = [json.loads(path.read_text().splitlines()[0]) for path in ledger.glob("*-compact-*")]
    for number in range(60):
        forged = {**entry, "action": f"x{number}" * 200, "outcome": f"o{number}", "report": {"bytes_in": -5}}
        (ledger / f"{entry['time_ms']:013d}-x{number}-00000000.jsonl").write_text(json.dumps(forged))
    found = _parsed(shell("metrics", "--holds").out)
    read, written = (
        found[f"dredge_maintenance_{name}_bytes", "db.t", "compact", "done"] for name in ("read", "written")
    )
    assert read == entry["report"]["bytes_in"] > written == entry["report"]["bytes_out"] > 0
    predicted = found["dredge_maintenance_predicted_seconds", "db.t", "compact", "done"]
    measured = found["dredge_maintenance_predicted_run_seconds", "db.t", "compact", "done"]
    assert (predicted, measured) == (round(entry["predicted_seconds"], 3), entry["seconds"])
    runs = {
        labels: value
        for (metric, *labels), value in found.items()
        if metric == "dredge_maintenance_runs"
        for labels in [tuple(labels)]
    }
    assert sum(runs.values()) == 61 and len(runs) == 41
    assert runs["db.t", "other", "other"] > 1 and max(len(action) for _, action, _ in runs) <= 200
    assert found["dredge_table_held_bytes", "db.t", "live"] > 0 < found["dredge_table_held_bytes", "db.t", "snapshot"]


def _doctor(shell: Shell, *arguments: str) -> Answer:
    shell.capsys.readouterr()
    code = run(["doctor", *arguments, "-w", str(shell.place)])
    captured = shell.capsys.readouterr()
    return Answer(code, captured.out, captured.err)


def _told(answer: Answer) -> dict[str, Any]:
    return {finding["check"]: finding for finding in answer.json["findings"]}


@pytest.fixture(autouse=True)
def _roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever room the machine has that runs the tests."""
    usage = type("Usage", (), {"total": 100 << 30, "free": 50 << 30})()
    monkeypatch.setattr(doctors.shutil, "disk_usage", lambda _: usage)
    for name in ("DREDGE_SPARK_REMOTE", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_the_doctor_finds_all_well_and_says_where_options_come_from(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Catalog(shell.place).table("db.t")
    monkeypatch.setenv("DREDGE_ALERT_WEBHOOK", "https://hooks.example.org/T0/secret")
    monkeypatch.setenv("DREDGE_DAGSTER_URL", "http://ann:pw@localhost:3000")
    before = sorted(shell.place.rglob("*"))
    answer = _doctor(shell, "db.t", "--json", "--catalog-option", "lock-acquire-timeout=5 min")
    assert answer.code == 0, answer.err
    result = _told(answer)
    assert {result[name]["verdict"] for name in ("permissions", "exclusive creation", "clock", "guarantee")} == {"ok"}
    assert "exclusive creation (hard link)" in result["guarantee"]["text"]
    assert "50 GiB of 100 GiB free" in result["disk of the warehouse"]["text"]
    options = {item["option"]: (item["value"], item["comes_from"]) for item in answer.json["options"]}
    assert options["bucket"] == ("1", "the table (schema 0)")
    assert options["lock-acquire-timeout"] == ("5 min", "--catalog-option")
    assert options["dredge.lock.acquire-timeout"] == ("5 min", "the catalog's options")
    assert options["dredge.verification"] == ("full", "default")
    assert options["DREDGE_ALERT_WEBHOOK"] == ("(set)", "environment")
    assert options["DREDGE_DAGSTER_URL"][0] == "http://***@localhost:3000"
    assert "secret" not in answer.out and "pw@" not in answer.out
    assert sorted(shell.place.rglob("*")) == before
    assert "comes from" in _doctor(shell).out


def test_the_doctor_fails_for_each_thing_that_is_wrong(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_SPARK_REMOTE", "sc://localhost:1/;token=abc")
    monkeypatch.setenv("DAGSTER_HOME", "/nowhere")
    real, usage = doctors.shutil.disk_usage, type("Usage", (), {"total": 100 << 30, "free": 1 << 20})()
    monkeypatch.setattr(doctors.shutil, "disk_usage", lambda place: usage if "nowhere" in str(place) else real(place))
    (shell.place / "db.db" / "torn" / "schema").mkdir(parents=True)
    (shell.place / "db.db" / "torn" / "schema" / "schema-0").write_text("{")

    overwritten = LocalFileIO.write_exclusive

    def careless(self: LocalFileIO, path: str, data: bytes) -> bool:
        self.overwrite(path, data)
        return True

    monkeypatch.setattr(LocalFileIO, "write_exclusive", careless)
    monkeypatch.setattr(doctors.SystemClock, "now_ms", lambda _: 1_000)
    answer = _doctor(shell, "--json")
    result = _told(answer)
    for check in ("spark server", "disk of DAGSTER_HOME", "exclusive creation", "clock", "table"):
        assert result[check]["verdict"] == "fail", check
    assert "ahead of this machine's" in result["clock"]["text"]
    assert "token" not in result["spark server"]["text"]
    assert answer.code == 1 and re.match(r"dredge: \d+ of \d+ checks failed: ", answer.err)

    monkeypatch.setattr(LocalFileIO, "write_exclusive", overwritten)

    def refused(self: LocalFileIO, path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(LocalFileIO, "read_bytes", refused)
    assert "cannot read a file" in _doctor(shell).err
    assert list(shell.place.glob(".dredge-doctor*")) == []
