"""How runs start: each is a process of its own, forked from one that has imported what runs need, not a new Python's seconds of imports.

Dagster's own launcher has a new Python import Dagster, Arrow and the engine for every run. A compaction of small files is done sooner.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, LaunchRunContext, WorkerStatus
from dagster._core.storage.dagster_run import DagsterRun
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClassData, serialize_value

from lsm_core.processes import start_tick
from orchestration import names
from orchestration.resources.settings import RUN_ASSETS_VARIABLE, RUN_JOB_VARIABLE, RUN_PARTITIONED_VARIABLE

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, ForkServerProcess

PROCESS_TAG: Final = "dredge/process"
"""Tag of a run: the id of its process and when it started, in the kernel's ticks (ids are used again)."""
PRELOADED: Final = (
    "dagster._cli.api",
    "dagster._daemon",
    "assets",
    "checks",
    "orchestration.jobs",
    "orchestration.sensors",
    "lsm_core.spark.spark_maintenance",
    "lsm_core.spark.spark_verify",
    "pandas",
    "dagster_pyspark",
    "pyspark.sql.connect.session",
)
"""What runs import. The code location itself is not among it: every run loads it anew, as it is in the warehouse then."""


class WarmRunLauncher(DefaultRunLauncher):
    """Forks runs from one process with ``preload`` imported (a module that is missing there is left out).

    Runs of a code location with another Python than this one are left to Dagster's own launcher. After an upgrade of what is
    preloaded the daemon must be restarted, as for every long-lived process.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None, preload: Sequence[str] = PRELOADED) -> None:
        super().__init__(inst_data)
        self._preload = list(preload)
        self._forks: ForkServerContext | None = None

    @classmethod
    def config_type(cls) -> Any:
        """Return what dagster.yaml may say."""
        told = "modules that are imported once, before any run"
        return {"preload": dg.Field([str], is_required=False, default_value=list(PRELOADED), description=told)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> WarmRunLauncher:
        """Make the launcher as dagster.yaml says."""
        return cls(inst_data, config_value.get("preload", PRELOADED))

    def launch_run(self, context: LaunchRunContext) -> None:
        """Fork a process that executes the run; one that ends before its run does is reported as the run's failure."""
        run, origin = context.dagster_run, context.job_code_origin
        executable = None if origin is None else origin.repository_origin.executable_path
        foreign = executable is not None and os.path.realpath(executable) != os.path.realpath(sys.executable)
        if origin is None or foreign:
            super().launch_run(context)
            return
        arguments = ExecuteRunArgs(origin, run.run_id, self._instance.get_ref())
        if self._forks is None:
            self._forks = multiprocessing.get_context("forkserver")
            self._forks.set_forkserver_preload(self._preload)
        process = self._forks.Process(target=_execute, args=(serialize_value(arguments), _told(run)))
        process.start()
        self._instance.add_run_tags(run.run_id, {PROCESS_TAG: f"{process.pid}:{start_tick(process.pid or 0) or 0}"})
        self._run_ids.add(run.run_id)
        threading.Thread(target=self._watch, args=(process, run.run_id), daemon=True).start()

    def terminate(self, run_id: str) -> bool:
        """Interrupt the run's process, whichever process of Dagster's is asked to; False when the run is over."""
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or PROCESS_TAG not in run.tags:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]  # Dagster leaves it untyped
        if run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        pid = _living(run)
        if pid is None:
            self._instance.report_run_canceled(run)
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Run monitoring learns of a process that died while nobody watched it."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Say whether the run's process lives; of a run that Dagster's own launcher started only its code server knows."""
        if PROCESS_TAG not in run.tags or _living(run) is not None:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"its process {run.tags[PROCESS_TAG]} is gone")

    def _watch(self, process: ForkServerProcess, run_id: str) -> None:
        process.join()
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        if run is None or run.is_finished:
            return
        if run.status is dg.DagsterRunStatus.CANCELING:
            self._instance.report_run_canceled(run)
            return
        ended = f"the run's process {process.pid} ended with code {process.exitcode} before the run did"
        self._instance.report_run_failed(run, ended)


def _told(run: DagsterRun) -> dict[str, str]:
    """What the code location of the run's process is told of the run, as variables: the assets that it chose to materialise or check, else its job (`definitions.defs`)."""
    keys = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
    if keys:
        partitioned = (
            {RUN_PARTITIONED_VARIABLE: "on"} if {names.PARTITION_TAG, names.RANGE_TAG} & run.tags.keys() else {}
        )
        return {RUN_ASSETS_VARIABLE: json.dumps(sorted(key.path for key in keys)), **partitioned}
    return {RUN_JOB_VARIABLE: run.job_name}


def _execute(arguments: str, told: Mapping[str, str]) -> None:
    """What a forked process does: the command that every launcher of containers gives to its own."""
    from dagster._cli.api import api_cli

    os.environ.update(told)
    api_cli.main(["execute_run", arguments], prog_name="dagster api")


def _living(run: DagsterRun) -> int | None:
    """The id of the run's process, None when it is gone."""
    pid, _, started = run.tags[PROCESS_TAG].partition(":")
    return int(pid) if start_tick(int(pid)) == int(started) else None


__all__ = ["PRELOADED", "PROCESS_TAG", "WarmRunLauncher"]
