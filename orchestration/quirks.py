"""Where Dagster and this house differ, and all that is taken from Dagster's private modules but for the launcher of runs, which is one itself.

Postponed annotations, and warnings about features that Dagster calls beta or preview.
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
from dagster._utils.schedules import is_valid_cron_schedule

ASSET_JOB: Final = IMPLICIT_ASSET_JOB_NAME
"""The job that Dagster makes over all assets: what "Materialize" starts, and what a run request with assets and without a job starts."""
WHOLE_LOCATION: Final = SINGLETON_REPOSITORY_NAME
"""The repository of a code location made of definitions; addresses of pages leave it out."""
PipesFailed: Final = DagsterPipesExecutionError
"""What the client of a program raises that ended badly."""
F = TypeVar("F", bound=Callable[..., Any])
_TEMPLATE: Final = "_dredge_template"
_BOUND: Final = "_dredge_bound"
_REQUIRED: Final = "_dredge_required"


def typed(function: F) -> F:
    """Replace the function's annotations by the objects they name; goes below Dagster's own decorator.

    Dagster wants the annotation of ``context`` as an object, while postponed annotations are text.
    """
    function.__annotations__ = typing.get_type_hints(function)
    return function


def named_op(template: dg.OpDefinition, name: str, pool: str | None = None) -> dg.OpDefinition:
    """Return ``template`` under another name and, if given, in another pool; everything else is shared with it.

    Dagster looks at an op's function and at every default anew for each definition, which takes milliseconds: too long for thousands of tables.
    """
    copied = copy.copy(template)
    copied._name = name
    copied._pool = pool or template.pool
    vars(copied).setdefault(_TEMPLATE, template)
    return copied


def named_graph(template: dg.GraphDefinition, name: str, ops: Mapping[str, dg.OpDefinition]) -> dg.GraphDefinition:
    """Return ``template`` under another name, with other ``ops`` (`named_op` of its own) in the nodes that are called so; everything else is shared with it.

    Dagster sorts and checks the nodes of each graph anew, which takes as long as all the rest of an asset.
    """
    nodes, dependencies = dict(template.node_dict), dict(template.dependencies)
    for node, definition in ops.items():
        before = dg.NodeInvocation(nodes[node].definition.name, alias=node)
        dependencies[dg.NodeInvocation(definition.name, alias=node)] = dependencies.pop(before)
        nodes[node] = copy.copy(nodes[node])
        nodes[node].definition = definition
    copied = copy.copy(template)
    copied._dependencies = dependencies
    copied._name, copied._node_dict = name, nodes
    copied._node_defs = [ops.get(node, template.node_dict[node].definition) for node in nodes]
    copied._nodes_in_topological_order = [nodes[node.name] for node in template.nodes_in_topological_order]
    vars(copied)[_TEMPLATE] = template
    return copied


class _Bound:
    """For definitions over `named_op` and `named_graph`: Dagster finds out what they need of the resources once for all of a template, not once each.

    The requirements' words, which Dagster shows where a resource is missing, name the first of them.
    """

    def with_resources(self, resource_defs: Mapping[str, dg.ResourceDefinition]) -> Any:
        """Return these assets or checks with what they need of ``resource_defs``; raises as Dagster's own."""
        ours = typing.cast("dg.AssetsDefinition", self)
        template = vars(ours.node_def).get(_TEMPLATE)
        if template is None or ours.resource_defs:
            return super().with_resources(resource_defs)  # type: ignore[misc]
        offered, bound = vars(template).get(_BOUND, ({}, ours))
        if offered.keys() != resource_defs.keys() or any(offered[key] is not resource_defs[key] for key in offered):
            bound = super().with_resources(resource_defs)  # type: ignore[misc]
            vars(bound)[_REQUIRED] = tuple(bound.get_resource_requirements())
            vars(template)[_BOUND] = (dict(resource_defs), bound)
        copied = copy.copy(ours)
        copied._resource_defs = bound._resource_defs
        vars(copied)[_REQUIRED] = vars(bound)[_REQUIRED]
        return copied

    def get_resource_requirements(self) -> Iterator[Any]:
        """Return what Dagster's own returns."""
        known = vars(self).get(_REQUIRED)
        return super().get_resource_requirements() if known is None else iter(known)  # type: ignore[misc]


class TableAssets(_Bound, dg.AssetsDefinition):
    """Assets of one of many tables."""


class TableChecks(_Bound, dg.AssetChecksDefinition):
    """Checks of an asset of one of many tables."""


@contextmanager
def early_features() -> Iterator[None]:
    """Silence what Dagster says about features that it calls beta or preview, around a use that was looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        yield


def partitions_ever_failed(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> list[tuple[dg.AssetCheckKey, str]]:
    """Return each of ``checks`` with every partition that it ever failed for, by one question; Dagster's own API answers for one check at a time.

    A storage that is no SQL database tells none.
    """
    storage, table = instance.event_log_storage, AssetCheckExecutionsTable
    if not isinstance(storage, SqlEventLogStorage):
        return []
    failed = table.c.execution_status == AssetCheckExecutionRecordStatus.FAILED.value
    wanted = (table.c.check_name.in_({check.name for check in checks}), table.c.partition.is_not(None), failed)
    asked = sa.select(table.c.asset_key, table.c.check_name, table.c.partition).where(*wanted).distinct()
    known = {(check.asset_key.to_string(), check.name): check for check in checks}
    with storage.index_connection() as connection:
        rows = connection.execute(asked).fetchall()
    return sorted((known[key, name], partition) for key, name, partition in rows if (key, name) in known)


__all__ = [
    "ASSET_JOB",
    "COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES",
    "DATA_VERSION_TAG",
    "WHOLE_LOCATION",
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionRecordStatus",
    "PartitionKeyFilter",
    "TableAssets",
    "TableChecks",
    "UnresolvedAssetJobDefinition",
    "early_features",
    "extract_data_version_from_entry",
    "is_valid_cron_schedule",
    "named_graph",
    "named_op",
    "partitions_ever_failed",
    "typed",
]
