"""Actions of maintenance: their arguments, plans as values, results of applying a plan, and the registry.

This module neither imports Arrow nor reads a table, so that the command line can list actions and their flags at once.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cached_property, lru_cache, wraps
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from lsm_core.errors import CorruptFile, DredgeError, InvalidOption, PlanStale, UnsupportedFeature
from lsm_core.json_text import parse_json, time_of
from lsm_core.tracing import is_tracing, record_span

if TYPE_CHECKING:
    from lsm_core.compact import BucketResult, BucketTask
    from lsm_core.metadata.store import TableStore

PLAN_VERSION: Final = 1
CODE_VERSION: Final = "dredge-0.2.0/plan-3"
"""Part of every hash: a plan is applied only by the code version that made it."""

PLAN_PROPERTY: Final = "dredge.plan"
"""Snapshot property: hash of the plan whose application published the snapshot."""

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
Fact: TypeAlias = str | int | float | bool | None
_Item = TypeVar("_Item", bound="PlanItem")
P = ParamSpec("P")


class ArgumentKind(StrEnum):
    """Type of an action's argument, which decides how the command line reads it."""

    FLAG = "flag"
    NUMBER = "number"
    NUMBERS = "numbers"
    TEXT = "text"
    COLUMNS = "columns"
    PARTITIONS = "partitions"
    AGE = "age"
    TIME = "time"


@dataclass(frozen=True)
class Argument:
    """Argument of :meth:`Action.plan`.

    Attributes:
        name: keyword of the argument.
        kind: type of the value. An AGE is epoch ms in Python and an age such as "1 h" on the command line. A TIME
            (epoch ms) can be passed in Python only.
        help: help text.
        flag: flag on the command line, "" for ``--name``.
        required: whether the argument has no default. On the command line, the action's own verb takes a required
            argument by position, without a flag.
        aliases: further flags with the same meaning as :attr:`option`.
    """

    name: str
    kind: ArgumentKind
    help: str
    flag: str = ""
    required: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """Flag of the argument on the command line."""
        return self.flag or f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class PlanItem(ABC):
    """One step of a plan.

    Attributes:
        item_kind: name of the item's type in JSON.
        title: title of the printed table of items.
        columns: column headings of the printed table.
    """

    item_kind: ClassVar[str]
    title: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    @abstractmethod
    def cells(self) -> tuple[Any, ...]:
        """Return the item's row of the printed table: one number or text per column of ``columns``."""

    def to_object(self) -> dict[str, Any]:
        """Return the plan item's fields as JSON values, bytes as hex digits; the plan's hash covers all of them."""
        values = _to_plain(self)
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Return the item that JSON values of :meth:`to_object` describe; hex digits of a bytes field become bytes.

        Args:
            value: JSON values by field name.

        Raises:
            KeyError, TypeError, ValueError: the values do not describe an item of this type.
        """
        coded = {field.name for field in fields(cls) if field.type in (bytes, "bytes")}
        return cls(**{name: bytes.fromhex(part) if name in coded else part for name, part in value.items()})


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """Data file that a plan rewrites or restores; applying the plan requires that a file to rewrite is on this level.

    Attributes:
        name: name of the file.
        level: level of the file.
        size: size of the file in bytes.
        rows: number of stored rows.
        deletes: number of stored rows whose row kind is a delete, None if unknown.
    """

    name: str
    level: int
    size: int
    rows: int
    deletes: int | None = 0


@dataclass(frozen=True)
class PartitionItem(PlanItem):
    """Item about one partition.

    Attributes:
        partition: partition values as the serialised BinaryRow of the manifest entry.
        partition_text: Paimon's path of the partition ("" when unpartitioned).
    """

    partition: bytes
    partition_text: str


@dataclass(frozen=True)
class BucketFilesItem(PartitionItem):
    """Number and size of the files of one bucket that an action adds or copies.

    Attributes:
        bucket: number of the bucket.
        files: number of data files.
        rows: number of rows of these files, before merging.
        size: bytes of these files.
    """

    columns: ClassVar[tuple[str, ...]] = ("bucket", "files", "rows", "bytes")

    bucket: int
    files: int
    rows: int
    size: int

    def cells(self) -> tuple[Any, ...]:
        """Return the item's cells of a printed plan: bucket, and its numbers of files, rows and bytes."""
        return (bucket_name(self.partition_text, self.bucket), self.files, self.rows, self.size)


@dataclass(frozen=True)
class RewriteItem(PartitionItem):
    """Item that replaces files of one partition.

    Attributes:
        inputs: files to replace; applying the plan requires that all of them are still live.
    """

    inputs: tuple[PlannedFile, ...]

    @property
    def bytes_in(self) -> int:
        """Total size of the files that the item replaces (``inputs``), in bytes."""
        return sum(file.size for file in self.inputs)

    @property
    def rows_in(self) -> int:
        """Number of stored rows, before merging, in the files that the item replaces (``inputs``)."""
        return sum(file.rows for file in self.inputs)

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Return the item from JSON values of :meth:`to_object`, with lists as tuples and inputs as PlannedFile.

        Args:
            value: JSON values by field name.

        Raises:
            KeyError, TypeError, ValueError: the values do not describe an item of this type.
        """
        read: dict[str, Any] = {n: tuple(part) if isinstance(part, list) else part for n, part in value.items()}
        read["inputs"] = tuple(PlannedFile(**file) for file in read["inputs"])
        return super().from_object(read)


@dataclass(frozen=True)
class Declined:
    """Bucket, file, snapshot, tag or other subject that a plan leaves unchanged, with the reason.

    Attributes:
        subject: name of the subject: a bucket ("dt=1/bucket-0"), file, snapshot, tag, table or the like.
        reason: short code (`lsm_core.tree.DeclineReason`, "held", "stale", ...).
        text: the reason in one sentence with figures ("4 sorted runs < 5").
        facts: the figures of ``text`` by name.
        partition_text: Paimon's path of the partition.
        bucket: number of the subject's bucket, None if the subject is not in a bucket.
    """

    subject: str
    reason: str
    text: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    partition_text: str = ""
    bucket: int | None = None


NO_SUCH_PARTITION: Final = Declined("table", "empty", "no such partition holds a file")
"""Entry of a plan whose chosen partitions hold no file."""


@dataclass(frozen=True)
class PlanEstimate:
    """Estimated cost of applying a plan.

    Attributes:
        bytes_in: file bytes read.
        bytes_out: file bytes written at most.
        bytes_freed: bytes of the files that are deleted.
        rows_in: stored rows, unmerged, that are read or removed.
        files_in: files that are read, copied, removed or deleted.
        tasks: number of tasks.
        seconds: seconds on one core.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    bytes_freed: int = 0
    rows_in: int = 0
    files_in: int = 0
    tasks: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class MaintenancePlan:
    """Plan of one action for one table: computed from metadata only, explained, hashed, applied unchanged.

    Items and reasons contain points in time, never ages, so that planning again gives the same hash.

    Attributes:
        action: name of the action.
        table: name of the table.
        base_snapshot: newest snapshot at planning, None for an empty table.
        items: steps of the plan.
        declined: buckets, files, snapshots and the like that are left unchanged, with the reasons.
        estimate: estimated cost.
        options: table options in force.
        arguments: arguments of the caller.
        created_ms: time of planning (epoch ms, the table's clock).
        code_version: version of the planning code.
        read_back: whether the plan was read from JSON text. Anyone can write such a text, so its hash proves only that
            the text is complete.
    """

    action: str
    table: str
    base_snapshot: int | None
    items: tuple[PlanItem, ...] = ()
    declined: tuple[Declined, ...] = ()
    estimate: PlanEstimate = field(default_factory=PlanEstimate)
    options: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Fact] = field(default_factory=dict)
    created_ms: int = 0
    code_version: str = CODE_VERSION
    read_back: bool = field(default=False, compare=False)

    def span_attributes(self) -> dict[str, str | int]:
        """Return the plan's hash and estimate as attributes of a tracing span."""
        estimate = self.estimate
        return {
            "plan_hash": self.hash,
            "items": len(self.items),
            "files_in": estimate.files_in,
            "bytes_in": estimate.bytes_in,
            "bytes_freed": estimate.bytes_freed,
        }

    @cached_property
    def hash(self) -> str:
        """Hex digest over all fields of the plan that are displayed or applied, except the time of planning."""
        digest = hashlib.sha256(b"{")
        covered = {name: value for name, value in self._fields().items() if name != "created_ms"}
        for place, name in enumerate(sorted(covered)):
            digest.update(f'{"," if place else ""}"{name}":'.encode())
            value = covered[name]
            if isinstance(value, tuple):
                for number, element in enumerate(value):
                    digest.update(f"{',' if number else '['}{_HASHED.encode(_to_listed(element))}".encode())
                digest.update(b"]" if value else b"[]")
            else:
                digest.update(_HASHED.encode(value).encode())
        digest.update(b"}")
        return digest.hexdigest()[:32]

    @staticmethod
    def begin(
        action: str,
        store: TableStore,
        base_snapshot: int | None,
        arguments: Mapping[str, Fact],
        now_ms: int | None = None,
    ) -> MaintenancePlan:
        """Return a plan without items for the table of ``store``, with the options of that table.

        Args:
            action: name of the action.
            store: the table.
            base_snapshot: newest snapshot, None for an empty table.
            arguments: arguments of the caller.
            now_ms: time of planning (epoch ms), None for the table's clock.
        """
        created = store.clock.now_ms() if now_ms is None else now_ms
        return MaintenancePlan(
            action,
            store.name,
            base_snapshot,
            options=dict(store.options.raw),
            arguments=arguments,
            created_ms=created,
        )

    def items_of(self, kind: type[_Item]) -> tuple[_Item, ...]:
        """Return the items of one type, in the plan's order.

        Args:
            kind: type of the items.
        """
        return tuple(item for item in self.items if isinstance(item, kind))

    def to_json(self) -> str:
        """Return the whole plan with its hash as JSON, one field or item per line."""
        return "".join(self.iter_json())

    def iter_json(self) -> Iterator[str]:
        """Yield the text of :meth:`to_json` in parts, so that only one item at a time exists as JSON values."""
        for name, value in {"version": PLAN_VERSION, "hash": self.hash, **self._fields()}.items():
            yield f'{"{" if name == "version" else ","}\n  "{name}": '
            if isinstance(value, tuple) and value:
                for number, element in enumerate(value):
                    yield f"{',' if number else '['}\n    {_SHOWN.encode(_to_listed(element))}"
                yield "\n  ]"
            else:
                yield _SHOWN.encode(value)
        yield "\n}"

    def _fields(self) -> dict[str, Any]:
        """Return the plan's fields in the order of its JSON: JSON values, but objects for items and declined items."""
        return {
            "action": self.action,
            "table": self.table,
            "base_snapshot": self.base_snapshot,
            "created_ms": self.created_ms,
            "code_version": self.code_version,
            "arguments": dict(self.arguments),
            "estimate": asdict(self.estimate),
            "items": tuple(self.items),
            "declined": tuple(self.declined),
            "options": dict(self.options),
        }

    @staticmethod
    def from_json(text: str) -> MaintenancePlan:
        """Return the plan in the JSON text of :meth:`to_json`.

        Args:
            text: JSON of a plan.

        Raises:
            CorruptFile: the text is not a plan.
            PlanStale: the hash does not match the content, or the plan version, the code version, the action or an
                item is unknown.
        """
        table = ""
        try:
            value = parse_json(text, unique=True)
            table = str(value.get("table", "")) if isinstance(value, dict) else ""
            if value["version"] != PLAN_VERSION:
                raise PlanStale(f"written by plan version {value['version']}, this is {PLAN_VERSION}", table)
            if value["action"] not in action_names():
                raise PlanStale(f"it is for the action {value['action']!r}, which is not known here", table)
            if value["code_version"] != CODE_VERSION:
                raise PlanStale(f"it was made by {value['code_version']}, this is {CODE_VERSION}; plan it again", table)
            plan = MaintenancePlan(
                action=value["action"],
                table=table,
                base_snapshot=value["base_snapshot"],
                items=tuple(_items(value["items"], find_action(value["action"]), table)),
                declined=tuple(Declined(**item) for item in value["declined"]),
                estimate=PlanEstimate(**value["estimate"]),
                options=dict(value["options"]),
                arguments=dict(value["arguments"]),
                created_ms=time_of(value["created_ms"]),
                code_version=value["code_version"],
                read_back=True,
            )
            expected = value["hash"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            of = f" for table {table}" if table else ""
            raise CorruptFile(f"<maintenance plan{of}>", f"unreadable: {error!r}") from error
        if plan.hash != expected:
            raise PlanStale(f"its content was changed after planning (hash {expected} became {plan.hash})", table)
        return plan


_HASHED: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_SHOWN: Final = json.JSONEncoder(ensure_ascii=False)
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})


def _to_listed(element: PlanItem | Declined) -> dict[str, Any]:
    """Return an item of a plan, or a declined item, as the JSON values that plans contain."""
    if isinstance(element, PlanItem):
        return {"item": element.item_kind, **element.to_object()}
    return dict(_to_plain(element))


def _to_plain(value: Any) -> Any:
    """Return `dataclasses.asdict(value)`, but without copies of values that cannot change.

    A plan of a large table has a million such values, which `asdict` copies one by one.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    names, read_fields = _fields_of(kind)  # type: ignore[arg-type]
    if names:
        parts = read_fields(value)
        if not _ATOMS.issuperset(map(type, parts)):
            parts = map(_to_plain, parts)
        return dict(zip(names, parts, strict=True))
    if kind in (tuple, list):
        return kind([_to_plain(part) for part in value])
    if kind is dict:
        return {name: _to_plain(part) for name, part in value.items()}
    return deepcopy(value)


@lru_cache(maxsize=256)
def _fields_of(kind: type) -> tuple[tuple[str, ...], Callable[[Any], Iterable[Any]]]:
    """Return the names of the fields of a dataclass and a function that reads them; no names for other types."""
    names = tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda value: [getattr(value, name) for name in names]


def _items(values: Iterable[Mapping[str, Any]], action: Action, table: str) -> Iterable[PlanItem]:
    kinds = {kind.item_kind: kind for kind in action.item_types()}
    for value in values:
        fields = dict(value)
        name = fields.pop("item")
        if name not in kinds:
            raise PlanStale(f"it holds an item {name!r}, which {action.name} does not know here", table)
        yield kinds[name].from_object(fields)


@dataclass(frozen=True)
class Applied:
    """Earlier application of a plan, with the place where it was found.

    Attributes:
        snapshot_id: snapshot that the application committed, None if the action commits no snapshot.
        time_ms: time of the application (epoch ms).
        told_by: where the application was found, as text: a snapshot, a run in the ledger (record of maintenance
            runs), or files that the action left or deleted.
    """

    snapshot_id: int | None
    time_ms: int
    told_by: str

    def text(self) -> str:
        """Return the earlier application as text, for example ``already applied, snapshot 7``."""
        return f"already applied, {self.told_by if self.snapshot_id is None else f'snapshot {self.snapshot_id}'}"


@dataclass(frozen=True)
class Report(ABC):
    """Result of applying a plan.

    Attributes:
        left_alone: for each field that lists unchanged files, snapshots and the like: the title above the printed list.
        undone: title above the printed list of :attr:`failures`.
        seconds: wall-clock time of the whole call.
        applied_before: earlier or concurrent application of the same plan, because of which this call did nothing;
            None if this call applied the plan.
        run_id: id of the run's entry in the ledger (record of maintenance runs), "" if there is no entry.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"declined": "left alone"}
    undone: ClassVar[str] = "files could not be deleted"
    seconds: float = field(default=0.0, kw_only=True)
    applied_before: Applied | None = field(default=None, kw_only=True)
    run_id: str = field(default="", kw_only=True)

    @property
    def changed(self) -> bool:
        """Whether the table was changed; reports of actions that commit no snapshot override this property."""
        return self.published is not None

    @property
    def is_recorded(self) -> bool:
        """Whether the ledger (record of maintenance runs) gets the run, by default only if the table was changed."""
        return self.changed

    @property
    def published(self) -> int | None:
        """Id of the committed snapshot (field ``snapshot_id``), None if no snapshot was committed."""
        number: int | None = getattr(self, "snapshot_id", None)
        return number

    @property
    def failures(self) -> Sequence[Declined]:
        """Steps that ended with an error (field ``failed``); the command line lists them and fails."""
        failed: Sequence[Declined] = getattr(self, "failed", ())
        return failed

    @abstractmethod
    def lines(self, table: str) -> list[str]:
        """Return one or more lines of text for people that describe the work done.

        Args:
            table: name of the table.
        """

    def to_object(self) -> dict[str, Any]:
        """Return the report as plain values (for JSON, ledgers and Dagster metadata)."""
        return asdict(self)

    def numbers(self) -> dict[str, Any]:
        """Return the report as plain values for the ledger, without the lists of unchanged files, snapshots etc."""
        return {name: value for name, value in self.to_object().items() if name not in self.left_alone}

    def declined_lists(self) -> dict[str, Sequence[Declined]]:
        """Return the lists of unchanged files, snapshots and the like, by the title above the printed list."""
        return {title: getattr(self, name) for name, title in self.left_alone.items()}


@dataclass(frozen=True)
class CommitReport(Report):
    """Report of an action that commits snapshots.

    Attributes:
        snapshot_id: snapshot of the last commit, None if nothing was committed.
        base_snapshot: newest snapshot at planning.
        plan_hash: hash of the plan.
        declined: buckets, files and the like that were left unchanged, also because they changed after planning.
    """

    snapshot_id: int | None
    base_snapshot: int | None
    plan_hash: str
    declined: tuple[Declined, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class RewriteReport(CommitReport):
    """Report of an action that rewrites files. Bytes are file sizes.

    Attributes:
        files_in: files read and replaced.
        files_out: files written.
        rows_in: stored rows read.
        rows_out: rows written.
        bytes_in: bytes read.
        bytes_out: bytes written.
    """

    files_in: int = 0
    files_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True)
class ApplyOutcome:
    """Result of :meth:`Action.apply`.

    Attributes:
        report: what the action changed, for people and as JSON.
        lines: details for the ledger (record of maintenance runs), one mapping per bucket, file or snapshot.
    """

    report: Report
    lines: Sequence[Mapping[str, Any]] = ()


PartOutcomes: TypeAlias = "Sequence[tuple[MaintenancePlan, Report | DredgeError]]"
"""Each part of a plan that is applied in parts, with the part's report or error."""


class Runner(Protocol):
    """Executor of a plan's compaction tasks, in this process or in Spark, that yields results as tasks finish."""

    def __call__(self, store: TableStore, tasks: Sequence[BucketTask], /) -> Iterable[BucketResult]:
        """Execute tasks.

        An exception ends the plan; the caller deletes the files of the results that were yielded before the exception.

        Args:
            store: the table.
            tasks: compaction tasks, one per bucket.

        Returns:
            Results in any order, including those of failed tasks (`BucketResult.error`).
        """
        ...


@runtime_checkable
class TaskRunner(Runner, Protocol):
    """Runner that also runs work other than compaction, split into parts that run in parallel on workers."""

    def slots(self) -> int:
        """Return the number of parts that run at once.

        Call this method only if there are parts to run, because a runner may have to start a cluster to know the
        number.
        """
        ...

    def run_parts(self, activity: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        """Run ``work`` on every part.

        Args:
            activity: name of the work, for errors and progress.
            work: function that the workers can import. The function may run twice on a part if the part's worker died.
            parts: input of ``work`` for each part.

        Returns:
            Results in the order of the parts.

        Raises:
            SparkFailed: a worker failed; the message names ``activity``. If ``work`` itself fails, the error of the
                first failed part is raised after all parts have ended.
        """
        ...


@dataclass(frozen=True)
class ActionWork:
    """Functions and types that implement an action; the action's module defines them as ``WORK``.

    Attributes:
        plan: implements `Action.plan`; takes the argument ``runner`` too if the action ``plans_with_tasks``.
        apply: implements `Action.apply`; takes a runner as third argument if the action ``runs_tasks``.
        report: type of the report.
        items: types of items in plans, in display order.
        commits: whether applying a plan commits a snapshot.
        replaces_schemas: whether applying a plan may remove the schema with which the table was opened.
        fits: implements `Action.fits`, None if only applying a plan shows whether it still fits.
        trace: implements `Action.trace`, None if an application leaves no trace besides snapshots and the ledger.
        remarks: returns lines for people, printed below the items of a plan that has items.
        dry_run: returns the report that applying a plan would give, None if only applying gives the report.
        parts: implements `Action.parts`, None if a plan is applied as a whole.
        report_of_parts: implements `Action.report_of_parts`, for an action with ``parts``.
    """

    plan: Callable[..., MaintenancePlan]
    apply: Callable[..., ApplyOutcome]
    report: type[Report]
    items: tuple[type[PlanItem], ...]
    _: KW_ONLY
    commits: bool = False
    replaces_schemas: bool = False
    fits: Callable[[TableStore, MaintenancePlan], bool] | None = None
    trace: Callable[[TableStore, MaintenancePlan], Applied | None] | None = None
    remarks: Callable[[MaintenancePlan], list[str]] | None = None
    dry_run: Callable[[MaintenancePlan], Report] | None = None
    parts: Callable[[MaintenancePlan], tuple[MaintenancePlan, ...]] | None = None
    report_of_parts: Callable[[MaintenancePlan, PartOutcomes], Report] | None = None


@dataclass(frozen=True)
class Action:
    """Kind of maintenance, such as compaction, with its arguments and its implementation.

    The module that implements the action is imported on first use, so that listing actions and their flags is cheap.

    Attributes:
        name: name of the action.
        help: help text.
        arguments: arguments of :meth:`plan`.
        verb: the action's own verb on the command line, "" for none; by default the action's name with hyphens.
        module: module with the action's ``WORK``; by default the module of that name in `lsm_core.maintenance.actions`.
        runs_tasks: whether a runner can execute the work of :meth:`apply` as tasks.
        plans_with_tasks: whether a runner can execute the work of :meth:`plan`, which then takes the argument
            ``runner``.
        one_of: names of arguments of which exactly one must be given.
    """

    name: str
    help: str
    arguments: tuple[Argument, ...] = ()
    _: KW_ONLY
    verb: str | None = None
    module: str = ""
    runs_tasks: bool = False
    plans_with_tasks: bool = False
    one_of: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Derive the default ``verb`` and ``module`` from the action's name."""
        if self.verb is None:
            object.__setattr__(self, "verb", self.name.replace("_", "-"))
        if not self.module:
            object.__setattr__(self, "module", f"lsm_core.maintenance.actions.{self.name}")

    @property
    def work(self) -> ActionWork:
        """The functions and types of the action."""
        work: ActionWork = import_module(self.module).WORK
        return work

    def item_types(self) -> tuple[type[PlanItem], ...]:
        """Return the types of items in the action's plans, in display order."""
        return self.work.items

    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """Return a plan computed from metadata only; nothing is changed.

        Args:
            store: the table.
            arguments: values of the declared ``arguments`` by name.

        Raises:
            InvalidOption: an argument is invalid. Further errors depend on the action.
        """
        return self.work.plan(store, **arguments)

    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> ApplyOutcome:
        """Apply a plan to its table and return the report with the lines for the ledger.

        Args:
            store: the table.
            plan: a plan of this action for the table.
            runner: executor of the work, None for this process. It is ignored unless the action ``runs_tasks``.

        Raises:
            PlanStale: the table changed so that the plan no longer fits. Further errors depend on the action.
        """
        return self.work.apply(store, plan, *((runner,) if self.runs_tasks else ()))

    def plan_again(self, store: TableStore, plan: MaintenancePlan) -> MaintenancePlan:
        """Return a new plan with the arguments and the planning time of an earlier plan.

        A planning time in the future is replaced by the current time.

        Args:
            store: the table.
            plan: the earlier plan.
        """
        declared = {argument.name for argument in self.arguments}
        arguments = {key: value for key, value in plan.arguments.items() if key in declared and value is not None}
        if "now_ms" in declared:
            arguments["now_ms"] = min(plan.created_ms, store.clock.now_ms())
        return self.plan(store, **arguments)

    def parts(self, plan: MaintenancePlan) -> tuple[MaintenancePlan, ...]:
        """Split a plan into the plans that are applied in its place, in order, each with its own run in the ledger.

        Most actions do not split a plan; the result then contains only the plan itself.

        Args:
            plan: a plan of this action.
        """
        return self.work.parts(plan) if self.work.parts else (plan,)

    def report_of_parts(self, plan: MaintenancePlan, outcomes: PartOutcomes) -> Report:
        """Combine the reports and errors of all :meth:`parts` of a plan into one report.

        Args:
            plan: the whole plan.
            outcomes: pairs of each part and its report or error, in the order of the parts. At least one part has a
                report, unless the plan was not split.

        Raises:
            DredgeError: the plan was not split and failed with this error.
        """
        if self.work.report_of_parts:
            return self.work.report_of_parts(plan, outcomes)
        ((_, report),) = outcomes
        if isinstance(report, DredgeError):
            raise report
        return report

    def unchanged(self, plan: MaintenancePlan) -> Report:
        """Return the report of a plan that was already applied: no work done, with the plan's hash and base snapshot.

        Args:
            plan: plan that was applied before.
        """
        values: dict[str, Any] = {
            "plan_hash": plan.hash,
            "base_snapshot": plan.base_snapshot,
            "snapshot_id": None,
            "declined": plan.declined,
        }
        if "trash_id" in plan.arguments:
            values["trash_id"] = str(plan.arguments["trash_id"])
        kind = self.work.report
        return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Return the lines to print below the items of a plan, none for a plan without items.

        Args:
            plan: a plan of this action.
        """
        return self.work.remarks(plan) if self.work.remarks and plan.items else []

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """Return the report that applying a plan would give; nothing is read or changed.

        Args:
            plan: a plan of this action.

        Raises:
            UnsupportedFeature: the action has no dry run.
        """
        if self.work.dry_run is None:
            what = f"a report of {self.name} before it is applied; its plan says what it would do"
            raise UnsupportedFeature(what, plan.table)
        return self.work.dry_run(plan)

    def fits(self, store: TableStore, plan: MaintenancePlan) -> bool:
        """Return whether applying a plan could still change the table.

        The cleanup of old saved plans keeps a plan that still fits.

        Args:
            store: the table.
            plan: a plan of this action for the table.

        Returns:
            Whether the plan fits; always True if only applying the plan can show this.
        """
        return self.work.fits is None or self.work.fits(store, plan)

    def trace(self, store: TableStore, plan: MaintenancePlan) -> Applied | None:
        """Find an earlier application of a plan by its effects on the table, such as deleted files.

        Args:
            store: the table.
            plan: a plan of this action for the table.

        Returns:
            The earlier application, or None if none can be recognised.
        """
        return self.work.trace(store, plan) if self.work.trace else None


_REGISTERED: Final[dict[str, Action]] = {}


def register(action: Action) -> None:
    """Register an action that a third-party package defines, for the Python API, the command line and the platform.

    Args:
        action: action to register.

    Raises:
        InvalidOption: the name is taken.
    """
    if action.name in action_names():
        raise InvalidOption("action", action.name, "a name that is free")
    _REGISTERED[action.name] = action


def action_names() -> tuple[str, ...]:
    """Return the names of all actions."""
    return tuple(_actions())


def find_action(name: str, table: str = "") -> Action:
    """Return the action with a name.

    Args:
        name: name of the action.
        table: name of the table, for the error.

    Raises:
        InvalidOption: the action does not exist; the message lists the existing actions.
    """
    actions = _actions()
    if name not in actions:
        raise InvalidOption("action", name, ", ".join(actions), table)
    return actions[name]


def all_actions() -> tuple[Action, ...]:
    """Return all actions."""
    return tuple(_actions().values())


def _actions() -> Mapping[str, Action]:
    # Imported here, since declarations import this module.
    built_in: Mapping[str, Action] = import_module("lsm_core.maintenance.actions.built_in").BUILT_IN
    return {**built_in, **_REGISTERED}


def record_plan(action: str) -> Callable[[Callable[P, MaintenancePlan]], Callable[P, MaintenancePlan]]:
    """Return a decorator for a planning function that records each call as a tracing span.

    The first argument of the planning function is the table (a TableStore).

    Args:
        action: name of the action.
    """

    def decorate(plan: Callable[P, MaintenancePlan]) -> Callable[P, MaintenancePlan]:
        @wraps(plan)
        def planned(*args: P.args, **kwargs: P.kwargs) -> MaintenancePlan:
            if not is_tracing():
                return plan(*args, **kwargs)
            store = args[0] if args else kwargs.get("store")
            with record_span("plan", table=getattr(store, "name", None), action=action) as span:
                made = plan(*args, **kwargs)
                span.set(**made.span_attributes())
            return made

        return planned

    return decorate


def plan_maintenance(
    store: TableStore, action: str, runner: Runner | None = None, /, **arguments: Any
) -> MaintenancePlan:
    """Check the arguments of an action and plan the action for a table.

    Args:
        store: the table.
        action: name of the action (:func:`action_names`).
        runner: executor for planning work that can run as tasks, None for this process.
        arguments: values of the action's arguments by name.

    Raises:
        InvalidOption: the action or an argument does not exist, or a required argument is missing. Errors of the
            action's planning pass through.
    """
    chosen = find_action(action, store.name)
    known = [argument.name for argument in chosen.arguments]
    for name in arguments:
        if name not in known:
            raise InvalidOption(f"{action} argument", name, ", ".join(known) or "none", store.name)
    for argument in chosen.arguments:
        if argument.required and arguments.get(argument.name) is None:
            raise InvalidOption(argument.name, None, argument.help, store.name)
    with record_span("plan", table=store.name, action=action) as span:
        plan = chosen.plan(store, **arguments, **({"runner": runner} if chosen.plans_with_tasks else {}))
        span.set(**plan.span_attributes())
    return plan


def bucket_name(partition_text: str, bucket: int) -> str:
    """Return the name of a bucket in plans, reports and ledgers: "dt=1/bucket-0".

    Args:
        partition_text: Paimon's path of the partition ("" when unpartitioned).
        bucket: number of the bucket.
    """
    return f"{partition_text}/bucket-{bucket}" if partition_text else f"bucket-{bucket}"


def size_text(size: int) -> str:
    """Return a size as text for people, for example ``52 KiB``.

    Args:
        size: number of bytes.
    """
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if value >= 10 or unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def facts_of(values: Mapping[str, object]) -> dict[str, Fact]:
    """Return values as JSON values; a value of a type that JSON lacks becomes text.

    Args:
        values: values by name.
    """
    return {
        name: value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
        for name, value in values.items()
    }
