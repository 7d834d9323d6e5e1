"""Workarounds for Dagster, and all imports of its private modules except those of the launcher.

Covers postponed annotations, and warnings about beta and preview features.
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

__all__ = [  # private names of Dagster that other modules import from here
    "COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES",
    "DATA_VERSION_TAG",
    "AssetCheckExecutionRecord",
    "AssetCheckExecutionRecordStatus",
    "PartitionKeyFilter",
    "UnresolvedAssetJobDefinition",
    "extract_data_version_from_entry",
    "is_valid_cron_schedule",
]

ASSET_JOB: Final = IMPLICIT_ASSET_JOB_NAME
"""Dagster's implicit job over all assets, started by "Materialize" and by run requests without a job."""
WHOLE_LOCATION: Final = SINGLETON_REPOSITORY_NAME
"""Repository of a code location made of definitions; page URLs leave it out."""
PipesFailed: Final = DagsterPipesExecutionError
"""Error of the Pipes client for a program that failed."""
F = TypeVar("F", bound=Callable[..., Any])
_TEMPLATE: Final = "_dredge_template"
_BOUND: Final = "_dredge_bound"
_REQUIRED: Final = "_dredge_required"


def resolve_annotations(function: F) -> F:
    """Replace a function's annotations by the objects they name; apply it below Dagster's own decorator.

    Dagster needs the annotation of ``context`` as an object, while postponed annotations are text.
    """
    function.__annotations__ = typing.get_type_hints(function)
    return function


def copy_op(template: dg.OpDefinition, name: str, pool: str | None = None) -> dg.OpDefinition:
    """Return a copy of an op with another name and, if given, another pool; everything else is shared.

    Dagster inspects an op's function and defaults again for each definition, which takes milliseconds: too long for
    thousands of tables.
    """
    copied_op = copy.copy(template)
    copied_op._name = name
    copied_op._pool = pool or template.pool
    vars(copied_op).setdefault(_TEMPLATE, template)
    return copied_op


def copy_graph(template: dg.GraphDefinition, name: str, ops: Mapping[str, dg.OpDefinition]) -> dg.GraphDefinition:
    """Return a copy of a graph with another name and other ops; everything else is shared.

    Dagster sorts and checks the nodes of each graph again, which takes as long as the rest of an asset.

    Args:
        template: graph to copy.
        name: name of the copy.
        ops: ops by node name, each a `copy_op` of the template's own.
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
    """Mixin for definitions over `copy_op` and `copy_graph`: resource requirements are computed once per template.

    Dagster's error about a missing resource then names the first definition of the template.
    """

    def with_resources(self, resource_defs: Mapping[str, dg.ResourceDefinition]) -> Any:
        """Return these assets or checks with their resources. Raises like Dagster's own method."""
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
        """Return the result of Dagster's own method, cached."""
        known = vars(self).get(_REQUIRED)
        return super().get_resource_requirements() if known is None else iter(known)  # type: ignore[misc]


class TableAssets(_SharedRequirements, dg.AssetsDefinition):
    """Assets of a table, which share resource requirements with those of all other tables."""


class TableChecks(_SharedRequirements, dg.AssetChecksDefinition):
    """Checks of a table's asset, which share resource requirements with those of all other tables."""


@contextmanager
def allow_early_features() -> Iterator[None]:
    """Silence Dagster's warnings about beta and preview features while the context is open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        yield


def find_failed_partitions(
    instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey]
) -> list[tuple[dg.AssetCheckKey, str]]:
    """Return each check with every partition for which it ever failed, by one query.

    Dagster's API reads one check at a time. The list is empty if the storage is no SQL database.
    """
    storage, table = instance.event_log_storage, AssetCheckExecutionsTable
    if not isinstance(storage, SqlEventLogStorage):
        return []
    failed = table.c.execution_status == AssetCheckExecutionRecordStatus.FAILED.value
    conditions = (table.c.check_name.in_({check.name for check in checks}), table.c.partition.is_not(None), failed)
    query = sa.select(table.c.asset_key, table.c.check_name, table.c.partition).where(*conditions).distinct()
    checks_by_key = {(check.asset_key.to_string(), check.name): check for check in checks}
    with storage.index_connection() as connection:
        rows = connection.execute(query).fetchall()
    return sorted(
        (checks_by_key[key, name], partition) for key, name, partition in rows if (key, name) in checks_by_key
    )
