"""Runs are forked from a warm process: a process each, that can be interrupted, and whose death is told."""

from __future__ import annotations

import datetime
import importlib.util
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import dagster as dg
import pytest
from dagster._core.events import RunFailureReason
from dagster._core.execution.api import create_execution_plan
from dagster._core.execution.retries import auto_reexecution_should_retry_run
from dagster._core.launcher import WorkerStatus
from dagster._daemon.monitoring import concurrency

from dredge.orchestration.launcher import PRELOADED, PROCESS_TAG, WarmRunLauncher

FOLDER = "DREDGE_TEST_FOLDER"


@dg.op
def tell() -> None:
    """Leaves behind what kind of process it ran in."""
    import sys

    (Path(os.environ[FOLDER]) / "told").write_text(f"{os.getpid()} {'warm' if 'colorsys' in sys.modules else 'cold'}")


@dg.op
def rest() -> None:
    """Rests until somebody ends it."""
    (Path(os.environ[FOLDER]) / "told").write_text(str(os.getpid()))
    time.sleep(60)


@dg.job(executor_def=dg.in_process_executor)
def telling() -> None:
    tell()


@dg.job(executor_def=dg.in_process_executor)
def resting() -> None:
    rest()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    (folder / "dagster.yaml").write_text(
        "run_launcher:\n  module: dredge.orchestration.launcher\n  class: WarmRunLauncher\n"
        "  config:\n    preload: [dagster._cli.api, colorsys, nowhere.to_be_found]\n"
        "telemetry:\n  enabled: false\n"
    )
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(
        folder
    )  # before the first fork: the process that forks keeps the environment it began with
    yield folder
    os.environ.pop(FOLDER) if before is None else os.environ.update({FOLDER: before})


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    (home / "told").unlink(missing_ok=True)
    with dg.DagsterInstance.from_config(str(home)) as made:
        assert isinstance(made.run_launcher, WarmRunLauncher)
        yield made


def launched(instance: dg.DagsterInstance, job: dg.JobDefinition) -> str:
    found = dg.reconstructable(job)
    plan = create_execution_plan(found)
    run = instance.create_run_for_job(job, execution_plan=plan, job_code_origin=found.get_python_origin())
    return instance.launch_run(run.run_id, workspace=None).run_id  # type: ignore[arg-type]


def wait_for(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    def found() -> dg.DagsterRun:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        return run

    wait_for(lambda: found().is_finished)
    return found()


def at_work(home: Path) -> int:
    wait_for(lambda: (home / "told").exists() and bool((home / "told").read_text()))
    return int((home / "told").read_text().split()[0])


def test_each_run_has_a_process_of_its_own_that_has_its_imports_already(
    instance: dg.DagsterInstance, home: Path
) -> None:
    seen = []
    for _ in range(2):
        run = ended(instance, launched(instance, telling))
        assert run.status is dg.DagsterRunStatus.SUCCESS
        pid, kind = (home / "told").read_text().split()
        assert kind == "warm"
        assert run.tags[PROCESS_TAG].startswith(f"{pid}:")
        seen.append(int(pid))
    assert len({*seen, os.getpid()}) == 3


def test_a_killed_process_ends_its_run_as_failed_and_run_monitoring_learns_of_it(
    instance: dg.DagsterInstance, home: Path
) -> None:
    run_id = launched(instance, resting)
    pid = at_work(home)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    launcher = instance.run_launcher
    assert launcher.check_run_worker_health(run).status is WorkerStatus.RUNNING
    os.kill(pid, signal.SIGKILL)
    assert ended(instance, run_id).status is dg.DagsterRunStatus.FAILURE
    lines = [entry.message for entry in instance.all_logs(run_id)]
    assert any("ended with code -9 before the run did" in message for message in lines)
    assert launcher.check_run_worker_health(run).status is WorkerStatus.FAILED


def test_a_person_ends_a_run_from_another_process(instance: dg.DagsterInstance, home: Path) -> None:
    run_id = launched(instance, resting)
    at_work(home)
    with dg.DagsterInstance.from_config(str(home)) as other:  # the web server's
        assert other.run_launcher.terminate(run_id)
    assert ended(instance, run_id).status is dg.DagsterRunStatus.CANCELED
    assert not instance.run_launcher.terminate(run_id)


def test_the_pool_of_a_run_that_was_cancelled_is_freed(tmp_path: Path) -> None:
    """The repository's own dagster.yaml, as the demo and every installation copy it."""
    shutil.copy(Path(__file__).parents[2] / "orchestration" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as made:
        run = dg.DagsterRun(job_name="resting", status=dg.DagsterRunStatus.STARTED)
        made.add_run(run)
        events = made.event_log_storage
        events.initialize_concurrency_limit_to_default("table/shop/orders")
        assert events.claim_concurrency_slot("table/shop/orders", run.run_id, "apply").is_claimed
        made.report_run_canceled(run)

        def slots_in_use() -> int:
            return events.get_concurrency_info("table/shop/orders").active_slot_count

        assert slots_in_use() == 1
        wait = made.run_monitoring_settings["free_slots_after_run_end_seconds"]
        assert 0 < wait <= 300
        with mock.patch.object(concurrency, "get_current_datetime", return_value=later(wait + 1)):
            list(concurrency.execute_concurrency_slots_iteration(SimpleNamespace(instance=made), logging.getLogger()))
        assert slots_in_use() == 0


def test_a_run_starts_again_when_its_process_is_lost_and_not_when_a_step_failed(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[2] / "orchestration" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as made:
        run = dg.DagsterRun(job_name="resting", status=dg.DagsterRunStatus.FAILURE)
        made.add_run(run)
        assert made.run_retries_enabled
        assert auto_reexecution_should_retry_run(made, run, RunFailureReason.UNKNOWN)
        assert not auto_reexecution_should_retry_run(made, run, RunFailureReason.STEP_FAILURE)
        again = dg.DagsterRun(
            job_name="resting",
            status=dg.DagsterRunStatus.FAILURE,
            root_run_id=run.run_id,
            parent_run_id=run.run_id,
            tags={"dagster/root_run_id": run.run_id, "dagster/parent_run_id": run.run_id},
        )
        made.add_run(again)
        assert not auto_reexecution_should_retry_run(made, again, RunFailureReason.UNKNOWN), "once is enough"
        assert made.run_monitoring_max_runtime_seconds == 12 * 3600, "what hangs is ended"


def later(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


def test_what_is_preloaded_is_there() -> None:
    """A module that is missing would be left out without a word, and every run would import it anew."""
    assert [name for name in PRELOADED if importlib.util.find_spec(name) is None] == []
