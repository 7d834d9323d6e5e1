"""Launcher that forks each run from a process with all imports done, which saves seconds per run.

Dagster's own launcher imports Dagster, Arrow and the engine in a new Python for every run, which takes longer than a
compaction of small files.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs

from dredge.platform_core import names
from dredge.platform_core.resources.settings import RUN_ASSETS_VARIABLE, RUN_JOB_VARIABLE, RUN_PARTITIONED_VARIABLE
from lsm_core.processes import start_tick

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, ForkServerProcess

    from dagster._core.launcher import LaunchRunContext
    from dagster._serdes import ConfigurableClassData

PROCESS_TAG: Final = "dredge/process"
"""Run tag for the run's process: its id and, because ids are reused, its start in kernel clock ticks."""
PRELOADED: Final = (
    "dagster._cli.api",
    "dagster._daemon",
    "dredge.platform_core.resources",
    "dredge.assets",
    "dredge.checks",
    "dredge.orchestration.jobs",
    "dredge.orchestration.sensors",
    "lsm_core.spark.spark_maintenance",
    "lsm_core.spark.spark_verify",
    "pandas",
    "dagster_pyspark",
    "pyspark.sql.connect.session",
)
"""Modules to import before the first fork. The code location is not included: each run loads it for the warehouse."""


class WarmRunLauncher(dg.DefaultRunLauncher):
    """Launcher that forks runs from a process that has imported the modules ``preload``; missing modules are skipped.

    Runs of a code location with a different Python executable use Dagster's own launcher. After an upgrade of
    preloaded modules, restart the daemon, like every long-lived process.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None, preload: Sequence[str] = PRELOADED) -> None:
        super().__init__(inst_data)
        self._preload = list(preload)
        self._forks: ForkServerContext | None = None
        self._forked: set[str] = set()

    @classmethod
    def config_type(cls) -> Any:
        """Return the configuration that dagster.yaml accepts."""
        description = "modules to import once, before the first run"
        return {"preload": dg.Field([str], is_required=False, default_value=list(PRELOADED), description=description)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> WarmRunLauncher:
        """Create the launcher from the configuration of dagster.yaml."""
        return cls(inst_data, config_value.get("preload", PRELOADED))

    def launch_run(self, context: LaunchRunContext) -> None:
        """Fork a process that executes the run.

        If the process ends before the run, the run is reported as failed, or as canceled if it was being canceled.
        """
        run, origin = context.dagster_run, context.job_code_origin
        executable = None if origin is None else origin.repository_origin.executable_path
        other_python = executable is not None and os.path.realpath(executable) != os.path.realpath(sys.executable)
        if origin is None or other_python:
            super().launch_run(context)
            return
        arguments = ExecuteRunArgs(origin, run.run_id, self._instance.get_ref())
        if self._forks is None:
            self._forks = multiprocessing.get_context("forkserver")
            self._forks.set_forkserver_preload(self._preload)
        process = self._forks.Process(target=_execute, args=(dg.serialize_value(arguments), _run_variables(run)))
        process.start()
        self._instance.add_run_tags(run.run_id, {PROCESS_TAG: f"{process.pid}:{start_tick(process.pid or 0) or 0}"})
        self._forked.add(run.run_id)
        threading.Thread(target=self._watch, args=(process, run.run_id), daemon=True).start()

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run's process, from any Dagster process; return False if the run has ended."""
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or PROCESS_TAG not in run.tags:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]  # Dagster leaves it untyped
        if run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        pid = _live_pid(run)
        if pid is None:
            self._instance.report_run_canceled(run)
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return True

    def join(self, timeout: float = 30) -> None:
        """Wait until all runs of this launcher have ended.

        Args:
            timeout: most seconds to wait.

        Raises:
            TimeoutError: runs have not ended in time.
        """
        deadline = time.monotonic() + timeout
        while self.has_instance and (active := sorted(run for run in self._forked if self._is_active(run))):
            if time.monotonic() > deadline:
                raise TimeoutError(f"runs have not ended after {timeout:g} s: {', '.join(active)}")
            time.sleep(0.05)
        super().join(timeout)  # type: ignore[no-untyped-call]  # Dagster leaves it untyped

    def _is_active(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        return run is not None and not run.is_finished

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether run monitoring can detect a dead process: yes."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Return whether the run's process is alive; runs that Dagster's own launcher started count as running."""
        if PROCESS_TAG not in run.tags or _live_pid(run) is not None:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"its process {run.tags[PROCESS_TAG]} has ended")

    def _watch(self, process: ForkServerProcess, run_id: str) -> None:
        process.join()
        try:
            run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        except dg.DagsterInvariantViolationError:  # the instance of this process has ended before the run
            return
        if run is None or run.is_finished:
            return
        if run.status is dg.DagsterRunStatus.CANCELING:
            self._instance.report_run_canceled(run)
            return
        message = f"the run's process {process.pid} ended with code {process.exitcode} before the run did"
        self._instance.report_run_failed(run, message)


def _run_variables(run: dg.DagsterRun) -> dict[str, str]:
    """Return environment variables that name the run's assets, or else the run's job, for `definitions.defs`."""
    keys = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
    if keys:
        partitioned = (
            {RUN_PARTITIONED_VARIABLE: "on"} if {names.PARTITION_TAG, names.RANGE_TAG} & run.tags.keys() else {}
        )
        return {RUN_ASSETS_VARIABLE: json.dumps(sorted(key.path for key in keys)), **partitioned}
    return {RUN_JOB_VARIABLE: run.job_name}


def _execute(arguments: str, variables: Mapping[str, str]) -> None:
    """Execute the run in the forked process, by the command that Dagster's container launchers use.

    Args:
        arguments: serialized arguments of the command.
        variables: environment variables to set first.
    """
    from dagster._cli.api import api_cli

    os.environ.update(variables)
    api_cli.main(["execute_run", arguments], prog_name="dagster api")


def _live_pid(run: dg.DagsterRun) -> int | None:
    """Return the id of the run's process, or None if the process has ended."""
    pid, _, started = run.tags[PROCESS_TAG].partition(":")
    return int(pid) if start_tick(int(pid)) == int(started) else None
