"""What an action of maintenance is: its arguments, its plan as a value, what applying it answers, and the registry of all actions.

Nothing here imports Arrow or reads a table, so that the command line can list actions and their flags at once.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from lsm_core.errors import CorruptFile, DredgeError, InvalidOption, PlanStale, UnsupportedFeature
from lsm_core.json_reader import parse_json, time_of

if TYPE_CHECKING:
    from lsm_core.compact import BucketResult, BucketTask
    from lsm_core.metadata.store import TableStore

BUILT_IN: Final = (
    "compact",
    "expire_snapshots",
    "expire_changelogs",
    "orphans",
    "expire_partitions",
    "manifests",
    "trash",
    "restore",
    "rescale",
    "assign_buckets",
    "undo",
    "repair",
    "remove_unexisting_files",
    "remove_unexisting_manifests",
    "purge",
    "analyze",
    "delete_branch",
    "fast_forward",
    "create_tag",
    "delete_tag",
    "expire_tags",
    "rollback",
    "recover",
    "rollback_as_latest",
    "drop_partitions",
)
"""The registry: every name is a folder of `lsm_core/maintenance/actions` whose ``ACTION`` is that action."""

PLAN_VERSION: Final = 1
CODE_VERSION: Final = "dredge-0.1.0/plan-3"
"""Part of every hash: a plan is applied by the code that made it, or not at all."""

PLAN_PROPERTY: Final = "dredge.plan"
"""Snapshot property: hash of the plan whose application published it."""

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
Fact: TypeAlias = str | int | float | bool | None
_Item = TypeVar("_Item", bound="PlanItem")


class ArgumentKind(StrEnum):
    """What an argument of an action holds, and so how the command line reads it."""

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
    """One argument of :meth:`Action.plan`: a bool, int, list of int, str, list of column names, list of partitions, or epoch ms.

    ``flag``: how the command line calls it (default: ``--name``), ``aliases``: other flags that mean the same. An AGE is epoch ms in Python and an age such as "1 h" there; a TIME
    (epoch ms) is not offered there. ``required`` ones have no default; the action's own verb takes them without their flag.
    """

    name: str
    kind: ArgumentKind
    help: str
    flag: str = ""
    required: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The flag on the command line."""
        return self.flag or f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class PlanItem(ABC):
    """One thing that a plan does. ``item_kind`` names it in JSON; ``title`` and ``columns`` head the table that people see."""

    item_kind: ClassVar[str]
    title: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    @abstractmethod
    def cells(self) -> tuple[Any, ...]:
        """One row of the table under ``columns``: numbers and texts."""

    def to_object(self) -> dict[str, Any]:
        """Plain JSON values, bytes as hex digits, all of which the plan's hash covers; :meth:`from_object` reads them back."""
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(self).items()}

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Read back :meth:`to_object`: bytes from hex digits. Raises KeyError, TypeError or ValueError for anything else."""
        coded = {field.name for field in fields(cls) if field.type in (bytes, "bytes")}
        return cls(**{name: bytes.fromhex(part) if name in coded else part for name, part in value.items()})


@dataclass(frozen=True)
class PlannedFile:
    """A data file that a plan rewrites: apply requires it, on that level. ``size`` in bytes; ``deletes`` None = unknown."""

    name: str
    level: int
    size: int
    rows: int
    deletes: int | None = 0


@dataclass(frozen=True)
class RewriteItem(PlanItem):
    """An item that replaces files of one partition: ``inputs``, all of which apply requires.

    ``partition`` is the serialised BinaryRow of the manifest, ``partition_text`` Paimon's path of it ("" when unpartitioned).
    """

    partition: bytes
    partition_text: str
    inputs: tuple[PlannedFile, ...]

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Self:
        """Read back :meth:`to_object`: files from objects, tuples from lists, too. Raises KeyError, TypeError or ValueError."""
        read: dict[str, Any] = {n: tuple(part) if isinstance(part, list) else part for n, part in value.items()}
        read["inputs"] = tuple(PlannedFile(**file) for file in read["inputs"])
        return super().from_object(read)


@dataclass(frozen=True)
class Declined:
    """Something the plan leaves alone, and why: ``subject`` is a bucket ("dt=1/bucket-0"), a file or a snapshot.

    ``reason`` is a short code (`lsm_core.tree.DeclineReason`, "held", "stale", ...), ``text`` one sentence with its
    numbers ("4 sorted runs < 5"), ``facts`` the numbers alone.
    """

    subject: str
    reason: str
    text: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    partition_text: str = ""
    bucket: int | None = None


@dataclass(frozen=True)
class PlanEstimate:
    """What applying will cost: file bytes read and (at most) written, unmerged rows, files, tasks, seconds on one core."""

    bytes_in: int = 0
    bytes_out: int = 0
    bytes_freed: int = 0
    rows_in: int = 0
    files_in: int = 0
    tasks: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class MaintenancePlan:
    """A plan of one action for one table: made from metadata only, explained, hashed, applied exactly as it stands.

    ``base_snapshot`` None = the table is empty. ``options`` are the table options in force, ``arguments`` what the
    caller asked for, ``created_ms`` epoch ms by the table's clock. Items and reasons name moments, never ages, so that the same plan
    made again has the same hash.
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
    """Whether the plan was read from text, which anybody may have written: its hash shows only that it is whole."""

    @cached_property
    def hash(self) -> str:
        """Hex digest over all that a reader of the plan sees and that applying it acts on, but for the time at which it was made."""
        covered = self._object()
        del covered["created_ms"]
        text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @staticmethod
    def begun(
        action: str,
        store: TableStore,
        base_snapshot: int | None,
        arguments: Mapping[str, Fact],
        now_ms: int | None = None,
    ) -> MaintenancePlan:
        """A plan for the table of ``store``, with its options in force, made at ``now_ms`` (default: its clock's time), of nothing yet."""
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
        """The items of one type, in the plan's order."""
        return tuple(item for item in self.items if isinstance(item, kind))

    def to_json(self) -> str:
        """The whole plan, with its hash, as indented JSON."""
        return json.dumps({"version": PLAN_VERSION, "hash": self.hash, **self._object()}, indent=2, ensure_ascii=False)

    def _object(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "table": self.table,
            "base_snapshot": self.base_snapshot,
            "created_ms": self.created_ms,
            "code_version": self.code_version,
            "arguments": dict(self.arguments),
            "estimate": asdict(self.estimate),
            "items": [{"item": item.item_kind, **item.to_object()} for item in self.items],
            "declined": [asdict(item) for item in self.declined],
            "options": dict(self.options),
        }

    @staticmethod
    def from_json(text: str) -> MaintenancePlan:
        """Read a plan back.

        Raises CorruptFile when it is no plan, and PlanStale when its hash does not fit its content, or when it was written for an
        action, by a version of the code, or with items that are not known here.
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
                raise PlanStale(f"it was made by {value['code_version']}, this is {CODE_VERSION}; plan it anew", table)
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
    """That a plan was carried out: the snapshot that did it (None: the action makes none), when (epoch ms), and what tells of it."""

    snapshot_id: int | None
    time_ms: int
    told_by: str

    def text(self) -> str:
        """For people: ``already applied, snapshot 7``."""
        return f"already applied, {self.told_by if self.snapshot_id is None else f'snapshot {self.snapshot_id}'}"


@dataclass(frozen=True)
class Report(ABC):
    """What applying a plan did. ``seconds``: wall-clock time of the whole call; ``run_id``: its entry in the ledger, "" where it has none.

    ``applied_before``: nothing was done now, because somebody else (also at the same time) or an earlier call had applied the same
    plan. ``left_alone``: the fields that list what was left alone, with the title that people see; ``undone``: what :attr:`failures` are.
    """

    left_alone: ClassVar[Mapping[str, str]] = {"declined": "left alone"}
    undone: ClassVar[str] = "files could not be deleted"
    seconds: float = field(default=0.0, kw_only=True)
    applied_before: Applied | None = field(default=None, kw_only=True)
    run_id: str = field(default="", kw_only=True)

    @property
    def changed(self) -> bool:
        """Whether anything was done to the table: reports of actions that commit no snapshot say it in their own way."""
        return self.published is not None

    @property
    def worth_telling(self) -> bool:
        """Whether the ledger keeps the run."""
        return self.changed

    @property
    def published(self) -> int | None:
        """The snapshot that was committed (the field ``snapshot_id``); None where the action commits none or did nothing."""
        number: int | None = getattr(self, "snapshot_id", None)
        return number

    @property
    def failures(self) -> Sequence[Declined]:
        """What could not be done though nothing forbade it (the field ``failed``): the command line tells it, and fails."""
        found: Sequence[Declined] = getattr(self, "failed", ())
        return found

    @abstractmethod
    def lines(self, table: str) -> list[str]:
        """What was done, in a line or a few for people; ``table`` is its name."""

    def to_object(self) -> dict[str, Any]:
        """The report as plain values (for JSON, ledgers and Dagster metadata)."""
        return asdict(self)

    def numbers(self) -> dict[str, Any]:
        """As :meth:`to_object` without the lists of what was left alone: what the ledger keeps."""
        return {name: value for name, value in self.to_object().items() if name not in self.left_alone}

    def declined_lists(self) -> dict[str, Sequence[Declined]]:
        """What was left alone, by title."""
        return {title: getattr(self, name) for name, title in self.left_alone.items()}


@dataclass(frozen=True)
class Outcome:
    """What :meth:`Action.apply` answers: the report, and the ledger's lines (one mapping a bucket, file or snapshot)."""

    report: Report
    lines: Sequence[Mapping[str, Any]] = ()


class Runner(Protocol):
    """Executes the compaction tasks of a plan, here or elsewhere (Spark), and gives their results as they come."""

    def __call__(self, store: TableStore, tasks: Sequence[BucketTask], /) -> Iterable[BucketResult]:
        """Results in any order, also of tasks that failed (`BucketResult.error`). What is raised ends the plan: results given before are deleted by the caller."""
        ...


@runtime_checkable
class TaskRunner(Runner, Protocol):
    """A runner that also does other work in parts, elsewhere and several at once."""

    def slots(self) -> int:
        """How many parts run at once. Asked only when there are parts to run, as a runner may have to start something to know."""
        ...

    def run_parts(self, what: str, work: Callable[[bytes], bytes], parts: Sequence[bytes]) -> list[bytes]:
        """The answers of ``work`` to ``parts``, in their order. It is importable there, and may be asked the same twice (a part is run again when
        its worker dies). Raises the error of the first part that failed, once all have ended; SparkFailed naming ``what``.
        """
        ...


class Action(ABC):
    """One kind of maintenance. ``verb``: its own verb on the command line, "" for none; ``commits``: applying it makes a snapshot;
    ``runs_tasks``: its work can be done by tasks, so that :meth:`apply` makes use of a runner; ``plans_with_tasks``: so does :meth:`plan`,
    which then takes it as the argument ``runner``.
    """

    name: ClassVar[str]
    verb: ClassVar[str] = ""
    help: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    commits: ClassVar[bool] = False
    runs_tasks: ClassVar[bool] = False
    plans_with_tasks: ClassVar[bool] = False
    one_of: ClassVar[tuple[str, ...]] = ()
    """Names of arguments of which exactly one must be given."""

    @abstractmethod
    def item_types(self) -> tuple[type[PlanItem], ...]:
        """The types of items in its plans, in the order in which people see them."""

    @abstractmethod
    def plan(self, store: TableStore, **arguments: Any) -> MaintenancePlan:
        """Plan from metadata only; ``arguments`` as declared. Raises InvalidOption and the like, and changes nothing."""

    @abstractmethod
    def apply(self, store: TableStore, plan: MaintenancePlan, runner: Runner | None = None) -> Outcome:
        """Carry ``plan`` out. ``runner`` executes compaction tasks (None: this process does). Raises PlanStale and the like."""

    def plan_again(self, store: TableStore, plan: MaintenancePlan) -> MaintenancePlan:
        """Plan with the arguments and at the time of ``plan``, but never at a time to come. Raises what :meth:`plan` raises."""
        declared = {argument.name for argument in self.arguments}
        arguments = {key: value for key, value in plan.arguments.items() if key in declared and value is not None}
        if "now_ms" in declared:
            arguments["now_ms"] = min(plan.created_ms, store.clock.now_ms())
        return self.plan(store, **arguments)

    def parts(self, plan: MaintenancePlan) -> tuple[MaintenancePlan, ...]:
        """The plans that ``plan`` is carried out as, one after the other, each with a run of its own in the ledger: the plan itself for most."""
        return (plan,)

    def report_of_parts(
        self, plan: MaintenancePlan, outcomes: Sequence[tuple[MaintenancePlan, Report | DredgeError]]
    ) -> Report:
        """One report of all :meth:`parts` of ``plan``, at least one of which was carried out: of a plan that is its only part, that part's."""
        ((_, told),) = outcomes
        if isinstance(told, DredgeError):
            raise told
        return told

    @abstractmethod
    def unchanged(self, plan: MaintenancePlan) -> Report:
        """The report when nothing was done, because the plan turned out to be applied already."""

    def remarks(self, plan: MaintenancePlan) -> list[str]:
        """Lines for people below the items of ``plan``."""
        return []

    def dry_run(self, plan: MaintenancePlan) -> Report:
        """What applying ``plan`` would report; nothing is read or changed. Raises UnsupportedFeature where only applying tells."""
        raise UnsupportedFeature(
            f"a report of {self.name} before it is applied; its plan says what it would do", plan.table
        )

    def fits(self, store: TableStore, plan: MaintenancePlan) -> bool:
        """Whether applying ``plan`` could still do anything: an old saved plan is kept as long as it could. True where only applying tells."""
        return True

    def trace(self, store: TableStore, plan: MaintenancePlan) -> Applied | None:
        """What an application of ``plan`` left in the table besides snapshots and ledger; None where there is nothing."""
        return None


_REGISTERED: Final[dict[str, Action]] = {}


def register(action: Action) -> None:
    """Make an action of another package known to facade, command line and platform. Raises InvalidOption for a name that is taken."""
    if action.name in action_names():
        raise InvalidOption("action", action.name, "a name that is free")
    _REGISTERED[action.name] = action


def action_names() -> tuple[str, ...]:
    """The names of all actions."""
    return (*BUILT_IN, *(name for name in _REGISTERED if name not in BUILT_IN))


def find_action(name: str, table: str = "") -> Action:
    """The action called ``name``. Raises InvalidOption naming those that exist."""
    if name in BUILT_IN:
        found: Action = import_module(f"lsm_core.maintenance.actions.{name}").ACTION
        return found
    if name not in _REGISTERED:
        raise InvalidOption("action", name, ", ".join(action_names()), table)
    return _REGISTERED[name]


def all_actions() -> tuple[Action, ...]:
    """All actions."""
    return tuple(find_action(name) for name in action_names())


def plan_maintenance(
    store: TableStore, action: str, runner: Runner | None = None, /, **arguments: Any
) -> MaintenancePlan:
    """Plan ``action`` (:func:`action_names`) with its arguments. ``runner``: who does the work of planning that tasks can do (None: this process).

    Raises InvalidOption naming an action or an argument that does not exist or is missing, and what the action's planning raises.
    """
    chosen = find_action(action, store.name)
    known = [argument.name for argument in chosen.arguments]
    for name in arguments:
        if name not in known:
            raise InvalidOption(f"{action} argument", name, ", ".join(known) or "none", store.name)
    for argument in chosen.arguments:
        if argument.required and arguments.get(argument.name) is None:
            raise InvalidOption(argument.name, None, argument.help, store.name)
    return chosen.plan(store, **arguments, **({"runner": runner} if chosen.plans_with_tasks else {}))


def bucket_name(partition_text: str, bucket: int) -> str:
    """How plans, reports and ledgers name a bucket: "dt=1/bucket-0"."""
    return f"{partition_text}/bucket-{bucket}" if partition_text else f"bucket-{bucket}"


def size_text(size: int) -> str:
    """Bytes for people: ``52 KiB``."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if value >= 10 or unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def facts_of(values: Mapping[str, object]) -> dict[str, Fact]:
    """Facts as JSON can hold them: anything that is no plain value becomes its text."""
    return {
        name: value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
        for name, value in values.items()
    }
