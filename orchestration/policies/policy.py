"""Policies: what a file may say about tables, and what holds for one of them: built-in values, defaults, database, globs, the table, and the age of a partition."""

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

from lsm_core.errors import DredgeError
from lsm_core.maintenance import CHECKS as TABLE_CHECKS
from lsm_core.maintenance.action import BUILT_IN as ACTIONS
from lsm_core.options import duration, memory_size
from orchestration.policies.presets import PRESETS, PresetName
from orchestration.policies.windows import OffPeak

BUILT_IN: Final = "built-in default"
CHECKS: Final = ("merged_view_unchanged", *TABLE_CHECKS, "expectations")
"""The checks of a table, by the name that Dagster shows."""
_FORMER_CHECKS: Final = {"tree_invariants": "tree_is_valid"}
"""Names that files of policies may still have, and those of today."""
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
EXPIRY_FLOOR_MS: Final = HOUR_MS
"""Snapshots and changelogs younger than this may still be read by somebody who began with them (`snapshot.time-retained` of Paimon's own)."""
DELETION_FLOOR_MS: Final = DAY_MS
"""Files, tags and partitions younger than this go only when a person asks for it by name: a file may belong to a commit that is still being made."""
MOST_PERCENT: Final = 20
"""More of a table's files, or bytes, are orphans only when something is wrong."""
_RETENTION: Final = {
    "expire_snapshots": "snapshots",
    "expire_changelogs": "changelogs",
    "expire_tags": "tags",
    "expire_partitions": "partitions",
    "orphans": "orphans",
}
"""Which part of `Retention` speaks of an action."""
_COUNTS: Final = frozenset({"tags", "small_manifests", "small_files", "small_files_critical"})
"""Limits of `WatchRules` that are no times."""
_COMPARED: Final = 20
"""So many names that fit nothing are compared with all that there is, to tell what was probably meant: that takes a millisecond each."""
_LEVEL0_LIMITS: Final = ("level0_warn", "level0_critical", "level0_emergency")
"""Limits that rise in this order."""
_GLOB: Final = re.compile(r"[*?\[]")
_ASSET: Final = r"^[^/\s]+(/[^/\s]+)*$"
Place: TypeAlias = tuple[str | int, ...]


def _duration(value: str | int) -> str | int:
    try:
        duration(value)
    except DredgeError as error:
        raise ValueError(str(error)) from error  # pydantic then knows the place
    return value


def _size(value: str | int) -> str | int:
    try:
        if memory_size(value) <= 0:
            raise ValueError("a budget of no bytes lets nothing run; `paused` says so")
    except DredgeError as error:
        raise ValueError(str(error)) from error
    return value


def _one_of(known: Collection[str], what: str) -> AfterValidator:
    def judge(name: str) -> str:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ValueError(f"there is no {what} {name!r}{f' (did you mean {near[0]!r}?)' if near else ''}")
        return name

    return AfterValidator(judge)


def _at_least(floor_ms: int, why: str) -> AfterValidator:
    def judge(value: str | int) -> str | int:
        if duration(value) < floor_ms:
            raise ValueError(f"{value} is below the deletion floor of {floor_ms // HOUR_MS} h: {why}")
        return value

    return AfterValidator(judge)


def _of_today(name: Any) -> Any:
    return _FORMER_CHECKS.get(name, name) if isinstance(name, str) else name


def _off(value: Any) -> Any:
    """YAML reads ``off`` without quotes as false."""
    return "off" if value is False else value


Duration: TypeAlias = Annotated[str | StrictInt, AfterValidator(_duration)]
Size: TypeAlias = Annotated[str | StrictInt, AfterValidator(_size)]
Severity: TypeAlias = Literal["error", "warn"]
Verification: TypeAlias = Literal["full", "sampled", "counts"]
Approval: TypeAlias = Literal["required", "none"]
_ExpiryAge: TypeAlias = Annotated[Duration, _at_least(EXPIRY_FLOOR_MS, "somebody may still read the newest snapshots")]
_TagAge: TypeAlias = Annotated[Duration, _at_least(DELETION_FLOOR_MS, "what a tag holds cannot be had again")]
_PartitionAge: TypeAlias = Annotated[Duration, _at_least(DELETION_FLOOR_MS, "a day's data may still come")]
_OrphanAge: TypeAlias = Annotated[
    Duration, _at_least(DELETION_FLOOR_MS, "younger files may belong to a commit that is still being made")
]


def _two_minutes(value: str | int) -> str | int:
    if duration(value) < 2 * 60_000:
        raise ValueError(f"{value} is shorter than 2 min, and Dagster looks every half a minute")
    return value


_FreshWithin: TypeAlias = Annotated[Duration, AfterValidator(_two_minutes)]


class _Part(BaseModel):
    """A part of the file: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Pause(_Part):
    """Why maintenance rests, and since when."""

    reason: str = Field(min_length=1, description="why maintenance rests, in words")
    since: datetime.date | None = Field(None, description="the day it was decided, like 2013-09-30")
    retention: bool = Field(
        default=False, description="true: nothing expires meanwhile, either; false: compactions alone rest"
    )

    def text(self) -> str:
        """As ticks say it: ``storage move, since 2013-09-30``."""
        return self.reason if self.since is None else f"{self.reason}, since {self.since}"


class SnapshotRetention(_Part):
    """Which snapshots (or changelogs) stay; each value wins over the table's option."""

    retain_min: int | None = Field(None, ge=1, description="keep at least so many")
    retain_max: int | None = Field(None, ge=1, description="keep at most so many")
    older_than: _ExpiryAge | None = Field(
        None, description="between the two, those older than this expire, like '1 d' (at least 1 h)"
    )

    @model_validator(mode="after")
    def _in_order(self) -> SnapshotRetention:
        if self.retain_min is not None and self.retain_max is not None and self.retain_min > self.retain_max:
            raise ValueError(f"retain_min ({self.retain_min}) is above retain_max ({self.retain_max})")
        return self


class TagRetention(_Part):
    """Which tags go besides those whose own time is over."""

    older_than: _TagAge | None = Field(
        None, description="tags made longer ago than this expire, whoever made them, like '90 d' (at least 24 h)"
    )


class PartitionRetention(_Part):
    """Which partitions are dropped; wins over the table's `partition.expiration-time`."""

    older_than: _PartitionAge | None = Field(
        None, description="partitions of an earlier time than this long ago are dropped, like '365 d' (at least 24 h)"
    )


class OrphanRetention(_Part):
    """Which files that nothing names are removed."""

    older_than: _OrphanAge | None = Field(
        None, description="files that were last changed longer ago than this, like '3 d' (at least 24 h)"
    )
    max_share: int | None = Field(
        None,
        ge=1,
        le=MOST_PERCENT,
        description="percent of the table's files, or bytes, that may go at once (at most 20)",
    )


class Retention(_Part):
    """How long what is kept; what is not said is the table's own affair."""

    snapshots: SnapshotRetention | None = Field(None, description="of snapshots")
    changelogs: SnapshotRetention | None = Field(None, description="of changelogs that outlive their snapshots")
    tags: TagRetention | None = Field(None, description="of tags")
    partitions: PartitionRetention | None = Field(None, description="of partitions")
    orphans: OrphanRetention | None = Field(None, description="of files that nothing names")


class WatchRules(_Part):
    """From where on the sensor `watch` alerts; each value inherits by itself."""

    stalled_after: Duration | None = Field(
        None, description="something is due, and nothing was compacted for so long, like '12 h'"
    )
    paused_at_most: Duration | None = Field(None, description="a pause that says since when is older, like '30 d'")
    overdue_after: Duration | None = Field(
        None, description="snapshots and tags are still there so long after their time, like '1 d'"
    )
    tags: int | None = Field(None, ge=1, description="a table has more tags than this")
    small_manifests: int | None = Field(
        None, ge=2, description="so many manifests of the newest snapshot are small or hold deletions"
    )
    small_files: int | None = Field(
        None, ge=2, description="a partition of an append table has so many small files: small_files_backlog warns"
    )
    small_files_critical: int | None = Field(
        None, ge=2, description="a partition of an append table has so many small files: small_files_backlog fails"
    )

    @model_validator(mode="after")
    def _in_order(self) -> WatchRules:
        low, high = self.small_files, self.small_files_critical
        if low is not None and high is not None and low > high:
            raise ValueError(f"small_files ({low}) is above small_files_critical ({high})")
        return self


class Expectation(_Part):
    """One expectation of great-expectations over the table's rows."""

    type: str = Field(
        pattern=r"^expect_[a-z0-9_]+$",
        description="its name in great-expectations, like 'expect_column_values_to_be_between'",
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="its arguments, like {column: distance, min_value: 0}"
    )
    severity: Severity = Field("error", description="error: the check fails; warn: it warns")


class SortRules(_Part):
    """How an append table without buckets is sorted, so that filters skip files."""

    by: list[str] | None = Field(
        None, min_length=1, description="columns to sort by (default: the table's clustering.columns)"
    )
    order: Literal["order", "zorder", "hilbert", "auto"] | None = Field(
        None, description="along what: order (column by column), zorder, hilbert, or auto, by the number of columns"
    )
    every: Duration | None = Field(
        None,
        description="sort what was written since so often, like '1 d' (default: a partition is sorted once it is idle)",
    )


@dataclass(frozen=True)
class SortRule:
    """How a table's partitions are sorted.

    Attributes:
        by: the columns; none: those of the table's option `clustering.columns`.
        order: a strategy of `lsm_core.merge.curves`, or "auto".
        every_ms: how often (ms) what was written since is sorted; None: once the partition is idle.
    """

    by: tuple[str, ...] = ()
    order: str = "auto"
    every_ms: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the action `compact`."""
        return {"strategy": self.order, **({"order_by": list(self.by)} if self.by else {})}


class CompactionRules(_Part):
    """What a table and the partitions of an age have in common."""

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
        None, description="why maintenance rests (a text, or reason and since); false ends a pause that was inherited"
    )
    off_peak: OffPeak | Literal[False] | None = Field(
        None,
        description="when sensors may start compactions (a critical backlog is no time to wait); false: at any time again",
    )

    sort: SortRules | Literal[False] | None = Field(
        None,
        description="how append tables without buckets are sorted, once a partition is idle or so often; {}: by the table's clustering.columns; false: never",
    )

    @model_validator(mode="after")
    def _has_reason(self) -> CompactionRules:
        said = self.paused.reason if isinstance(self.paused, Pause) else self.paused
        if said is True or (isinstance(said, str) and not said.strip()):
            raise ValueError("paused needs a reason as text, like 'storage move, since 2013-09-30'")
        return self


class PartitionEntry(CompactionRules):
    """What holds for the partitions of an age."""

    older_than: Duration = Field(
        description="partitions whose time (or, where their values tell none, whose newest file) is longer ago than this"
    )


class PolicyEntry(CompactionRules):
    """What a policy file may say about some tables; everything is optional and inherits."""

    preset: PresetName | None = Field(
        None, description="one of the seven usual designs: its values count as if they were written here"
    )
    level0_warn: int | None = Field(None, ge=1, description="level-0 files in one bucket that make level0_backlog warn")
    level0_critical: int | None = Field(
        None, ge=1, description="level-0 files in one bucket that make level0_backlog fail"
    )
    level0_emergency: int | None = Field(
        None, ge=1, description="level-0 files in one bucket that are alerted for once more: recover them in passes"
    )
    level0_pass: int | None = Field(
        None,
        ge=1,
        description="level-0 files that one run of a sensor merges of a bucket with more of them, the oldest first; the next run goes on",
    )
    page_sample_bytes: int | None = Field(
        None,
        ge=1,
        description="stored bytes of the data files that the check pages_readable reads each night, page by page",
    )
    watch: WatchRules | None = Field(None, description="from where on the sensor `watch` alerts")
    verification: Verification | None = Field(
        None,
        description="what a run proves of a compaction's output before it is published; wins over the table's dredge.verification",
    )
    approval: dict[Annotated[str, _one_of(ACTIONS, "action")], Approval] | None = Field(
        None,
        description="by action (compact, orphans, ...): required, it stops at a stored plan until a person approves",
        json_schema_extra={"propertyNames": {"enum": list(ACTIONS)}},
    )
    retention: Retention | None = Field(None, description="how long what is kept")
    checks: (
        dict[
            Annotated[str, BeforeValidator(_of_today), _one_of(CHECKS, "check")],
            Annotated[Literal["error", "warn", "off"], BeforeValidator(_off)],
        ]
        | None
    ) = Field(
        None,
        description="by check: error or warn when it finds something, off: it does not look",
        json_schema_extra={"propertyNames": {"enum": list(CHECKS)}},
    )
    expectations: list[Expectation] | None = Field(
        None, description="what the rows are held to besides the table's own keys, by great-expectations"
    )
    expectations_on: Literal["sample", "spark"] | None = Field(
        None,
        description="which rows great-expectations holds to them: a bounded sample in the run's process, or all in Spark (where DREDGE_RUNNER is not spark: the sample)",
    )
    partitions: list[PartitionEntry] | None = Field(
        None, description="what else holds for partitions of an age; of several that fit the oldest counts most"
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
        description="writers commit at least so often, like '6 h' (at least 2 min): Dagster's freshness policy of the table's data",
    )
    upstream: list[Annotated[str, Field(pattern=_ASSET)]] | None = Field(
        None, description="keys of assets that the table's data are made from, like 'raw/orders_csv'"
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
            raise ValueError("two rules of partitions are for the same age")
        return self


class Budget(_Part):
    """How much the sensors may start over the whole warehouse."""

    bytes_an_hour: Size | None = Field(
        None, description="bytes that the compactions started within an hour may read, like '100 gb'"
    )
    concurrent_tables: int | None = Field(None, ge=1, description="tables that are compacted at the same time")


class PolicyFile(_Part):
    """The whole file: one a warehouse."""

    defaults: PolicyEntry = Field(default_factory=PolicyEntry, description="for every table")
    databases: dict[str, PolicyEntry] = Field(default_factory=dict, description="by database")
    tables: dict[str, PolicyEntry] = Field(
        default_factory=dict, description="by 'db.table' or glob like 'db.*'; later globs win, exact names over all"
    )
    budget: Budget = Field(default_factory=Budget, description="for all tables together")

    @model_validator(mode="before")
    @classmethod
    def _says_nothing(cls, value: Any) -> Any:
        """A heading below which all is commented out, and a table's name alone, say nothing."""
        if not isinstance(value, dict):
            return value
        found = {key: {} if part is None else part for key, part in value.items()}
        for key in ("databases", "tables"):
            if isinstance(entries := found.get(key), dict):
                found[key] = {name: {} if entry is None else entry for name, entry in entries.items()}
        return found


@dataclass(frozen=True)
class Origin:
    """Where a value was written: ``line`` of ``file`` (0: no line is known), in the ``entry`` of that name.

    ``preset``: the one that was chosen there and has the value, for the reason ``why``; "" for a value of the file's own. ``over``: what else in the file says the value,
    and does not count, the nearest first.
    """

    file: str
    line: int
    entry: str
    preset: str = ""
    why: str = ""
    over: tuple[str, ...] = ()

    def __str__(self) -> str:
        """``policies.yaml:7, shop.*``, or ``preset log, policies.yaml:7, shop.*``."""
        written = f"{self.file}:{self.line}, {self.entry}" if self.line else f"{self.file}, {self.entry}"
        return f"preset {self.preset}, {written}" if self.preset else written


@dataclass(frozen=True)
class AgeRule:
    """What else holds for partitions older than ``older_than_ms``: values of a `Policy` by name, and where each comes from."""

    older_than_ms: int
    values: Mapping[str, Any]
    origins: Mapping[str, Origin]


@dataclass(frozen=True)
class WatchLimits:
    """From where on the sensor `watch` alerts, as `WatchRules` says it; times in ms."""

    stalled_after_ms: int = 12 * HOUR_MS
    paused_at_most_ms: int = 30 * DAY_MS
    overdue_after_ms: int = DAY_MS
    tags: int = 100
    small_manifests: int = 500
    small_files: int = 1_000
    small_files_critical: int = 10_000


@dataclass(frozen=True)
class Policy:
    """What holds for one table. ``idle_after_ms`` in ms, ``paused`` in words (None: at work), the others counts.

    ``rests``: the pause is for retention, too; ``paused_since_ms``: when it began (epoch ms), None where the file does not say. ``off_peak``: when compactions may start, None: at any time. ``sort``: how append tables are sorted, None: by `clustering.columns` where the table has it, False: never. ``preset``: the nearest that was chosen, "": none. ``verification``: "" is the table's own. ``approval`` and ``checks``: by name, what is not there is
    as it always was. ``retention``: by kind (snapshots, changelogs, tags, partitions, orphans), then by argument; ages in ms.

    ``owners``, ``group`` and ``tags`` of its assets (empty: the platform's own), ``upstream`` and ``downstream`` as keys like 'raw/orders_csv'.

    ``ages``: what else holds for old partitions, the youngest first. ``origins`` tells where each value comes from.
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
    paused: str | None = None
    paused_since_ms: int | None = None
    rests: bool = False
    off_peak: OffPeak | None = None
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
    def declares(self) -> bool:
        """Whether it says anything of the table's assets."""
        return any(self.declared)

    @property
    def declared(self) -> tuple[Any, ...]:
        """What it says of the table's assets, which Dagster learns when definitions load."""
        return (self.owners, self.group, self.tags, self.fresh_within_ms, self.upstream, self.downstream)

    def origin(self, name: str) -> str:
        """Return where the value of ``name`` (``retention.snapshots.retain_min`` for one further in) comes from."""
        found = self.origins.get(name.removesuffix("_ms"))
        return BUILT_IN if found is None else str(found)

    @property
    def options(self) -> dict[str, str]:
        """The table options that it overrides in runs."""
        return {"dredge.verification": self.verification} if self.verification else {}

    def needs_approval(self, action: str) -> bool:
        """Whether a plan of the action waits until a person approves it."""
        return self.approval.get(self.approved_as(action)) == "required"

    def approved_as(self, action: str) -> str:
        """Return the action whose approval counts: of a recovery, which compacts, that of `compact` where the file does not name it."""
        return "compact" if action == "recover" and action not in self.approval else action

    def retention_arguments(self, action: str, now_ms: int) -> dict[str, int]:
        """Return the arguments that the policy gives an action of retention at ``now_ms`` (epoch ms); what is not there is the table's own affair."""
        said = self.retention.get(_RETENTION.get(action, ""), {})
        ages = {key: now_ms - age for key, age in said.items() if key == "older_than_ms"}
        found = {**said, **ages}
        if "retain_max" in found:  # one may come from a nearer entry than the other: more is kept, not nothing expired
            found["retain_max"] = max(found["retain_max"], found.get("retain_min", 0))
        return found

    def at_age(self, age_ms: int | None) -> Policy:
        """Return what holds for a partition of that age (None: it is not known, so no rule for old ones fits)."""
        fitting = [rule for rule in self.ages if age_ms is not None and age_ms >= rule.older_than_ms]
        if not fitting:
            return self
        values: dict[str, Any] = {}
        origins = dict(self.origins)
        for rule in fitting:
            values |= rule.values
            origins |= rule.origins
        return replace(self, **values, origins=MappingProxyType(origins))


@dataclass(frozen=True)
class Policies:
    """All policies in force; ``source`` names the file, ``lines`` where in it each value was written, for texts.

    ``trouble``: why a newer state of the file does not count, "" when it does.
    """

    content: PolicyFile = field(default_factory=PolicyFile)
    source: str = ""
    lines: Mapping[Place, int] = field(default_factory=dict)
    trouble: str = ""

    @cached_property
    def _found(self) -> dict[str, Policy]:
        return {}

    @cached_property
    def _globs(self) -> dict[str, re.Pattern[str]]:
        """By name; most entries of a long file name one table and are no glob."""
        return {name: re.compile(fnmatch.translate(name)) for name in self.content.tables if _GLOB.search(name)}

    def of(self, table: str) -> Policy:
        """Return the policy of ``db.table``: built-in, then defaults, its database, globs in the file's order, and the exact name."""
        if table not in self._found:
            self._found[table] = self._resolve(table)
        return self._found[table]

    @property
    def bytes_an_hour(self) -> int | None:
        """Bytes that the compactions which sensors start within an hour may read; None: any."""
        given = self.content.budget.bytes_an_hour
        return None if given is None else memory_size(given)

    @property
    def concurrent_tables(self) -> int | None:
        """How many tables sensors may have compacted at the same time; None: any."""
        return self.content.budget.concurrent_tables

    @property
    def limited(self) -> bool:
        """Whether a budget lets only some of what is due start."""
        return self.bytes_an_hour is not None or self.concurrent_tables is not None

    def entries(self, table: str) -> Iterator[tuple[Place, str, PolicyEntry]]:
        """Yield the entries that speak of ``db.table``, general ones first: place in the file, name, entry."""
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

        def say(path: tuple[str, ...], value: Any, origin: Origin) -> None:
            _set(values, path, value)
            known = origins.pop(".".join(path), None)  # so that the nearest come last
            over: tuple[str, ...] = ()
            if known is not None:
                globs = known.entry != origin.entry and {known.entry, origin.entry} <= set(self._globs)
                over = (f"{known}{' (of two globs the later one counts)' if globs else ''}", *known.over)
            origins[".".join(path)] = replace(origin, over=over)

        for place, label, entry in self.entries(table):
            if entry.preset is not None:
                line = self.lines.get((*place, "preset"), 0)
                for path, chosen in PRESETS[entry.preset].values.items():
                    say(path, chosen.value, Origin(self.source, line, label, entry.preset, chosen.why))
            for path, value in leaves(entry):
                say(path, value, Origin(self.source, self.lines.get((*place, *path), 0), label))
            if entry.partitions is not None:
                values["ages"] = self._ages((*place, "partitions"), label, entry.partitions)
        _put_in_order(values, origins)
        return Policy(**values, origins=MappingProxyType(origins))

    def _ages(self, place: Place, label: str, rules: Sequence[PartitionEntry]) -> tuple[AgeRule, ...]:
        found = []
        for number, rule in enumerate(rules):
            said = dict(leaves(rule))
            said.pop(("older_than",))
            where = {
                path[0]: Origin(
                    self.source, self.lines.get((*place, number, *path), 0), f"{label}, older than {rule.older_than}"
                )
                for path in said
            }
            values: dict[str, Any] = {}
            for path, value in said.items():
                _set(values, path, value)
            found.append(AgeRule(duration(rule.older_than), values, where))
        return tuple(sorted(found, key=lambda one: one.older_than_ms))

    def unmatched(self, tables: Collection[str]) -> list[str]:
        """Return a line for every name or glob of the file that fits none of ``tables``: misspelt, or the table is still to come."""
        databases, known = {table.partition(".")[0] for table in tables}, set(tables)
        strange: list[tuple[str, str, Collection[str]]] = [
            (name, "database", databases) for name in self.content.databases if name not in databases
        ]
        strange += [
            (name, "table", tables)
            for name in self.content.tables
            if name not in known and not (name in self._globs and any(map(self._globs[name].match, tables)))
        ]
        return [
            f"{self.source}: {name!r} fits no {kind} of the warehouse{_meant(name, near) if number < _COMPARED else ''}"
            for number, (name, kind, near) in enumerate(strange)
        ]


_RESOLVED: Final = {"idle_after": "idle_after_ms", "fresh_within": "fresh_within_ms"}
_BY_KEY: Final = frozenset({"approval", "checks", "tags"})
"""Inherited key by key, as retention is; of all else (windows and lists, too) the nearest entry says everything."""


def leaves(entry: CompactionRules) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what an entry says, value by value: the keys that lead to it in the file, and the value as it was written; ``partitions`` apart."""
    for name in type(entry).model_fields:
        value = getattr(entry, name)
        if value is None or name == "partitions":
            continue
        if name in _BY_KEY:
            yield from (((name, key), given) for key, given in value.items())
        elif isinstance(value, Retention):
            for kind in Retention.model_fields:
                part = getattr(value, kind)
                if part is not None:
                    yield from (((name, kind, key), given) for key, given in part if given is not None)
        elif isinstance(value, WatchRules):
            yield from (((name, key), given) for key, given in value if given is not None)
        else:
            yield (name,), value


def _set(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set one value as a `Policy` holds it: ages in ms, a pause in words, None for what was ended."""
    name = _RESOLVED.get(path[0], path[0])
    if path[0] == "paused":
        values["rests"] = isinstance(value, Pause) and value.retention
        since = value.since if isinstance(value, Pause) else None
        values["paused_since_ms"] = None if since is None else _midnight_ms(since)
        values[name] = value.text() if isinstance(value, Pause) else (value or None)
    elif path[0] == "off_peak":
        values[name] = value or None
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
    elif path[0] in _BY_KEY:
        values[name] = {**values.get(name, {}), path[1]: value}
    else:
        values[name] = duration(value) if path[0] in _RESOLVED else value


def _sort_rule(value: SortRules | Literal[False]) -> SortRule | Literal[False]:
    if value is False:
        return False
    every = None if value.every is None else duration(value.every)
    return SortRule(tuple(value.by or ()), value.order or "auto", every)


def _put_in_order(values: dict[str, Any], origins: dict[str, Origin]) -> None:
    """Have the level-0 limits that were said farther away, or nowhere, give way to those of the nearest entry: a warning never comes after the alarm."""
    nearest = [name for name in reversed(origins) if name in _LEVEL0_LIMITS]
    settled: list[str] = []
    for name in [*nearest, *(name for name in _LEVEL0_LIMITS if name not in nearest)]:
        place, given = _LEVEL0_LIMITS.index(name), values.get(name, getattr(Policy, name))
        for other in settled:
            limit, is_below = values[other], _LEVEL0_LIMITS.index(other) < place
            if given < limit if is_below else given > limit:
                given, why = (
                    limit,
                    f"{other} is {limit:,}, and {given:,} would be {'below' if is_below else 'above'} it",
                )
                origins[name] = replace(origins[other], why=why)
        values[name] = given
        settled.append(name)


def _midnight_ms(day: datetime.date) -> int:
    """The beginning of a day in UTC, epoch ms."""
    return int(datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp() * 1000)


def _meant(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f" (did you mean {near[0]!r}?)" if near else ""


__all__ = [
    "AgeRule",
    "Budget",
    "Expectation",
    "Origin",
    "Policies",
    "Policy",
    "PolicyEntry",
    "PolicyFile",
    "SortRule",
    "leaves",
]
