"""Start-up of a run with Dagster's own launcher and with Dredge's, from the click on "Materialize" to the run's end."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from bench.harness import Result
from bench.platform import build
from dredge.orchestration.verbs.dagster_client import Run
from dredge.orchestration.verbs.dagster_process import INSTANCE, Platform, start_platform
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import ASSET_JOB

TABLES = 20
LAUNCHERS = ("Dagster's", "Dredge's")


def write_settings(home: Path, *, own_launcher: bool) -> None:
    """Write the `dagster.yaml` of the checkout, with or without the launcher and the instance class of Dredge."""
    settings = yaml.safe_load(INSTANCE.read_text("utf-8"))
    if not own_launcher:
        del settings["run_launcher"], settings["instance_class"]
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(yaml.safe_dump(settings), "utf-8")


def launch(platform: Platform, layout: Sequence[str], timeout_s: float = 300) -> Run:
    """Materialise a layout as a person does, and return the run after it ended."""
    run_id = platform.client.launch(ASSET_JOB, assets=[layout])
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        run = next((run for run in platform.client.runs() if run.run_id == run_id), None)
        if run is not None and run.finished:
            if run.status != "SUCCESS":
                raise RuntimeError(f"run {run_id}: {run.status} (console: {platform.log})")
            return run
        time.sleep(0.1)
    raise RuntimeError(f"run {run_id} did not end within {timeout_s:g} s (console: {platform.log})")


def run(tables: int | None, rounds: int) -> list[Result]:
    """Measure runs that compact 20 tiny files of one table each, one at a time, without other load."""
    count = max(tables or TABLES, rounds + 1)
    results = []
    with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
        for number, launcher in enumerate(LAUNCHERS):
            warehouse, home = Path(folder) / str(number) / "warehouse", Path(folder) / str(number) / "home"
            build(warehouse, count)
            write_settings(home, own_launcher=launcher == LAUNCHERS[1])
            environment = {"DREDGE_WAREHOUSE": str(warehouse), "DREDGE_RUNNER": "local"}
            platform = start_platform(home, {**environment, "DREDGE_SENSORS": "off", "DREDGE_SCHEDULES": "off"})
            try:
                layouts = [
                    names.WarehouseNames(str(warehouse)).layout_key(f"bench.t{table:05d}").path
                    for table in range(rounds + 1)
                ]
                launch(platform, layouts[0])  # the first one, after which both have their files in the page cache
                runs = [launch(platform, layout) for layout in layouts[1:]]
            finally:
                platform.stop()
            for name, seconds in (
                ("a run starts", [(run.started or run.created) - run.created for run in runs]),
                ("a run ends", [(run.ended or run.created) - run.created for run in runs]),
            ):
                note = f"{count:,} tables; elapsed since its creation, 1 s of the queue included"
                median = statistics.median(seconds)
                results.append(
                    Result(
                        "launcher",
                        f"{launcher} launcher: {name}",
                        median,
                        "s",
                        None,
                        low=min(seconds),
                        high=max(seconds),
                        note=note,
                    )
                )
    return results
