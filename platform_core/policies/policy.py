"""Policies: the schema of the policy file, and the rules that apply to one table.

The rules of a table combine built-in values, the defaults, the entries of the database, of globs and of the table, and
rules for partitions of an age.
"""

from __future__ import annotations

import datetime
import difflib
import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, model_validator

from dredge.platform_core.policies.presets import PRESETS, PresetName
from dredge.platform_core.policies.windows import OffPeak
from lsm_core.errors import InvalidOption
from lsm_core.maintenance import CHECKS as TABLE_CHECKS
from lsm_core.maintenance.actions.built_in import BUILT_IN as ACTIONS
from lsm_core.options import duration, memory_size

BUILT_IN: Final = "built-in default"
CHECKS: Final = ("merged_view_unchanged", "layout_condition", *TABLE_CHECKS, "expectations")
"""Names of the checks of a table; `layout_condition` is the check of Dagster that combines four of the engine's."""
_FORMER_CHECKS: Final = {"tree_invariants": "tree_is_valid"}
"""Current names of checks by former name; policy files may still use the former names."""
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
EXPIRY_FLOOR_MS: Final = HOUR_MS
"""Age below which running queries may still read a snapshot or changelog; Paimon's default `snapshot.time-retained`.
"""
DELETION_FLOOR_MS: Final = DAY_MS
"""Least age (ms) of files, tags and partitions that maintenance deletes without a request by a person.

Younger files may belong to an unfinished commit.
"""
MOST_PERCENT: Final = 20
"""Largest percentage of a table's files or bytes that one run removes as orphans; more indicates an error."""
_RETENTION: Final = {
    "expire_snapshots": "snapshots",
    "expire_changelogs": "changelogs",
    "expire_tags": "tags",
    "expire_partitions": "partitions",
    "orphans": "orphans",
}
"""Field of `Retention` that has the rules of each action, by action name."""
_COUNTS: Final = frozenset({"tags", "small_manifests", "small_files", "small_files_critical"})
"""Names of the limits of `WatchRules` that are counts, not times."""
_MOST_SUGGESTIONS: Final = 20
"""Most unknown names for which a similar name is suggested; each suggestion takes about a millisecond."""
_LEVEL0_LIMITS: Final = ("level0_warn", "level0_critical", "level0_emergency")
"""Level-0 limits in ascending order."""
_GLOB: Final = re.compile(r"[*?\[]")
_ASSET: Final = r"^[^/\s]+(/[^/\s]+)*$"
Place: TypeAlias = tuple[str | int, ...]


def _duration(value: str | int) -> str | int:
    try:
        duration(value)
    except InvalidOption as error:
        raise ValueError(error.accepted) from error  # pydantic then knows the place
    return value


def _size(value: str | int) -> str | int:
    try:
        if memory_size(value) <= 0:
            raise ValueError("a budget of 0 bytes prevents every run; use `paused` to stop maintenance")
    except InvalidOption as error:
        raise ValueError(error.accepted) from error
    return value


def _one_of(known: Collection[str], noun: str) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ValueError(f"unknown {noun} {name!r}{f' (did you mean {near[0]!r}?)' if near else ''}")
        return name

    return AfterValidator(check)


def _span_text(value: str | int) -> str:
    """Return a duration for an error message, as written in the file.

    A number without a unit is shown with the unit ms, which it has by default. The missing unit is the usual mistake.
    """
    return f"{value} ms (a number without a unit)" if str(value).strip().isdecimal() else str(value)


def _at_least(floor_ms: int, why: str) -> AfterValidator:
    def check(value: str | int) -> str | int:
        if duration(value) < floor_ms:
            raise ValueError(f"{_span_text(value)} is below the deletion floor of {floor_ms // HOUR_MS} h: {why}")
        return value

    return AfterValidator(check)


_CheckName: TypeAlias = Annotated[
    str,
    BeforeValidator(lambda name: _FORMER_CHECKS.get(name, name) if isinstance(name, str) else name),
    _one_of(CHECKS, "check"),
]
_CheckSeverity: TypeAlias = Annotated[
    Literal["error", "warn", "off"],
    BeforeValidator(lambda value: "off" if value is False else value),  # YAML reads off without quotes as false
]
Duration: TypeAlias = Annotated[str | StrictInt, AfterValidator(_duration)]
Size: TypeAlias = Annotated[str | StrictInt, AfterValidator(_size)]
Severity: TypeAlias = Literal["error", "warn"]
Verification: TypeAlias = Literal["full", "sampled", "counts"]
Approval: TypeAlias = Literal["required", "none"]
_ExpiryAge: TypeAlias = Annotated[Duration, _at_least(EXPIRY_FLOOR_MS, "a query may still read the newest snapshots")]
_TagAge: TypeAlias = Annotated[Duration, _at_least(DELETION_FLOOR_MS, "data of a deleted tag cannot be restored")]
_PartitionAge: TypeAlias = Annotated[Duration, _at_least(DELETION_FLOOR_MS, "a day's data may still come")]
_OrphanAge: TypeAlias = Annotated[
    Duration, _at_least(DELETION_FLOOR_MS, "younger files may belong to a commit that is still being made")
]


def _no_shorter_than(shortest: str, why: str) -> AfterValidator:
    def check(value: str | int) -> str | int:
        if duration(value) < duration(shortest):
            raise ValueError(f"{_span_text(value)} is shorter than {shortest}; {why}")
        return value

    return AfterValidator(check)


def _share(value: float | str) -> float | str:
    parse_percent(value)
    return value


def parse_percent(value: float | str) -> float:
    """Return a percentage as a number above 0 and at most 100.

    Args:
        value: a number of percent above 1, or a text like "99 %".

    Raises:
        ValueError: the value is no such percentage, or a number that may be a fraction (0 to 1).
    """
    number = str(value).strip().removesuffix("%").strip()
    if (
        isinstance(value, bool)
        or not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", number)
        or not 0 < float(number) <= 100
    ):
        raise ValueError(f"{value!r} is no percentage above 0 and at most 100, like '99 %'")
    if float(number) <= 1 and "%" not in str(value):
        percent = f"{float(number) * 100:g} %"
        raise ValueError(f"{value} without a unit may be a share or a percentage: write '{percent}', or '{number} %'")
    return float(number)


def _whole_percent(value: Any) -> Any:
    """Return the number of a text like "20 %"; refuse a fraction (0 to 1), and leave other values to pydantic."""
    share = re.fullmatch(r"\s*(0?\.[0-9]{1,30})\s*", str(value))
    if share is not None:
        raise ValueError(f"a whole number of percent: write '{max(1, round(float(share[1]) * 100))} %'")
    text = re.fullmatch(r"\s*([0-9]{1,3})\s*%\s*", value) if isinstance(value, str) else None
    return value if text is None else int(text[1])


_Percent: TypeAlias = Annotated[str | Annotated[float, Field(strict=True)], AfterValidator(_share)]
_WholePercent: TypeAlias = Annotated[int, BeforeValidator(_whole_percent, json_schema_input_type=int | str)]
_Price: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
_IcebergLag: TypeAlias = Annotated[Duration, _no_shorter_than("1 min", "sensors look at tables once in a minute")]
_FreshWithin: TypeAlias = Annotated[Duration, _no_shorter_than("2 min", "Dagster evaluates freshness every 30 s")]


class _Part(BaseModel):
    """Base class of the sections of the policy file: unknown keys are refused, and pydantic's errors hide values."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Pause(_Part):
    """Pause of maintenance: its reason and start."""

    reason: str = Field(min_length=1, description="why maintenance is paused, as text")
    since: datetime.date | None = Field(None, description="day on which the pause began, like 2013-09-30")
    retention: bool = Field(
        default=False, description="true: the pause covers retention, too; false: it covers compactions only"
    )

    def text(self) -> str:
        """Return the text for ticks, like ``storage move, since 2013-09-30``."""
        return self.reason if self.since is None else f"{self.reason}, since {self.since}"


class SnapshotRetention(_Part):
    """Retention of snapshots or changelogs; each value overrides the table's option."""

    retain_min: int | None = Field(None, ge=1, description="fewest snapshots to keep")
    retain_max: int | None = Field(None, ge=1, description="most snapshots to keep")
    older_than: _ExpiryAge | None = Field(
        None, description="snapshots between both limits expire at this age, like '1 d' (at least 1 h)"
    )

    @model_validator(mode="after")
    def _in_order(self) -> SnapshotRetention:
        if self.retain_min is not None and self.retain_max is not None and self.retain_min > self.retain_max:
            raise ValueError(f"retain_min ({self.retain_min}) is above retain_max ({self.retain_max})")
        return self


class TagRetention(_Part):
    """Retention of tags, in addition to the expiry time of each tag."""

    older_than: _TagAge | None = Field(
        None, description="tags expire at this age, no matter who created them, like '90 d' (at least 24 h)"
    )


class PartitionRetention(_Part):
    """Retention of partitions; it overrides the table's `partition.expiration-time`."""

    older_than: _PartitionAge | None = Field(
        None, description="partitions whose time is older than this are dropped, like '365 d' (at least 24 h)"
    )


class OrphanRetention(_Part):
    """Removal of files that no snapshot, tag or branch references."""

    older_than: _OrphanAge | None = Field(
        None, description="least age of an orphan, by its last change, like '3 d' (at least 24 h)"
    )
    max_share: _WholePercent | None = Field(
        None,
        ge=1,
        le=MOST_PERCENT,
        description="largest share of the table's files or bytes that one run removes, like '10 %' (at most 20 %)",
    )


class Retention(_Part):
    """Retention rules; the table's own options apply where a rule is missing."""

    snapshots: SnapshotRetention | None = Field(None, description="retention of snapshots")
    changelogs: SnapshotRetention | None = Field(
        None, description="retention of changelogs that outlive their snapshots"
    )
    tags: TagRetention | None = Field(None, description="retention of tags")
    partitions: PartitionRetention | None = Field(None, description="retention of partitions")
    orphans: OrphanRetention | None = Field(None, description="removal of files that nothing references")


class WatchRules(_Part):
    """Alert limits of the sensor `watch`; a value that an entry does not set comes from a more general entry."""

    stalled_after: Duration | None = Field(
        None, description="alert when work is due and nothing was compacted for this long, like '12 h'"
    )
    paused_at_most: Duration | None = Field(
        None, description="alert when a pause with a start date is older than this, like '30 d'"
    )
    overdue_after: Duration | None = Field(
        None, description="alert when snapshots or tags still exist this long after their expiry, like '1 d'"
    )
    tags: int | None = Field(None, ge=1, description="alert when a table has more tags than this")
    small_manifests: int | None = Field(
        None, ge=2, description="alert when this many manifests of the newest snapshot are small or hold deletions"
    )
    small_files: int | None = Field(
        None, ge=2, description="small files in a partition of an append table that make small_files_backlog warn"
    )
    small_files_critical: int | None = Field(
        None, ge=2, description="small files in a partition of an append table that make small_files_backlog fail"
    )

    @model_validator(mode="after")
    def _in_order(self) -> WatchRules:
        low, high = self.small_files, self.small_files_critical
        if low is not None and high is not None and low > high:
            raise ValueError(f"small_files ({low}) is above small_files_critical ({high})")
        return self


class SloRules(_Part):
    """Promises about a table (service level objectives); missing values come from a more general entry."""

    sorted_runs_p95: int | None = Field(
        None, ge=1, description="95 % of the buckets have at most this many sorted runs (tables with a primary key)"
    )
    freshness: Annotated[Duration, _no_shorter_than("1 s", "no table keeps that")] | None = Field(
        None, description="the newest commit of a writer that readers see is at most this old, like '15 min'"
    )
    within: _Percent | None = Field(
        None, description="share of the week in which each promise is kept, like '99 %' (default: 99 %)"
    )


class CostRules(_Part):
    """Prices of maintenance and of reads; a value that an entry does not set comes from a more general entry."""

    core_hour: _Price | None = Field(None, description="price of one core for an hour")
    cores: int | None = Field(None, ge=1, description="cores that a run of maintenance occupies (default: 1)")
    tb_scanned: _Price | None = Field(None, description="price of reading a terabyte (1e12 bytes) of data files")
    gb_month: _Price | None = Field(None, description="price of storing a gigabyte (1e9 bytes) for 30 days")
    currency: str | None = Field(
        None, pattern=r"^[A-Za-z€$£¥]{1,8}$", description="label of the prices, like EUR (default: USD)"
    )
    reads_a_day: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False, strict=True)] | None = Field(
        None,
        description=(
            "expected reads of each partition's whole data per day; with prices, compactions that cost more than they "
            "save are declined"
        ),
    )
    pays_back_within: Annotated[Duration, _no_shorter_than("1 h", "in less time no compaction pays")] | None = Field(
        None, description="time in which the saved reads must pay for a compaction, like '30 d' (default: 30 d)"
    )


class Expectation(_Part):
    """Expectation of great-expectations about the table's rows."""

    type: str = Field(
        pattern=r"^expect_[a-z0-9_]+$",
        description="name of the expectation in great-expectations, like 'expect_column_values_to_be_between'",
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="arguments of the expectation, like {column: distance, min_value: 0}"
    )
    severity: Severity = Field(
        "error", description="error: the check fails; warn: it warns (default: meta.severity, or else error)"
    )
    meta: dict[str, Any] = Field(
        default_factory=dict,
        description="meta of the expectation in its suite, shown in Data Docs; severity in it is error or warn",
    )

    @model_validator(mode="before")
    @classmethod
    def _take_severity(cls, values: Any) -> Any:
        """Set a missing severity from `meta`, and translate great-expectations' severities to error and warn."""
        if not isinstance(values, dict):
            return values
        meta = values.get("meta")
        named = values.get("severity", meta.get("severity") if isinstance(meta, dict) else None)
        if named is None:
            return values
        words = {"critical": "error", "warning": "warn", "info": "warn"}
        return {**values, "severity": words.get(named, named) if isinstance(named, str) else named}


class SortRules(_Part):
    """Sort compaction of an append table without buckets, so that filters can skip files."""

    by: list[str] | None = Field(
        None, min_length=1, description="columns to sort by (default: the table's clustering.columns)"
    )
    order: Literal["order", "zorder", "hilbert", "auto"] | None = Field(
        None, description="sort order: order (column by column), zorder, hilbert, or auto (by the number of columns)"
    )
    every: Duration | None = Field(
        None,
        description="interval at which new rows are sorted, like '1 d' (default: once, when the partition is idle)",
    )


@dataclass(frozen=True)
class SortRule:
    """Sort compaction of a table's partitions.

    Attributes:
        by: columns to sort by; empty for the columns of the option `clustering.columns`.
        order: strategy of `lsm_core.merge.curves`, or "auto".
        every_ms: interval (ms) at which new rows are sorted, or None to sort once, as soon as the partition is idle.
    """

    by: tuple[str, ...] = ()
    order: str = "auto"
    every_ms: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the action `compact` for this sort rule."""
        return {"strategy": self.order, **({"order_by": list(self.by)} if self.by else {})}


class CompactionRules(_Part):
    """Compaction rules for a table, or for the partitions of a table that have reached a given age."""

    idle_after: Duration | None = Field(
        None, description="a partition without appends for this long is idle, like '20 d'"
    )
    idle_min_runs: int | None = Field(
        None, ge=2, description="idle primary-key partitions with this many sorted runs are merged"
    )
    idle_min_files: int | None = Field(
        None, ge=2, description="idle append partitions with this many small files are merged"
    )
    paused: str | bool | Pause | None = Field(
        None, description="reason of a pause (a text, or reason and since); false ends an inherited pause"
    )
    off_peak: OffPeak | Literal[False] | None = Field(
        None,
        description="windows in which sensors start compactions (a critical backlog ignores them); false: at any time",
    )

    iceberg_lag: _IcebergLag | Literal[False] | None = Field(
        None,
        description=(
            "Iceberg readers miss committed rows for at most this long, like '1 h': older rows make a full compaction "
            "due, and the check iceberg_is_fresh fails; false: no compaction for Iceberg readers"
        ),
    )
    sort: SortRules | Literal[False] | None = Field(
        None,
        description=(
            "how append tables without buckets are sorted, when a partition is idle or at an interval; "
            "{}: by the table's clustering.columns; false: never"
        ),
    )

    @model_validator(mode="after")
    def _has_reason(self) -> CompactionRules:
        reason = self.paused.reason if isinstance(self.paused, Pause) else self.paused
        if reason is True or (isinstance(reason, str) and not reason.strip()):
            raise ValueError("paused needs a reason as text, like 'storage move, since 2013-09-30'")
        return self


class PartitionEntry(CompactionRules):
    """Rules for partitions that have reached a given age."""

    older_than: Duration = Field(
        description="least age of the partitions, by the time of their values, or else by their newest file"
    )


class PolicyEntry(CompactionRules):
    """Rules of a policy file for some tables; every value is optional and inherited."""

    preset: PresetName | None = Field(
        None, description="one of the seven usual designs; its values apply as if they were written here"
    )
    level0_warn: int | None = Field(None, ge=1, description="level-0 files in one bucket that make level0_backlog warn")
    level0_critical: int | None = Field(
        None, ge=1, description="level-0 files in one bucket that make level0_backlog fail"
    )
    level0_emergency: int | None = Field(
        None, ge=1, description="level-0 files in one bucket that raise an emergency alert: recover them in passes"
    )
    level0_pass: int | None = Field(
        None,
        ge=1,
        description="most level-0 files of a bucket that one sensor run merges, oldest first; the next run continues",
    )
    page_sample_bytes: int | None = Field(
        None,
        ge=1,
        description="bytes of data files, as stored, that the check pages_readable reads each night, page by page",
    )
    watch: WatchRules | None = Field(None, description="alert limits of the sensor `watch`")
    slo: SloRules | Literal[False] | None = Field(
        None,
        description="promises about the table, of which report, status and metrics show the kept share; false: none",
    )
    cost: CostRules | Literal[False] | None = Field(
        None, description="prices of maintenance, storage and reads; false: no prices"
    )
    verification: Verification | None = Field(
        None,
        description=(
            "how a run verifies the output of a compaction before the commit; overrides the table's dredge.verification"
        ),
    )
    approval: dict[Annotated[str, _one_of(ACTIONS, "action")], Approval] | None = Field(
        None,
        description="by action (compact, orphans, ...); required: its plan is stored until a person approves it",
        json_schema_extra={"propertyNames": {"enum": list(ACTIONS)}},
    )
    retention: Retention | None = Field(
        None, description="retention of snapshots, changelogs, tags, partitions and orphans"
    )
    checks: dict[_CheckName, _CheckSeverity] | None = Field(
        None,
        description="by check: severity of a failure (error or warn); off: the check does not run",
        json_schema_extra={"propertyNames": {"enum": list(CHECKS)}},
    )
    expectations: list[Expectation] | None = Field(
        None, description="expectations of great-expectations about the rows, besides the table's keys"
    )
    expectations_on: Literal["sample", "spark"] | None = Field(
        None,
        description=(
            "rows that great-expectations checks: a bounded sample in the run's process, or all rows in Spark "
            "(the sample if DREDGE_RUNNER is not spark)"
        ),
    )
    partitions: list[PartitionEntry] | None = Field(
        None, description="further rules for partitions of an age; the oldest of several matching ages wins"
    )

    owners: list[Annotated[str, Field(pattern=r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$")]] | None = Field(
        None, description="owners of the table's assets: 'team:name' or e-mail addresses"
    )
    group: str | None = Field(None, pattern=r"^[A-Za-z0-9_]+$", description="Dagster's group of the table's assets")
    tags: (
        dict[
            Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,63}(/[A-Za-z0-9_.-]{1,63})?$")],
            Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,63}$")],
        ]
        | None
    ) = Field(None, description="tags of the table's assets")
    fresh_within: _FreshWithin | None = Field(
        None,
        description=(
            "longest time between commits of the writers, like '6 h' (at least 2 min): "
            "Dagster's freshness policy of the table's data"
        ),
    )
    upstream: list[Annotated[str, Field(pattern=_ASSET)]] | None = Field(
        None, description="keys of assets that the table's data come from, like 'raw/orders_csv'"
    )
    downstream: list[Annotated[str, Field(pattern=_ASSET)]] | None = Field(
        None, description="keys of assets that read the table, like 'reports/revenue'"
    )

    @model_validator(mode="after")
    def _in_order(self) -> PolicyEntry:
        if (
            self.level0_warn is not None
            and self.level0_critical is not None
            and self.level0_warn > self.level0_critical
        ):
            raise ValueError(f"level0_warn ({self.level0_warn}) is above level0_critical ({self.level0_critical})")
        if (
            self.level0_critical is not None
            and self.level0_emergency is not None
            and self.level0_critical > self.level0_emergency
        ):
            raise ValueError(
                f"level0_critical ({self.level0_critical}) is above level0_emergency ({self.level0_emergency})"
            )
        ages = [duration(rule.older_than) for rule in self.partitions or ()]
        if len(set(ages)) < len(ages):
            raise ValueError("two rules under 'partitions' have the same older_than; merge them into one")
        return self


class BudgetRules(_Part):
    """Limits on the compactions that sensors start across the whole warehouse."""

    bytes_an_hour: Size | None = Field(
        None, description="most bytes that the compactions started within an hour may read, like '100 gb'"
    )
    concurrent_tables: int | None = Field(None, ge=1, description="most tables that are compacted at the same time")


class AlertChannelRules(_Part):
    """Channel for alerts; its address stays in an environment variable."""

    kind: Literal["webhook", "slack", "email"] = Field(
        description="webhook: JSON by POST; slack: blocks for an incoming webhook of Slack; email: an SMTP message"
    )
    address_in: str = Field(
        pattern=r"^DREDGE_ALERT_[A-Z0-9_]{1,100}$",
        description=(
            "environment variable with the address (webhook, slack) or with the recipients (email), "
            "like DREDGE_ALERT_SLACK_SHOP"
        ),
    )


class AlertRoute(_Part):
    """Rule that sends the alerts that match its owners, severities and databases to some channels."""

    channels: list[str] = Field(
        min_length=1, description="names under `channels`, or webhook, slack, email for those of the environment"
    )
    owners: list[str] | None = Field(None, min_length=1, description="owners of the table, or globs like 'team:*'")
    severities: list[Literal["warn", "error", "emergency"]] | None = Field(
        None, min_length=1, description="severities of the alerts"
    )
    databases: list[str] | None = Field(None, min_length=1, description="databases of the tables, or globs")


DEFAULT_CHANNELS: Final = ("webhook", "slack", "email")
"""Names of the channels that the environment alone configures."""


class AlertRules(_Part):
    """Channels of alerts, and the routes: rules that send matching alerts to channels."""

    channels: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,63}$")], AlertChannelRules] = Field(
        default_factory=dict, description="further channels by name"
    )
    routes: list[AlertRoute] = Field(
        default_factory=list,
        description="an alert goes to the channels of every matching route; without one, to webhook, slack and email",
    )

    @model_validator(mode="after")
    def _known_channels(self) -> AlertRules:
        taken = sorted(set(DEFAULT_CHANNELS) & self.channels.keys())
        if taken:
            raise ValueError(f"the channel {taken[0]!r} is configured by the environment; choose another name")
        for route in self.routes:
            for name in route.channels:
                if name not in self.channels and name not in DEFAULT_CHANNELS:
                    near = difflib.get_close_matches(name, [*self.channels, *DEFAULT_CHANNELS], n=1)
                    hint = f" (did you mean {near[0]!r}?)" if near else ""
                    raise ValueError(f"unknown channel {name!r}{hint}")
        return self


class PolicyFile(_Part):
    """Policy file of a warehouse."""

    defaults: PolicyEntry = Field(default_factory=PolicyEntry, description="rules for every table")
    databases: dict[str, PolicyEntry] = Field(default_factory=dict, description="rules by database")
    tables: dict[str, PolicyEntry] = Field(
        default_factory=dict,
        description="rules by 'db.table' or glob like 'db.*'; later globs win, exact names win over all",
    )
    budget: BudgetRules = Field(default_factory=BudgetRules, description="limits for all tables together")
    alerts: AlertRules = Field(default_factory=AlertRules, description="channels and routes of alerts")

    @model_validator(mode="before")
    @classmethod
    def _fill_empty_entries(cls, value: Any) -> Any:
        """Replace empty sections, and entries without rules, by empty mappings."""
        if not isinstance(value, dict):
            return value
        sections = {key: {} if part is None else part for key, part in value.items()}
        for key in ("databases", "tables"):
            if isinstance(entries := sections.get(key), dict):
                sections[key] = {name: {} if entry is None else entry for name, entry in entries.items()}
        return sections


@dataclass(frozen=True)
class Origin:
    """Origin of a policy value: file, line, entry and preset.

    Attributes:
        file: name of the policy file.
        line: line of the file, or 0 if it is unknown.
        entry: name of the entry.
        preset: preset that supplied the value, or "" if the entry has the value.
        why: reason for the value, or "".
        over: names of the more general entries whose value this value overrides, the most specific first.
    """

    file: str
    line: int
    entry: str
    preset: str = ""
    why: str = ""
    over: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return ``policies.yaml:7, shop.*``, or ``preset log, policies.yaml:7, shop.*``."""
        written = f"{self.file}:{self.line}, {self.entry}" if self.line else f"{self.file}, {self.entry}"
        return f"preset {self.preset}, {written}" if self.preset else written


@dataclass(frozen=True)
class AgeRule:
    """Further rules for partitions that have reached a given age.

    Attributes:
        older_than_ms: least age of the partitions, in ms.
        values: values of a `Policy` by name.
        origins: origin of each value, by name.
    """

    older_than_ms: int
    values: Mapping[str, Any]
    origins: Mapping[str, Origin]


@dataclass(frozen=True)
class WatchLimits:
    """Resolved alert limits of the sensor `watch`: the values of `WatchRules`, with their defaults.

    Attributes:
        stalled_after_ms: age of due work without a compaction (ms).
        paused_at_most_ms: age of a pause (ms).
        overdue_after_ms: time that snapshots and tags may exist after their expiry (ms).
        tags: number of tags of a table.
        small_manifests: small manifests of the newest snapshot, and manifests that hold deletions.
        small_files: small files in a partition of an append table, for a warning.
        small_files_critical: number of small files of a partition from which the alert is an error.
    """

    stalled_after_ms: int = 12 * HOUR_MS
    paused_at_most_ms: int = 30 * DAY_MS
    overdue_after_ms: int = DAY_MS
    tags: int = 100
    small_manifests: int = 500
    small_files: int = 1_000
    small_files_critical: int = 10_000


@dataclass(frozen=True)
class SloTargets:
    """Promises about a table: the values of `SloRules`, with their defaults.

    Attributes:
        sorted_runs_p95: most sorted runs of 95 % of the buckets, or None without this promise.
        freshness_ms: highest age of the newest commit that readers see (ms), or None without this promise.
        within: share of the week in which each promise is kept, in percent.
    """

    sorted_runs_p95: int | None = None
    freshness_ms: int | None = None
    within: float = 99.0


@dataclass(frozen=True)
class Prices:
    """Prices of maintenance, storage and reads: the values of `CostRules`, with their defaults.

    Attributes:
        core_hour: price of one core for an hour, or None.
        cores: cores that a run of maintenance occupies.
        tb_scanned: price of reading 1e12 bytes of data files, or None.
        gb_month: price of storing 1e9 bytes for 30 days, or None.
        currency: label of the prices.
        reads_a_day: expected reads of each partition's whole data per day, or None if unknown.
        pays_back_within_ms: time in which saved reads must pay for a compaction (ms).
    """

    core_hour: float | None = None
    cores: int = 1
    tb_scanned: float | None = None
    gb_month: float | None = None
    currency: str = "USD"
    reads_a_day: float | None = None
    pays_back_within_ms: int = 30 * DAY_MS

    @property
    def has_prices(self) -> bool:
        """Whether any price is set."""
        return any(price is not None for price in (self.core_hour, self.tb_scanned, self.gb_month))

    @property
    def weighs_rewrites(self) -> bool:
        """Whether sensors start no compaction that costs more than the reads after it save."""
        return self.reads_a_day is not None and (self.core_hour is not None or self.tb_scanned is not None)


@dataclass(frozen=True)
class Policy:
    """Rules of one table.

    Attributes:
        idle_after_ms: time without appends after which a partition is idle, in ms.
        idle_min_runs: fewest sorted runs of an idle partition that is compacted.
        idle_min_files: fewest small files of an idle append partition that is compacted.
        level0_warn: level-0 files in a bucket that raise a warning.
        level0_critical: level-0 files in a bucket that raise an error.
        level0_emergency: level-0 files in a bucket that raise an emergency.
        level0_pass: most level-0 files of a bucket that one run merges.
        page_sample_bytes: bytes that the check `pages_readable` reads each night.
        watch: alert limits.
        slo: promises about the table.
        cost: prices of maintenance, storage and reads.
        paused: reason of the pause, or None.
        paused_since_ms: start of the pause (epoch ms), or None if the file gives no start.
        rests: whether the pause covers not only compactions, but also retention.
        off_peak: windows in which compactions may start, or None for any time.
        iceberg_lag_ms: time (ms) for which Iceberg readers may miss committed rows before a full compaction is due, or
            None for no compaction for them.
        sort: sort rule of append tables; None to follow `clustering.columns`, False to never sort.
        preset: preset of the most specific entry, or "".
        verification: verification mode, or "" for the mode of the table's options.
        approval: whether approval is required, by action; missing actions need no approval.
        retention: rules by kind (snapshots, changelogs, tags, partitions, orphans), then by argument; ages in ms.
        checks: severity by check; missing checks keep their default.
        expectations: expectations of great-expectations.
        expectations_on: rows that the expectations check, "sample" or "spark".
        owners: owners of the table's assets; empty for the platform's default.
        group: group of the table's assets, or "".
        tags: tags of the table's assets.
        fresh_within_ms: longest time between commits of the writers, in ms, or None.
        upstream: keys of assets that the table's data come from, like 'raw/orders_csv'.
        downstream: keys of assets that read the table.
        ages: further rules for old partitions, the youngest first.
        origins: origin of each value, by the value's name in the file.
    """

    idle_after_ms: int = 20 * DAY_MS
    idle_min_runs: int = 2
    idle_min_files: int = 5
    level0_warn: int = 1_000
    level0_critical: int = 10_000
    level0_emergency: int = 100_000
    level0_pass: int = 10_000
    page_sample_bytes: int = 64 << 20
    watch: WatchLimits = field(default_factory=WatchLimits)
    slo: SloTargets = field(default_factory=SloTargets)
    cost: Prices = field(default_factory=Prices)
    paused: str | None = None
    paused_since_ms: int | None = None
    rests: bool = False
    off_peak: OffPeak | None = None
    iceberg_lag_ms: int | None = None
    sort: SortRule | Literal[False] | None = None
    preset: str = ""
    verification: str = ""
    approval: Mapping[str, str] = field(default_factory=dict)
    retention: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    checks: Mapping[str, str] = field(default_factory=dict)
    expectations: Sequence[Expectation] = ()
    expectations_on: str = "sample"
    owners: Sequence[str] = ()
    group: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    fresh_within_ms: int | None = None
    upstream: Sequence[str] = ()
    downstream: Sequence[str] = ()
    ages: Sequence[AgeRule] = ()
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def has_asset_values(self) -> bool:
        """Whether the policy sets owners, group, tags, freshness or lineage of the table's assets."""
        return any(self.asset_values)

    @property
    def asset_values(self) -> tuple[Any, ...]:
        """Owners, group, tags, freshness and lineage of the assets, which Dagster reads when definitions load."""
        return (self.owners, self.group, self.tags, self.fresh_within_ms, self.upstream, self.downstream)

    def origin(self, name: str) -> str:
        """Return the origin of a value.

        Args:
            name: name of the value; nested values like ``retention.snapshots.retain_min``.
        """
        origin = self.origins.get(name.removesuffix("_ms"))
        return BUILT_IN if origin is None else str(origin)

    @property
    def options(self) -> dict[str, str]:
        """Table options that the policy overrides in runs."""
        return {"dredge.verification": self.verification} if self.verification else {}

    def needs_approval(self, action: str) -> bool:
        """Return whether a plan of the action waits until a person approves it."""
        return self.approval.get(self.approved_as(action)) == "required"

    def approved_as(self, action: str) -> str:
        """Return the action whose approval rule applies to `action`.

        The rule of `compact` also applies to `recover`, unless the file has a rule for `recover`.
        """
        return "compact" if action == "recover" and action not in self.approval else action

    def retention_arguments(self, action: str, now_ms: int) -> dict[str, int]:
        """Return the arguments that the policy sets for an action of retention; table options set all other arguments.

        Args:
            action: name of the action.
            now_ms: epoch ms.
        """
        rules = self.retention.get(_RETENTION.get(action, ""), {})
        ages = {key: now_ms - age for key, age in rules.items() if key == "older_than_ms"}
        arguments = {**rules, **ages}
        if "retain_max" in arguments:  # both limits may come from different entries: keep more if they contradict
            arguments["retain_max"] = max(arguments["retain_max"], arguments.get("retain_min", 0))
        return arguments

    def at_age(self, age_ms: int | None) -> Policy:
        """Return the policy of partitions of the given age.

        Args:
            age_ms: age of the partition in ms. None if the age is unknown; then no rule for old partitions applies.
        """
        matching = [rule for rule in self.ages if age_ms is not None and age_ms >= rule.older_than_ms]
        if not matching:
            return self
        values: dict[str, Any] = {}
        origins = dict(self.origins)
        for rule in matching:
            values |= rule.values
            origins |= rule.origins
        return replace(self, **values, origins=MappingProxyType(origins))


@dataclass(frozen=True)
class Policies:
    """Policies of all tables that currently apply.

    Attributes:
        content: content of the policy file.
        source: name of the file, for messages.
        lines: line of each value in the file, by the keys that lead to the value.
        trouble: error of the current file, or "" if the file is valid. With an error, an earlier, valid content
            applies, or all maintenance is paused.
    """

    content: PolicyFile = field(default_factory=PolicyFile)
    source: str = ""
    lines: Mapping[Place, int] = field(default_factory=dict)
    trouble: str = ""

    @cached_property
    def _by_table(self) -> dict[str, Policy]:
        return {}

    @cached_property
    def _globs(self) -> dict[str, re.Pattern[str]]:
        """Compiled patterns of the entries that are globs, by entry name."""
        return {name: re.compile(fnmatch.translate(name)) for name in self.content.tables if _GLOB.search(name)}

    def of(self, table: str) -> Policy:
        """Return the policy of a table.

        Later entries override earlier ones, in this order: built-in values, defaults, the database, globs in the order
        of the file, the exact table name.

        Args:
            table: full name, ``db.table``.
        """
        if table not in self._by_table:
            self._by_table[table] = self._resolve(table)
        return self._by_table[table]

    @property
    def bytes_an_hour(self) -> int | None:
        """Most bytes to read by compactions that sensors start within an hour, or None for no limit."""
        limit = self.content.budget.bytes_an_hour
        return None if limit is None else memory_size(limit)

    @property
    def concurrent_tables(self) -> int | None:
        """Most tables that are compacted at the same time, or None for no limit."""
        return self.content.budget.concurrent_tables

    @property
    def limited(self) -> bool:
        """Whether a budget limits the compactions that sensors start."""
        return self.bytes_an_hour is not None or self.concurrent_tables is not None

    def entries(self, table: str) -> Iterator[tuple[Place, str, PolicyEntry]]:
        """Yield the entries of the policy file that apply to a table, general entries first.

        Args:
            table: name of the table ("db.table").

        Yields:
            The path of the entry in the file, for example ("tables", "db.*"), its name for people, and its rules.
        """
        content, database = self.content, table.partition(".")[0]
        yield ("defaults",), "defaults", content.defaults
        if database in content.databases:
            yield ("databases", database), f"database {database}", content.databases[database]
        for name, glob in self._globs.items():
            if name != table and glob.match(table):
                yield ("tables", name), name, content.tables[name]
        if table in content.tables:
            yield ("tables", table), table, content.tables[table]

    def _resolve(self, table: str) -> Policy:
        values: dict[str, Any] = {}
        origins: dict[str, Origin] = {}

        def set_value(path: tuple[str, ...], value: Any, origin: Origin) -> None:
            _set_value(values, path, value)
            previous = origins.pop(".".join(path), None)  # so that the nearest come last
            for inner in [name for name in origins if name.startswith(f"{'.'.join(path)}.")]:
                del origins[inner]  # `false` ended the whole section
            overridden: tuple[str, ...] = ()
            if previous is not None:
                globs = previous.entry != origin.entry and {previous.entry, origin.entry} <= set(self._globs)
                overridden = (f"{previous}{' (of two globs the later one counts)' if globs else ''}", *previous.over)
            origins[".".join(path)] = replace(origin, over=overridden)

        for place, label, entry in self.entries(table):
            if entry.preset is not None:
                line = self.lines.get((*place, "preset"), 0)
                for path, chosen in PRESETS[entry.preset].values.items():
                    set_value(path, chosen.value, Origin(self.source, line, label, entry.preset, chosen.why))
            for path, value in iterate_values(entry):
                set_value(path, value, Origin(self.source, self.lines.get((*place, *path), 0), label))
            if entry.partitions is not None:
                values["ages"] = self._resolve_ages((*place, "partitions"), label, entry.partitions)
        _align_level0_limits(values, origins)
        return Policy(**values, origins=MappingProxyType(origins))

    def _resolve_ages(self, place: Place, label: str, rules: Sequence[PartitionEntry]) -> tuple[AgeRule, ...]:
        age_rules = []
        for number, rule in enumerate(rules):
            rule_values = dict(iterate_values(rule))
            rule_values.pop(("older_than",))
            origins = {
                path[0]: Origin(
                    self.source, self.lines.get((*place, number, *path), 0), f"{label}, older than {rule.older_than}"
                )
                for path in rule_values
            }
            values: dict[str, Any] = {}
            for path, value in rule_values.items():
                _set_value(values, path, value)
            age_rules.append(AgeRule(duration(rule.older_than), values, origins))
        return tuple(sorted(age_rules, key=lambda age_rule: age_rule.older_than_ms))

    def unmatched(self, tables: Collection[str]) -> list[str]:
        """Return a line for each name or glob of the file that matches none of the tables.

        A name without a match may be misspelt, or the table does not exist yet.

        Args:
            tables: full names of the tables of the warehouse.
        """
        databases, known = {table.partition(".")[0] for table in tables}, set(tables)
        unknown: list[tuple[str, str, Collection[str]]] = [
            (name, "database", databases) for name in self.content.databases if name not in databases
        ]
        unknown += [
            (name, "table", tables)
            for name in self.content.tables
            if name not in known and not (name in self._globs and any(map(self._globs[name].match, tables)))
        ]
        return [
            f"{self.source}: {name!r} fits no {kind} of the warehouse"
            f"{_suggest(name, candidates) if number < _MOST_SUGGESTIONS else ''}"
            for number, (name, kind, candidates) in enumerate(unknown)
        ]


_RESOLVED: Final = {
    "idle_after": "idle_after_ms",
    "fresh_within": "fresh_within_ms",
    "iceberg_lag": "iceberg_lag_ms",
}
_BY_KEY: Final = frozenset({"approval", "checks", "tags"})
"""Values whose keys are inherited one by one, like retention.

All other values, including lists, are taken whole from the most specific entry.
"""


def iterate_values(entry: CompactionRules) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values that an entry of the policy file sets, except its rules for old partitions (`partitions`).

    Yields:
        The keys that lead to the value in the file, and the value as written in the file.
    """
    for name in type(entry).model_fields:
        value = getattr(entry, name)
        if value is None or name == "partitions":
            continue
        if name in _BY_KEY:
            yield from (((name, key), leaf) for key, leaf in value.items())
        elif isinstance(value, Retention):
            for kind in Retention.model_fields:
                part = getattr(value, kind)
                if part is not None:
                    yield from (((name, kind, key), leaf) for key, leaf in part if leaf is not None)
        elif isinstance(value, WatchRules | SloRules | CostRules):
            yield from (((name, key), leaf) for key, leaf in value if leaf is not None)
        else:
            yield (name,), value


def _set_value(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set one value of the file in the form that `Policy` has: durations in ms, and a pause as text.

    If the file has `false` for a pause or for off-peak hours, the inherited value is removed (None).

    Args:
        values: values of the policy by field name, which are changed.
        path: keys that lead to the value in the file.
        value: the value as written in the file.
    """
    name = _RESOLVED.get(path[0], path[0])
    if path[0] == "paused":
        values["rests"] = isinstance(value, Pause) and value.retention
        since = value.since if isinstance(value, Pause) else None
        midnight = None if since is None else datetime.datetime(since.year, since.month, since.day, tzinfo=datetime.UTC)
        values["paused_since_ms"] = None if midnight is None else int(midnight.timestamp() * 1000)
        values[name] = value.text() if isinstance(value, Pause) else (value or None)
    elif path[0] == "off_peak":
        values[name] = value or None
    elif value is False and path[0] == "iceberg_lag":
        values[name] = None
    elif path[0] == "sort":
        values[name] = _sort_rule(value)
    elif path[0] == "retention":
        kinds = values.setdefault(name, {})
        key, number = (f"{path[2]}_ms", duration(value)) if path[2] == "older_than" else (path[2], value)
        kinds[path[1]] = {**kinds.get(path[1], {}), key: number}
    elif path[0] == "watch":
        key = path[1] if path[1] in _COUNTS else f"{path[1]}_ms"
        limit = {key: value if path[1] in _COUNTS else duration(value)}
        values[name] = replace(values.get(name, WatchLimits()), **limit)
    elif path[0] in ("slo", "cost"):
        values[name] = _priced_or_promised(values.get(name), path, value)
    elif path[0] in _BY_KEY:
        values[name] = {**values.get(name, {}), path[1]: value}
    else:
        values[name] = duration(value) if path[0] in _RESOLVED else value


def _priced_or_promised(before: Any, path: tuple[str, ...], value: Any) -> SloTargets | Prices:
    """Return the promises (``slo``) or prices (``cost``) of a policy with one value of the file added.

    If the file has `false` for the whole section, all inherited values are removed.

    Args:
        before: promises or prices of more general entries, or None.
        path: keys that lead to the value in the file, such as ("slo", "freshness"); only ("slo",) or ("cost",) if the
            section is `false`.
        value: the value as written in the file.
    """
    kind = SloTargets if path[0] == "slo" else Prices
    if len(path) == 1:
        return kind()
    if path[1] in ("freshness", "pays_back_within"):
        changed: dict[str, Any] = {f"{path[1]}_ms": duration(value)}
    else:
        changed = {path[1]: parse_percent(value) if path[1] == "within" else value}
    current: SloTargets | Prices = kind() if before is None else before
    return replace(current, **changed)


def _sort_rule(value: SortRules | Literal[False]) -> SortRule | Literal[False]:
    if value is False:
        return False
    every = None if value.every is None else duration(value.every)
    return SortRule(tuple(value.by or ()), value.order or "auto", every)


def _align_level0_limits(values: dict[str, Any], origins: dict[str, Origin]) -> None:
    """Change level-0 limits so that they ascend: warning, critical, emergency.

    The limits of the most specific entry stay; limits of general entries and built-in limits are changed.

    Args:
        values: values of the policy by field name; the limits are changed in place.
        origins: origin (entry of the policy file) of each value by field name, in the order in which the entries set
            the values: general entries first, the most specific entry last. The origins of changed limits are changed
            in place.
    """
    nearest = [name for name in reversed(origins) if name in _LEVEL0_LIMITS]
    done: list[str] = []
    for name in [*nearest, *(name for name in _LEVEL0_LIMITS if name not in nearest)]:
        place, limit = _LEVEL0_LIMITS.index(name), values.get(name, getattr(Policy, name))
        for other in done:
            settled_limit, is_below = values[other], _LEVEL0_LIMITS.index(other) < place
            if limit < settled_limit if is_below else limit > settled_limit:
                side = "below" if is_below else "above"
                why = f"{other} is {settled_limit:,}, and {limit:,} would be {side} it"
                limit = settled_limit
                origins[name] = replace(origins[other], why=why)
        values[name] = limit
        done.append(name)


def _suggest(name: str, known: Collection[str]) -> str:
    similar = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f" (did you mean {similar[0]!r}?)" if similar else ""
