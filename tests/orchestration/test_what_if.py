"""What if: `dredge simulate` and the job `what_if` tell the same of a table's own commits."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from dredge.orchestration.ops.what_if_op import runs_picture
from dredge.orchestration.verbs.simulate import simulate as verb
from dredge.orchestration.verbs.simulate import sparkline
from dredge.platform_core import names
from dredge.platform_core.policies.what_if import simulated_policy
from dredge.platform_core.policies.what_if_picture import draw_runs
from lsm_core.errors import InvalidOption
from lsm_core.maintenance.simulation import simulate
from tests.support.platform import commit, keyed_table, open_house

HOUR = 3_600_000
PLATFORM = """
defaults: {idle_after: 1 d}
databases:
  shop: {idle_after: 10 d, idle_min_runs: 3}
tables:
  shop.orders:
    idle_after: 2 h
    off_peak: {time_zone: UTC, windows: [{from: "00:00", to: "04:00"}]}
"""


def test_a_policy_file_tells_idle_times_and_windows_and_any_other_file_options() -> None:
    whole = simulated_policy(PLATFORM, "all", "shop.orders")
    assert (whole.name, whole.idle_after_ms, whole.idle_min_runs, whole.options) == ("all", 2 * HOUR, 3, {})
    assert whole.next_open is not None and whole.next_open(5 * HOUR) == 24 * HOUR
    assert simulated_policy(PLATFORM, "all", "shop.other").next_open is None
    own = simulated_policy("num-sorted-run.compaction-trigger: 3\nlook_every: 5 min", "own", "shop.orders")
    assert (own.options, own.look_every_ms) == ({"num-sorted-run.compaction-trigger": "3"}, 300_000)
    assert simulated_policy("", "empty", "a.b").name == "empty"
    for text, word in [("[1", "YAML"), ("- a", "mapping"), ("idle_aftr: 3 d", "idle_aftr"), ("tables: 7", "tables")]:
        with pytest.raises(InvalidOption, match=word):
            simulated_policy(text, "bad", "shop.orders")


def test_the_command_and_the_job_tell_what_the_engine_does(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    table = keyed_table(root, partitioned=False)
    for _ in range(7):
        commit(table, rows=10)
    eager, lazy = tmp_path / "eager.yaml", tmp_path / "lazy.yaml"
    eager.write_text("num-sorted-run.compaction-trigger: 2")
    lazy.write_text("{idle_after: 1 d, num-sorted-run.compaction-trigger: 6}")
    app = typer.Typer()
    app.command()(verb)
    asked = ["shop.orders", "-w", str(root), "--policy", str(eager), "--policy", str(lazy)]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert "7 commits" in shown.output and "eager" in shown.output and "lazy" in shown.output
    assert "worst week" in shown.output
    drawn = tmp_path / "runs.svg"
    assert CliRunner().invoke(app, [*asked, "--picture", str(drawn)]).exit_code == 0
    assert len(ElementTree.parse(drawn).getroot().findall("{*}polyline")) == 2
    lost = CliRunner().invoke(app, [*asked, "--picture", str(tmp_path / "no" / "x.svg")])
    assert "cannot be written" in str(lost.exception)
    output = CliRunner().invoke(app, [*asked, "--history", ":5", "--json"])
    rows = json.loads(output.output)
    assert [(row["policy"], row["commits"]) for row in rows] == [("eager", 5), ("lazy", 5)]
    for wrong in (["--history", "five"], ["--policy", str(tmp_path / "none.yaml")]):
        failed = CliRunner().invoke(app, ["shop.orders", "-w", str(root), *wrong])
        assert isinstance(failed.exception, InvalidOption)

    with open_house(root) as house:
        job = house.repository.get_job(names.WHAT_IF_JOB)
        config = {"table": "shop.orders", "policies": {"eager": eager.read_text(), "lazy": lazy.read_text()}}
        result = job.execute_in_process(run_config=config, instance=house.instance)
        assert result.success
        (event,) = [item for item in result.all_events if item.event_type_value == "STEP_OUTPUT"]
        metadata = {name: value.value for name, value in event.step_output_data.metadata.items()}
        found = simulate(
            house.warehouse.store("shop.orders"),
            [simulated_policy(file.read_text(), file.stem, "shop.orders") for file in (eager, lazy)],
        ).to_pylist()
        for row in found:
            cells = f"| {row['policy']} | {row['write_amplification']:,} |"
            assert cells in metadata["policies"]
        assert "data:image/svg+xml;base64," in metadata["runs over time"]
        bad = job.execute_in_process(
            run_config={"table": "shop.orders", "policies": {"x": "bucket: 3"}},
            instance=house.instance,
            raise_on_error=False,
        )
        assert not bad.success


def test_pictures_hold_any_name_and_any_number_of_policies() -> None:
    row = {"policy": "<script>\x00&", "runs_over_time": [0.0, 3.0]}
    assert "image/svg+xml;base64," in runs_picture([row])
    many = [
        {"policy": f"p{number}", "runs_over_time": [1.0, number], "mean_runs": number / 2, "worst_week_runs": number}
        for number in range(40)
    ]
    root = ElementTree.fromstring(draw_runs([row, *many]))
    lines = root.findall("{*}polyline")
    texts = ["".join(text.itertext()) for text in root.findall("{*}text")]
    assert len(lines) == 41 and "<script>?&" in texts
    assert "p39: mean 19.5, worst week 39.0 sorted runs" in texts
    styles = {(line.get("stroke"), line.get("stroke-dasharray")) for line in lines}
    assert len(styles) == 41  # each line differs
    points = [tuple(map(float, point.split(","))) for line in lines for point in str(line.get("points")).split()]
    assert all(0 <= x <= 760 and 0 <= y <= 160 for x, y in points)
    bottom = max(float(text.get("y", "0")) for text in root.findall("{*}text"))
    assert bottom < float(root.get("height", "0"))
    long = ElementTree.fromstring(draw_runs([row | {"policy": "x" * 500}]))
    assert max(len(text.text or "") for text in long.findall("{*}text")) == 40


def test_sparklines_have_a_bar_a_value() -> None:
    assert sparkline([0.0, 1.0, 2.0], 2.0) == "▁▅█"
    assert sparkline([0.0], 0.0) == "▁"
