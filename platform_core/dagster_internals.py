"""Workarounds for Dagster, and all imports of Dagster's private modules except those of `dagster.yaml`'s classes.

The workarounds cover postponed annotations, and warnings about beta and preview features.
"""

from __future__ import annotations

import copy
import typing
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import dagster as dg
import sqlalchemy as sa
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.data_version import DATA_VERSION_TAG, extract_data_version_from_entry
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.errors import DagsterPipesExecutionError
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import (
    COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES,
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.tags import RUN_KEY_TAG
from dagster._utils.concurrency import ConcurrencyKeyInfo
from dagster._utils.schedules import is_valid_cron_schedule

__all__ = [  # private names of Dagster that other modules import from here
    "COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES",
    "DATA_VERSION_TAG",
    "RUN_KEY_TAG",
    "AssetCheckEvaluationPlanned",
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionRecordStatus",
    "ConcurrencyKeyInfo",
    "PartitionKeyFilter",
    "UnresolvedAssetJobDefinition",
    "extract_data_version_from_entry",
    "is_valid_cron_schedule",
]

ASSET_JOB: Final = IMPLICIT_ASSET_JOB_NAME
"""Dagster's implicit job over all assets, started by "Materialize" and by run requests without a job."""
WHOLE_LOCATION: Final = SINGLETON_REPOSITORY_NAME
"""Name of the repository that Dagster creates for a `Definitions` object; URLs of Dagster's pages omit the name."""
PipesFailed: Final = DagsterPipesExecutionError
"""Error of the Pipes client for a program that failed."""
F = TypeVar("F", bound=Callable[..., Any])
_TEMPLATE: Final = "_dredge_template"
_BOUND: Final = "_dredge_bound"
_REQUIRED: Final = "_dredge_required"
_FAILURES_READ: Final = 1_000
"""Newest failures of a check that are read if Dagster's storage is not an SQL database."""


def resolve_annotations(function: F) -> F:
    """Replace a function's text annotations by the objects that they name; apply below Dagster's own decorator.

    Dagster needs the annotation of ``context`` as an object, while postponed annotations are text.
    """
    function.__annotations__ = typing.get_type_hints(function)
    return function


def copy_op(template: dg.OpDefinition, name: str, pool: str | None = None) -> dg.OpDefinition:
    """Return a copy of an op with a new name and, if given, a new pool; all other attributes are shared.

    For each new op definition, Dagster inspects the function and its defaults. This inspection takes milliseconds: too
    long for thousands of tables.
    """
    copied_op = copy.copy(template)
    copied_op._name = name
    copied_op._pool = pool or template.pool
    vars(copied_op).setdefault(_TEMPLATE, template)
    return copied_op


def copy_graph(template: dg.GraphDefinition, name: str, ops: Mapping[str, dg.OpDefinition]) -> dg.GraphDefinition:
    """Return a copy of a graph with a new name and new ops; all other attributes are shared.

    For each new graph definition, Dagster sorts and checks the nodes: half of the time to define an asset.

    Args:
        template: graph to copy.
        name: name of the copy.
        ops: new ops by node name, each made by `copy_op` from the template's op of this node.
    """
    nodes, dependencies = dict(template.node_dict), dict(template.dependencies)
    for node, definition in ops.items():
        old_invocation = dg.NodeInvocation(nodes[node].definition.name, alias=node)
        dependencies[dg.NodeInvocation(definition.name, alias=node)] = dependencies.pop(old_invocation)
        nodes[node] = copy.copy(nodes[node])
        nodes[node].definition = definition
    copied_graph = copy.copy(template)
    copied_graph._dependencies = dependencies
    copied_graph._name, copied_graph._node_dict = name, nodes
    copied_graph._node_defs = [ops.get(node, template.node_dict[node].definition) for node in nodes]
    copied_graph._nodes_in_topological_order = [nodes[node.name] for node in template.nodes_in_topological_order]
    vars(copied_graph)[_TEMPLATE] = template
    return copied_graph


class _SharedRequirements:
    """Mixin for definitions of copied ops and graphs (`copy_op`): resource requirements are computed once per template.

    Dagster's error about a missing resource then names the first definition of the template.
    """

    def with_resources(self, resource_defs: Mapping[str, dg.ResourceDefinition]) -> Any:
        """Return this definition with its resources bound; raise the same errors as Dagster's own method."""
        definition = typing.cast("dg.AssetsDefinition", self)
        template = vars(definition.node_def).get(_TEMPLATE)
        if template is None or definition.resource_defs:
            return super().with_resources(resource_defs)  # type: ignore[misc]
        offered, bound = vars(template).get(_BOUND, ({}, definition))
        if offered.keys() != resource_defs.keys() or any(offered[key] is not resource_defs[key] for key in offered):
            bound = super().with_resources(resource_defs)  # type: ignore[misc]
            vars(bound)[_REQUIRED] = tuple(bound.get_resource_requirements())
            vars(template)[_BOUND] = (dict(resource_defs), bound)
        copied_definition = copy.copy(definition)
        copied_definition._resource_defs = bound._resource_defs
        vars(copied_definition)[_REQUIRED] = vars(bound)[_REQUIRED]
        return copied_definition

    def get_resource_requirements(self) -> Iterator[Any]:
        """Return the result of Dagster's own `get_resource_requirements`, which is computed once for all copies."""
        known = vars(self).get(_REQUIRED)
        return super().get_resource_requirements() if known is None else iter(known)  # type: ignore[misc]


class TableAssets(_SharedRequirements, dg.AssetsDefinition):
    """Assets of one table; the assets of all tables share their resource requirements."""


class TableChecks(_SharedRequirements, dg.AssetChecksDefinition):
    """Checks of one table's asset; the checks of all tables share their resource requirements."""


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
    storage = instance.event_log_storage
    if isinstance(storage, SqlEventLogStorage):
        storage.assign_pending_steps([pool])


def find_failed_places(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> list[tuple[dg.AssetCheckKey, str | None]]:
    """Return each pair of a check and a partition for which the check ever failed, sorted.

    One query finds the pairs of all checks, while Dagster's API reads one check at a time. If Dagster's storage is not
    an SQL database, the API is used, and only the 1,000 newest failures of each check are read.

    Args:
        instance: Dagster instance.
        checks: keys of the checks.

    Returns:
        Pairs of the check's key and the partition key; the partition key is None for a check of the whole asset.
    """
    storage, table = instance.event_log_storage, AssetCheckExecutionsTable
    failed = AssetCheckExecutionRecordStatus.FAILED
    places: set[tuple[dg.AssetCheckKey, str | None]]
    if isinstance(storage, SqlEventLogStorage):
        conditions = (
            table.c.check_name.in_({check.name for check in checks}),
            table.c.execution_status == failed.value,
        )
        query = sa.select(table.c.asset_key, table.c.check_name, table.c.partition).where(*conditions).distinct()
        checks_by_key = {(check.asset_key.to_string(), check.name): check for check in checks}
        with storage.index_connection() as connection:
            rows = connection.execute(query).fetchall()
        places = {
            (checks_by_key[key, name], partition) for key, name, partition in rows if (key, name) in checks_by_key
        }
    else:
        places = {
            (check, record.partition)
            for check in checks
            for record in storage.get_asset_check_execution_history(check, limit=_FAILURES_READ, status={failed})
        }
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
