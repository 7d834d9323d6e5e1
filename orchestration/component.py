"""`PaimonWarehouse`: the platform as a Dagster component, for a project with definitions of its own."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import dagster as dg
from dagster.components import Scaffolder, ScaffoldRequest, scaffold_component
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dredge.orchestration.definitions import build_definitions
from dredge.platform_core.names import NAME_VARIABLE, WarehouseNames
from dredge.platform_core.policies.policy import PolicyFile
from dredge.platform_core.policies.policy_files import INLINE_SOURCE, POLICIES_VARIABLE
from dredge.platform_core.resources.spark_resource import (
    CONFIG_VARIABLE,
    REMOTE_VARIABLE,
    RUNNER_VARIABLE,
    SUBMIT_VARIABLE,
    flat_spark_config,
)
from dredge.platform_core.resources.warehouse import (
    CATALOG_VARIABLE,
    CLOCK_VARIABLE,
    REPLAY_VARIABLE,
    WAREHOUSE_VARIABLE,
)
from dredge.platform_core.table_card import TableCard
from lsm_core.errors import InvalidOption
from lsm_core.options import is_address

_LOG = logging.getLogger(__name__)
Value = str | int | float | bool


class _PolicySchema:
    """Annotation of policies in attributes, by which `dg docs` and editors know the keys of the policy file."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema: the path of a policy file, or its content."""
        del core_schema
        return {"anyOf": [{"type": "string"}, handler(PolicyFile.__pydantic_core_schema__)]}


class WarehouseParameters(BaseModel):
    """Parameters of ``dg scaffold defs``."""

    warehouse: str = Field(
        "{{ env.DREDGE_WAREHOUSE }}", description="location of the tables: a folder or an address of an object store"
    )


class WarehouseScaffolder(Scaffolder[WarehouseParameters]):
    """Scaffolder of a ``defs.yaml`` that names the warehouse, by default through the environment."""

    @classmethod
    def get_scaffold_params(cls) -> type[WarehouseParameters]:
        """Return the class of the parameters that the command line accepts."""
        return WarehouseParameters

    def scaffold(self, request: ScaffoldRequest[WarehouseParameters]) -> None:
        """Write the file ``defs.yaml``."""
        scaffold_component(request, {"warehouse": request.params.warehouse})


class _DescribedModel(dg.Model, dg.Resolvable):
    """Base of attributes, so that `dg docs` and editors describe each of them.

    Dagster itself drops the descriptions of fields with defaults.
    """

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the class of the attributes in ``defs.yaml``, with the description of each field."""
        derived = super().model()
        own = {name: field for name, field in cls.model_fields.items() if field.description}
        silent = [name for name, field in derived.model_fields.items() if name in own and not field.description]
        for name in silent:
            field = derived.model_fields[name]
            field.description, field.examples = own[name].description, own[name].examples
        if silent:
            derived.model_rebuild(force=True)
        return derived


class SensorSettings(_DescribedModel):
    """Sensors of the platform."""

    enabled: bool | None = Field(None, description="whether sensors are switched on at the start (default: true)")
    seconds: int | None = Field(None, description="interval of the table sensors in seconds (default: 30)")
    budget_seconds: float | None = Field(None, description="time budget of a tick in seconds (default: 20)")
    watch_seconds: int | None = Field(None, description="interval of the sensor watch in seconds (default: 60)")


class ScheduleSettings(_DescribedModel):
    """Schedules of the platform, as cron expressions in UTC."""

    enabled: bool | None = Field(None, description="whether schedules are switched on at the start (default: true)")
    retention: str | None = Field(None, description="cron of the expiry of snapshots and partitions")
    expectations: str | None = Field(None, description="cron of the great-expectations suites")
    health: str | None = Field(None, description="cron of the ranking of all tables")
    maintenance: str | None = Field(None, description="cron of the job maintain")
    orphans: str | None = Field(None, description="cron of the plans to remove orphan files")
    audit: str | None = Field(None, description="cron of the job audit")


class AlertSettings(_DescribedModel):
    """Channels of alerts. Addresses are secrets: take them from the environment, ``{{ env.SLACK_ADDRESS }}``."""

    webhook: str | None = Field(None, repr=False, description="http(s) address to which alerts are posted as JSON")
    slack: str | None = Field(None, repr=False, description="http(s) address of Slack's incoming webhook")
    email: str | None = Field(None, description="recipients, separated by commas")
    smtp: str | None = Field(None, repr=False, description="address of the mail server, smtp:// or smtps://")
    sender: str | None = Field(None, description="sender of the mails")


class LinkSettings(_DescribedModel):
    """Addresses (http or https) of web servers for links, and folders that they serve."""

    dagster: str | None = Field(None, description="Dagster's web server, which reloads the code location by itself")
    ui: str | None = Field(None, description="Dagster's web server in links of alerts and the report")
    runbook: str | None = Field(None, description="page of the runbook in alerts")
    data_docs: str | None = Field(None, description="server of the Data Docs of great-expectations")
    report: str | None = Field(None, description="server of the report on all tables")
    report_folder: str | None = Field(None, description="folder of the report on all tables")
    metrics_folder: str | None = Field(None, description="folder of node_exporter's textfile collector")


_VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "sensors": {
        "enabled": "DREDGE_SENSORS",
        "seconds": "DREDGE_SENSOR_SECONDS",
        "budget_seconds": "DREDGE_SENSOR_BUDGET",
        "watch_seconds": "DREDGE_WATCH_SECONDS",
    },
    "schedules": {
        "enabled": "DREDGE_SCHEDULES",
        "retention": "DREDGE_RETENTION_CRON",
        "expectations": "DREDGE_EXPECTATIONS_CRON",
        "health": "DREDGE_HEALTH_CRON",
        "maintenance": "DREDGE_MAINTENANCE_CRON",
        "orphans": "DREDGE_ORPHANS_CRON",
        "audit": "DREDGE_AUDIT_CRON",
    },
    "alerts": {
        "webhook": "DREDGE_ALERT_WEBHOOK",
        "slack": "DREDGE_ALERT_SLACK",
        "email": "DREDGE_ALERT_EMAIL",
        "smtp": "DREDGE_ALERT_SMTP",
        "sender": "DREDGE_ALERT_FROM",
    },
    "links": {
        "dagster": "DREDGE_DAGSTER_URL",
        "ui": "DREDGE_UI_URL",
        "runbook": "DREDGE_RUNBOOK_URL",
        "data_docs": "DREDGE_DATA_DOCS_URL",
        "report": "DREDGE_REPORT_URL",
        "report_folder": "DREDGE_REPORT_DIR",
        "metrics_folder": "DREDGE_METRICS_DIR",
    },
}
"""Variable of the platform for each typed field, by group. Errors name the variable."""
_FIELDS: Final[Mapping[str, str]] = {
    variable: f"{group}.{field}" for group, fields in _VARIABLES.items() for field, variable in fields.items()
} | {SUBMIT_VARIABLE: "spark_submit", RUNNER_VARIABLE: "runner"}
"""Field of ``defs.yaml`` for each variable that an error may name."""
_FURTHER: Final = frozenset(
    {CATALOG_VARIABLE, CLOCK_VARIABLE, NAME_VARIABLE, REMOTE_VARIABLE, REPLAY_VARIABLE, SUBMIT_VARIABLE}
)
"""Further variables of the platform that `settings` accepts."""
_COMPARED: Final[ContextVar[bool]] = ContextVar("compared", default=False)
"""Whether definitions of the project are being compared, which may themselves ask for the component's definitions."""


@dg.scaffold_with(WarehouseScaffolder)
class PaimonWarehouse(dg.Component, _DescribedModel):
    """Maintains the Apache Paimon tables of a warehouse: compaction, retention, checks and health.

    A code location may have several of these components: give each a `name`. The component changes nothing in the
    process that loads it: no environment variable, no setting of the garbage collector. What a field does not set comes
    from the environment variables of the platform.
    """

    warehouse: str = Field(
        description=(
            "location of the tables: a folder (relative paths start at the project) or an address of an object store, "
            "whose keys come from the environment"
        ),
        examples=["/data/warehouse", "s3://lake/warehouse"],
    )
    name: str | None = Field(
        None,
        description=(
            "first part of all asset keys and pools, and prefix of the names of jobs, sensors, schedules, ops, groups "
            "and resources (lake__retention); required if the code location has several warehouses. Default: asset "
            "keys begin with the name of the warehouse's folder, and other names have no prefix"
        ),
        examples=["lake"],
    )
    catalog_options: dict[str, Value] = Field(
        default_factory=dict, description="options of the catalog (a JDBC catalog, locks); no secrets"
    )
    include: list[str] = Field(
        default_factory=lambda: ["*"],
        description="patterns (* and ?) of the tables to maintain, database.table",
        examples=[["shop.*"]],
    )
    exclude: list[str] = Field(default_factory=list, description="patterns of the tables to leave out")
    policy_file: str = Field("", description="YAML file of policies; a relative path starts at the folder of defs.yaml")
    policies: Annotated[
        str | dict[str, Any],
        dg.Resolver(
            lambda context, value: context.resolve_value(value),
            model_field_type=Annotated[str | dict[str, Any], _PolicySchema],
            description="policies with the keys of the policy file, or the path of a policy file, as in policy_file",
        ),
    ] = Field(
        default_factory=dict,
        description="policies with the keys of the policy file, or the path of a policy file, as in policy_file",
        examples=[{"defaults": {"preset": "log"}}],
    )
    runner: Literal["spark", "local", "pipes"] = Field(
        "spark",
        description=(
            "runner of bucket tasks: on Spark, in the run's own process (without Java), or by a program that "
            "spark_submit starts"
        ),
    )
    spark_config: dict[str, Any] = Field(
        default_factory=dict,
        description="settings of Spark, as dagster-pyspark's resources take them, flat or nested; no secrets",
        examples=[{"spark.driver.memory": "4g"}],
    )
    spark_submit: str | None = Field(
        None, description="with the runner pipes: command line, without a script, that applies plans on a cluster"
    )
    sensors: SensorSettings = Field(default_factory=SensorSettings, description="intervals and switch of sensors")
    schedules: ScheduleSettings = Field(default_factory=ScheduleSettings, description="times and switch of schedules")
    alerts: AlertSettings = Field(default_factory=AlertSettings, description="channels of alerts")
    links: LinkSettings = Field(default_factory=LinkSettings, description="addresses and folders of pages")
    settings: dict[str, Value] = Field(
        default_factory=dict, description="variables of the platform without a field of their own, such as DREDGE_CLOCK"
    )
    translation: (
        Annotated[TranslationFn[TableCard], TranslationFnResolver[TableCard](lambda card: {"table": card})] | None
    ) = Field(
        None,
        description=(
            "attributes of the two assets of each table: group_name, tags, owners, metadata, description; table has "
            "name, primary_keys, partition_keys, options and comment. The key is fixed"
        ),
    )
    executor: bool = Field(
        default=False,
        description="true: every run of the code location takes one process, also runs of the project's own jobs",
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the platform's definitions over the warehouse.

        Raises:
            InvalidOption: a setting or policy is invalid, or other definitions of the project have the same names.
        """
        if not self.warehouse.strip():
            raise InvalidOption("warehouse", self.warehouse, "a folder or an address of an object store")
        others = self._check_neighbours(context) - {self.warehouse_names(context.project_root).first}
        self._report_unset_addresses()
        known = _FURTHER.union(*(group.values() for group in _VARIABLES.values()))
        unknown = next((name for name in self.settings if name not in known), None)
        if unknown is not None:
            accepted = "a variable of the platform (DREDGE_...) without a field in defs.yaml"
            raise InvalidOption("settings", unknown, accepted)
        variables = {
            WAREHOUSE_VARIABLE: self._path(context.project_root),
            RUNNER_VARIABLE: self.runner,
            **_as_texts(self.settings),
        }
        for group, fields in _VARIABLES.items():
            values = getattr(self, group).model_dump(exclude_none=True)
            variables |= {fields[field]: text for field, text in _as_texts(values).items()}
        optional = {NAME_VARIABLE: self.name, SUBMIT_VARIABLE: self.spark_submit}
        variables |= {name: text for name, text in optional.items() if text is not None}
        if self.catalog_options:
            variables[CATALOG_VARIABLE] = json.dumps(_as_texts(self.catalog_options))
        if self.spark_config:
            variables[CONFIG_VARIABLE] = json.dumps(flat_spark_config(self.spark_config))
        policy_file = self.policies if isinstance(self.policies, str) else ""
        if self.policies and self.policy_file:
            accepted = f"one place for the policies: `policy_file` ({self.policy_file}) or `policies`, not both"
            raise InvalidOption("policies", "set beside policy_file", accepted)
        if policy_file or self.policy_file:
            variables[POLICIES_VARIABLE] = str(context.path / (policy_file or self.policy_file))
        try:
            defs = build_definitions(
                executor=dg.in_process_executor if self.executor else None,
                include=self.include,
                exclude=self.exclude,
                variables=variables,
                translation=self.translation,
                inline_policies="" if isinstance(self.policies, str) or not self.policies else _as_json(self.policies),
                prefix=self.name or "",
                neighbours=others,
            )
        except InvalidOption as error:
            field = _FIELDS.get(error.key)
            if field is None or error.key in self.settings:
                raise
            raise InvalidOption(f"{field} ({error.key})", error.value, error.accepted) from error
        if not self.name:
            _check_definitions(context, defs, variables[WAREHOUSE_VARIABLE])
        return defs

    def _report_unset_addresses(self) -> None:
        """Log each channel of alerts without a value, as from a variable that the environment does not have."""
        for field in sorted(self.alerts.model_fields_set):
            if not getattr(self.alerts, field):
                _LOG.warning(
                    "alerts.%s of the warehouse %s has no value, so no alert goes there: set the environment variable "
                    "that defs.yaml names, or remove the line",
                    field,
                    self.warehouse,
                )

    def _check_neighbours(self, context: dg.ComponentLoadContext) -> frozenset[str]:
        """Check the names and tables of all components of the project.

        Returns:
            The first parts of the asset keys of all components.

        Raises:
            InvalidOption: two components have the same names, or choose the same tables of one warehouse.
        """
        try:
            components = context.component_tree.get_all_components(PaimonWarehouse)
        except ModuleNotFoundError:  # a tree for tests, which has no project
            return frozenset()
        first_parts = _check_names(components, context.project_root)
        own = self.choose_tables(context.project_root)
        same = [
            component.name or "" for component in components if component.choose_tables(context.project_root) == own
        ]
        if len(same) > 1:
            accepted = (
                f"other patterns than those of another PaimonWarehouse of {own[0]} (components "
                f"{', '.join(map(repr, sorted(same)))}): each table belongs to one of them"
            )
            raise InvalidOption("include", ", ".join(self.include), accepted)
        return first_parts

    def choose_tables(self, project_root: Path) -> tuple[str, frozenset[str], frozenset[str]]:
        """Return the warehouse and the patterns of its tables."""
        path = self._path(project_root).rstrip("/")
        return path if is_address(path) else os.path.normpath(path), frozenset(self.include), frozenset(self.exclude)

    def _path(self, project_root: Path) -> str:
        return self.warehouse if is_address(self.warehouse) else str(project_root / self.warehouse)

    def warehouse_names(self, project_root: Path) -> WarehouseNames:
        """Return the names that Dagster sees of the component's warehouse.

        Args:
            project_root: folder of the project, at which a relative path of the warehouse starts.
        """
        setting = self.settings.get(NAME_VARIABLE)
        name = self.name if self.name is not None else None if setting is None else str(setting)
        return WarehouseNames.of(self._path(project_root), name, self.name or "")


def _check_names(components: Iterable[PaimonWarehouse], project_root: Path) -> frozenset[str]:
    """Check that no two components give their definitions or assets the same names.

    Returns:
        The first parts of the asset keys of all components.

    Raises:
        InvalidOption: two components have the same names; the message names both warehouses, and what to set.
    """
    known: list[WarehouseNames] = []
    for component in components:
        own = component.warehouse_names(project_root)
        for other in known:
            places = f"the warehouses {other.path} and {own.path}"
            if own.prefix == other.prefix:
                each = "a name of its own in the attributes of each PaimonWarehouse of a code location"
                raise InvalidOption("name", component.name or "", f"{each}; set `name` of {places} to different names")
            if own.first == other.first:
                raise InvalidOption(
                    "name",
                    component.name or "",
                    f"a name that begins the asset keys of one warehouse only; those of {places} begin with "
                    f"{own.first!r}: set another `name` for one of them",
                )
        known.append(own)
    return frozenset(own.first for own in known)


def _check_definitions(context: dg.ComponentLoadContext, defs: dg.Definitions, warehouse: str) -> None:
    """Check that the definitions of a component without a name share no name with the project's own definitions.

    Dagster's own error for two resources of one key names neither of the two, nor a remedy.

    Raises:
        InvalidOption: a name exists twice; the message lists the shared names, and says what to set.
    """
    if _COMPARED.get():
        return
    token = _COMPARED.set(True)
    try:
        known: dict[str, set[str]] = {}
        for neighbour in _build_neighbours(context):
            for kind, own in _names_by_kind(neighbour).items():
                known.setdefault(kind, set()).update(own)
    finally:
        _COMPARED.reset(token)
    shared = {kind: sorted(own & known.get(kind, set())) for kind, own in _names_by_kind(defs).items()}
    texts = [f"{kind} {', '.join(map(repr, shared_names))}" for kind, shared_names in shared.items() if shared_names]
    if texts:
        raise InvalidOption(
            "name",
            "",
            f"a name, because the project has definitions of its own with the component's names ({'; '.join(texts)}): "
            f"set `name`, for example `name: lake`, in the attributes of the PaimonWarehouse of {warehouse}",
        )


def _names_by_kind(defs: dg.Definitions) -> dict[str, set[str]]:
    """Return the names that must be unique in a code location, by the kind that error messages show."""
    return {
        "resources": set(defs.resources or ()),
        "jobs": {job.name for job in defs.jobs or ()},
        "sensors": {sensor.name for sensor in defs.sensors or ()},
        "schedules": {schedule.name for schedule in defs.schedules or ()},
    }


def _build_neighbours(context: dg.ComponentLoadContext) -> Iterator[dg.Definitions]:
    """Yield the definitions of the project's folder `defs` outside the component.

    The component tree keeps definitions, so that Dagster does not build them again.
    """
    tree = context.component_tree
    own = getattr(context, "component_loc", None) or context.component_path  # Dagster 1.12 has only the latter
    try:
        folders = [tree.find_decl_at_path(tree.defs_module_path)]
    except ModuleNotFoundError:  # a tree for tests, which has no project
        return
    while folders:
        for child in folders.pop().iterate_child_component_decls():
            place = child.context.component_path
            if place == own:
                continue
            if any(inner.context.component_path == own for inner in child.iterate_all_component_decls()):
                folders.append(child)
            else:
                yield tree.build_defs_at_path(place)


def _as_json(policies: Mapping[str, Any]) -> str:
    """Return policies as a JSON object, with dates as text.

    Raises:
        InvalidOption: a value has no text.
    """
    try:
        return json.dumps(policies, default=str, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption(f"{INLINE_SOURCE}: policies", "...", f"keys with values ({error})") from error


def _as_texts(values: Mapping[str, Value]) -> dict[str, str]:
    """Convert YAML values (numbers, true and false) to texts of variables."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
