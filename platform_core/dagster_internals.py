"""What Dagster's public API does not offer: every private name of Dagster that Dredge uses, with its reason.

A test fails for a name without an entry in `INTERNALS`, and for an entry that Dagster offers publicly now. No private
attribute of an object of Dagster is assigned. Evaluations of checks and pools are read by methods of
`DagsterInstance.event_log_storage`. These are not private, but documented only for authors of storages.

The other functions work around postponed annotations, and warnings about beta and preview features.
"""

from __future__ import annotations

import re
import time
import typing
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import dagster as dg
from dagster._core.errors import DagsterPipesExecutionError
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

if TYPE_CHECKING:
    from dagster._core.storage.asset_check_execution_record import (
        AssetCheckExecutionRecord as AssetCheckExecutionRecord,  # noqa: PLC0414  (for other modules)
    )

__all__ = [  # private names of Dagster that other modules import from here
    "AssetCheckExecutionRecordStatus",
    "PartitionKeyFilter",
]


@dataclass(frozen=True)
class Internal:
    """Private name of Dagster that Dredge uses.

    Attributes:
        name: dotted name of an object in a private module, or class and private attribute.
        reason: why no public name does the same.
        successor: pattern of the public names that would replace it: names in `dagster`, or a class in `dagster` and
            its public method.
    """

    name: str
    reason: str
    successor: re.Pattern[str]


_HISTORY: Final = re.compile(r"DagsterInstance[.]\w*asset_check\w*")
INTERNALS: Final = (
    Internal(
        "dagster._core.errors.DagsterPipesExecutionError",
        "the Pipes client raises it for a program that failed; it has no public base class",
        re.compile(r"DagsterPipesExecutionError|Pipes\w*Error"),
    ),
    Internal(
        "dagster._core.event_api.PartitionKeyFilter",
        "argument to read the evaluations of a check for one partition; DagsterInstance documents no evaluations",
        _HISTORY,
    ),
    Internal(
        "dagster._core.storage.asset_check_execution_record.AssetCheckExecutionRecordStatus",
        "argument to read earlier evaluations and failures; DagsterInstance documents no evaluations",
        _HISTORY,
    ),
    Internal(
        "dagster._core.storage.asset_check_execution_record.AssetCheckExecutionRecord",
        "type of these evaluations, in annotations only",
        re.compile(r"AssetCheckExecutionRecord"),
    ),
    Internal(
        "dagster._core.instance.ref.InstanceRef",
        "a class of `instance_class` in dagster.yaml must return Dagster's default settings",
        re.compile(r"InstanceRef|DagsterInstance[.]config_defaults"),
    ),
    Internal(
        "dagster._serdes.ConfigurableClassData",
        "settings of a class in dagster.yaml, with which `instance_class` names its default storage",
        re.compile(r"ConfigurableClassData"),
    ),
    Internal(
        "dagster._serdes.ConfigurableClass",
        "base class of what the settings in dagster.yaml name",
        re.compile(r"ConfigurableClass"),
    ),
    Internal(
        "dagster._core.storage.base_storage.DagsterStorage",
        "base class of an instance's storage",
        re.compile(r"DagsterStorage"),
    ),
    *(
        Internal(
            f"dagster._core.storage.{kind}.Sqlite{name}Storage",
            "it makes an engine per connection, which takes most of the time of storing events; no setting changes it",
            re.compile(rf"Sqlite{name}Storage"),
        )
        for kind, name in (("event_log", "EventLog"), ("runs", "Run"), ("schedules", "Schedule"))
    ),
    *(
        Internal(
            f"dagster._core.storage.event_log.schema.{name}Table",
            "the SQLite storage stores events without a run by statements that are built once, in half of the time",
            re.compile(rf"{name}Table"),
        )
        for name in ("AssetCheckExecutions", "AssetEventTags", "AssetKey", "SqlEventLogStorage")
    ),
    Internal(
        "dagster._core.instance.utils.RUNLESS_RUN_ID",
        "run ID of events without a run, for the same statements",
        re.compile(r"RUNLESS_RUN_ID"),
    ),
    Internal(
        "dagster._core.launcher.LaunchRunContext",
        "type of a launcher's argument, in annotations only",
        re.compile(r"LaunchRunContext"),
    ),
    Internal(
        "dagster._core.launcher.CheckRunHealthResult",
        "a launcher returns it to run monitoring",
        re.compile(r"CheckRunHealthResult"),
    ),
    Internal(
        "dagster._core.launcher.WorkerStatus",
        "a launcher returns it to run monitoring",
        re.compile(r"WorkerStatus"),
    ),
    Internal(
        "dagster._grpc.types.ExecuteRunArgs",
        "argument of the command `dagster api execute_run`, by which launchers start runs",
        re.compile(r"ExecuteRunArgs|execute_run\w*"),
    ),
    Internal(
        "dagster._cli.api",
        "the command `dagster api execute_run` is called in a forked process, where its modules are imported already",
        re.compile(r"api_cli|execute_run\w*"),
    ),
    Internal(
        "dagster._daemon",
        "a module to import before the first fork",
        re.compile(r"daemon"),
    ),
    Internal(
        "DefaultRunLauncher._instance",
        "a launcher reads its Dagster instance; all launchers of Dagster's own libraries do",
        re.compile(r"(DefaultRunLauncher|RunLauncher)[.]instance"),
    ),
)
"""All private names of Dagster in the platform."""

ASSET_JOB: Final = "__ASSET_JOB"
"""Dagster's implicit job over all assets, started by "Materialize" and by run requests without a job."""
WHOLE_LOCATION: Final = "__repository__"
"""Name of the repository that Dagster creates for a `Definitions` object; URLs of Dagster's pages omit the name."""
PipesFailed: Final = DagsterPipesExecutionError
"""Error of the Pipes client for a program that failed."""
RUN_KEY_TAG: Final = "dagster/run_key"
"""Tag by which Dagster stores the run key of a sensor's run request."""
DATA_VERSION_TAG: Final = "dagster/data_version"
"""Tag of a materialisation with the version of its data."""
FAILED: Final = frozenset({AssetCheckExecutionRecordStatus.FAILED})
"""Status of evaluations that failed, also with a warning."""
COMPLETED: Final = FAILED | {AssetCheckExecutionRecordStatus.SUCCEEDED}
"""Statuses of evaluations with a result."""
_FAILURES_READ: Final = 1_000
"""Newest failures of a check that are read."""
_CHECKS_AT_ONCE: Final = 500
"""Most checks per query, because Dagster's storage limits the length of a list."""
_CHECKS_KNOWN: Final = 100_000
"""Most checks whose failures a process keeps."""
_HISTORY_SECONDS: Final = 600.0
"""Seconds after which failures of a check are read again, although it has no newer evaluation."""
F = TypeVar("F", bound=Callable[..., Any])


def resolve_annotations(function: F) -> F:
    """Replace a function's text annotations by the objects that they name; apply below Dagster's own decorator.

    Dagster needs the annotation of ``context`` as an object, while postponed annotations are text.
    """
    function.__annotations__ = typing.get_type_hints(function)
    return function


@contextmanager
def allow_early_features() -> Iterator[None]:
    """Silence Dagster's warnings about beta and preview features while the context is open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        yield


def report_evaluation_of_run(
    instance: dg.DagsterInstance, run: dg.DagsterRun, evaluation: dg.AssetCheckEvaluation
) -> None:
    """Store the evaluation of a check as an event of a run, also of a run that has ended.

    Args:
        instance: Dagster instance.
        run: the run that planned the check; its planned evaluation is replaced.
        evaluation: result of the check, with the keys of asset and check and the partition.
    """
    event = dg.DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_CHECK_EVALUATION.value,
        job_name=run.job_name,
        event_specific_data=evaluation,
        message=f"{evaluation.check_name}: not evaluated by this run",
    )
    instance.report_dagster_event(event, run_id=run.run_id)


def assign_pending_step(instance: dg.DagsterInstance, pool: str) -> None:
    """Assign a slot of a pool to the step that waits first, as Dagster does when a slot is freed.

    The call is safe if no slot is free: the step then keeps waiting, because a step runs only after it has claimed a
    free slot in the storage. Nothing happens if the storage is not an SQL database.

    Args:
        instance: Dagster instance.
        pool: name of the pool.
    """
    assign = getattr(instance.event_log_storage, "assign_pending_steps", None)
    if assign is not None:
        assign([pool])


def read_newest_records(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> dict[dg.AssetCheckKey, AssetCheckExecutionRecord]:
    """Return the newest record of each check, for any partition, with or without a result.

    Args:
        instance: Dagster instance.
        checks: keys of the checks; checks without a record are missing in the result.
    """
    storage, keys = instance.event_log_storage, list(checks)
    records: dict[dg.AssetCheckKey, AssetCheckExecutionRecord] = {}
    for start in range(0, len(keys), _CHECKS_AT_ONCE):
        records |= storage.get_latest_asset_check_execution_by_key(keys[start : start + _CHECKS_AT_ONCE])
    return records


@dataclass
class FailureHistory:
    """Partitions for which checks ever failed, as far as this process has read them.

    Dagster reads the failures of one check at a time, in some three milliseconds. So a check is read again only after
    it has a newer evaluation, while a run evaluates it, or after ten minutes.
    """

    _known: dict[dg.AssetCheckKey, tuple[object, float, tuple[str | None, ...]]] = field(default_factory=dict)

    def find_failed_places(
        self, instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
    ) -> list[tuple[dg.AssetCheckKey, str | None]]:
        """Return each pair of a check and a partition for which the check failed, from its 1,000 newest failures.

        Args:
            instance: Dagster instance.
            checks: keys of the checks.

        Returns:
            Pairs of the check's key and the partition key, sorted; the partition key is None for a check of the whole
            asset.
        """
        if len(self._known) > _CHECKS_KNOWN:
            self._known.clear()
        storage, now_s = instance.event_log_storage, time.monotonic()
        places: set[tuple[dg.AssetCheckKey, str | None]] = set()
        for check, newest in read_newest_records(instance, checks).items():
            version = (newest.id, newest.status, newest.run_id, newest.create_timestamp)
            known_version, read_s, partitions = self._known.get(check, (None, 0.0, ()))
            if known_version != version or now_s - read_s > _HISTORY_SECONDS or newest.status not in COMPLETED:
                failures = storage.get_asset_check_execution_history(check, limit=_FAILURES_READ, status=set(FAILED))
                partitions = tuple({record.partition for record in failures})
                self._known[check] = (version, now_s, partitions)
            places |= {(check, partition) for partition in partitions}
        return sorted(places, key=lambda place: (place[0], place[1] is not None, place[1] or ""))


def read_tick_end(instance: dg.DagsterInstance, sensor: str, began_s: float | None) -> int | None:
    """Return when the daemon ended a sensor's previous tick, after it stored all events and submitted all runs.

    Args:
        instance: Dagster instance.
        sensor: name of the sensor; other code locations may have a sensor of this name.
        began_s: time at which the tick began (epoch seconds), as Dagster passes it to the next tick; None for no tick.

    Returns:
        The time (epoch ms), or None if no such tick ended.
    """
    if began_s is None:
        return None
    for state in instance.all_instigator_state():
        if state.name != sensor or getattr(state.instigator_data, "last_tick_timestamp", None) != began_s:
            continue
        for tick in instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=2):
            if tick.timestamp == began_s and tick.end_timestamp is not None:
                return int(tick.end_timestamp * 1000)
    return None
