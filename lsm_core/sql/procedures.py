"""Paimon's maintenance procedures (`CALL sys.name(...)`), with Paimon's names and defaults, as plans of actions.

`PROCEDURES` lists all procedures. A call is bound (arguments checked and converted), prepared (as steps on one table
each), and applied step by step. A step is the plan of an action (`plan_maintenance`) or one of the few operations
without a plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lsm_core.clock import written_span
from lsm_core.errors import DredgeError, InvalidOption, SnapshotNotFound, UnsupportedFeature
from lsm_core.maintenance.action import MaintenancePlan, Report, Runner, plan_maintenance
from lsm_core.maintenance.actions.copy_table import target_exists
from lsm_core.maintenance.apply import apply_plan
from lsm_core.maintenance.combined import MODES
from lsm_core.maintenance.observe import health
from lsm_core.maintenance.table_ranking import score_of
from lsm_core.metadata import consumers, snapshots, tags
from lsm_core.metadata.branches import branch_name
from lsm_core.options import duration, parse_digits
from lsm_core.read.partition_choice import chosen_partitions, typed_partitions, without_null_name
from lsm_core.read.sql_text import Literal
from lsm_core.read.table_versions import millis
from lsm_core.sql.call_statement import CallStatement, parse_call
from lsm_core.storage import file_io_for
from lsm_core.table import Catalog
from lsm_core.table.names import SYSTEM_DATABASE, TableName
from lsm_core.table.schema_change import SchemaChange
from lsm_core.table.validation import check_manifest_sort

if TYPE_CHECKING:
    from lsm_core.table import Table

_COMMIT_EVERY: Final = "commit_every"
_SIMILAR: Final = 0.6
"""Smallest similarity (0 to 1) of the names that an error proposes."""
_MOST_REASONS: Final = 5
"""Largest number of printed reasons of a step without work."""
_MOST_BUCKETS: Final = 1_000_000
"""Largest number of buckets in one range."""
_PAIR: Final = r"[\w.$-]+\s*=[^=<>]*"
_PLAIN_PAIR: Final = r"""[\w.$-]+\s*=[^=<>'"]*"""
_FORMS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(form, re.IGNORECASE | re.DOTALL)
    for name, form in {
        "partitions": rf"{_PLAIN_PAIR}([,;/]{_PLAIN_PAIR})*",
        "compact_strategy": "full|minor",
        "order_strategy": "none|order|zorder|hilbert",
        "order_by": "[^=<>]+",
        "options": rf"{_PAIR}(,{_PAIR})*",
        "where": r".*([=<>]|\b(in|is|like|between)\b).*",
        "mode": "|".join(MODES),
        "tag": ".*",
        "snapshot_id": r"\d+",
        "retain_max": r"\d+",
        "delete_all": "true|false",
        "scan_parallelism": r"\d+",
        "expire_strategy": "values-time|update-time|custom",
        "timestamp_pattern": r".*\$.*",
    }.items()
}
"""Forms of the values of parameters whose position differs between Spark and Flink."""
_LITERAL_TYPES: Final[Mapping[str, type]] = {"tag": str, "snapshot_id": int}
"""Types of literals of parameters that share a position: '10' in quotes is a tag, 10 is a snapshot."""
_WIDE_FORMS: Final = frozenset({"where", "order_by"})
"""Parameters whose form fits so many texts that it decides nothing between two orders."""


class ParameterKind(StrEnum):
    """Kind of literal that a parameter accepts; the value of a member describes the kind in error messages."""

    TEXT = "a text"
    NUMBER = "a whole number"
    FLAG = "true or false"
    NAMES = "names with commas between"
    NUMBERS = "whole numbers or ranges with commas between, such as '0-3,7'"
    PARTITIONS = "partitions such as 'dt=2024-01-01,h=3;dt=2024-01-02,h=4'"
    OPTIONS = "options such as 'key=value,other=value', or a map"
    TIME = "a time such as '2024-01-31 12:00:00', or epoch ms"
    AGE = "a time span such as '7 d'"
    PATTERN = "a regular expression"
    VALUE = "a literal, or null"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a procedure.

    Attributes:
        name: name in Paimon's documentation.
        kind: accepted kind of literal.
        required: whether a call must pass the parameter.
        ignored: whether the parameter is accepted for existing runbooks but has no effect in Dredge.
        aliases: further names of the parameter, in Flink's or Spark's documentation.
    """

    name: str
    kind: ParameterKind = ParameterKind.TEXT
    required: bool = False
    ignored: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedStep:
    """A maintenance action on one table, with the arguments of its plan.

    Attributes:
        table: the table.
        action: name of the action.
        arguments: arguments of the plan by name.
        fatal: reasons of declined parts for which the call fails if the plan has no work, because the next statement of
            a script relies on the change.
    """

    table: Table
    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fatal: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.table.name

    def plan(self, runner: Runner | None = None) -> MaintenancePlan:
        """Plan the action on the current snapshot.

        Args:
            runner: runs the tasks of planning on many machines; None for this process.

        Raises:
            DredgeError: an error of the action's planning.
            UnsupportedFeature: the plan has no work, and a part was declined for a reason of `fatal`.
        """
        plan = plan_maintenance(self.table.store, self.action, runner, **self.arguments)
        refused = [item for item in plan.declined if item.reason in self.fatal]
        if refused and not plan.items:
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            raise UnsupportedFeature(f"{self.action}: {refused[0].subject}: {refused[0].text}{more}", self.name)
        return plan


@dataclass(frozen=True)
class DirectStep:
    """Step of a procedure that changes a table without a maintenance plan.

    Attributes:
        table: the table, or its name if it cannot be opened yet.
        description: the change, for people.
        act: applies the change.
    """

    table: Table | str
    description: str
    act: Callable[[], object]

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.table if isinstance(self.table, str) else self.table.name


Step: TypeAlias = PlannedStep | DirectStep
Arguments: TypeAlias = Mapping[str, Any]
Prepare: TypeAlias = Callable[["Table", Arguments], Iterator[Step]]


@dataclass(frozen=True)
class Procedure:
    """A procedure: Paimon's name, its parameters in Paimon's order, and the function that returns the steps of a call.

    Attributes:
        name: name without `sys`.
        parameters: parameters in Paimon's order.
        prepare: function that returns the steps for one table, opened with the dynamic options of the call.
        on_catalog: for procedures over several tables, the function that returns the steps in place of ``prepare``;
            None for procedures on one table.
        options: keys in the argument `options` of the call that are settings of the procedure, not table options.
        orders: other accepted orders of positional arguments, each as names of parameters; for example Flink's.
        repeats: whether surplus positional arguments are appended to the last parameter, separated by semicolons.
    """

    name: str
    parameters: tuple[Parameter, ...]
    prepare: Prepare | None = None
    on_catalog: Callable[[Catalog, Arguments], Iterator[Step]] | None = None
    options: tuple[Parameter, ...] = ()
    orders: tuple[tuple[str, ...], ...] = ()
    repeats: bool = False

    @property
    def form(self) -> str:
        """Signature for messages: `sys.create_tag(table, tag, [snapshot], [time_retained])`."""
        shown = (parameter.name if parameter.required else f"[{parameter.name}]" for parameter in self.parameters)
        return f"sys.{self.name}({', '.join(shown)})"

    def steps(self, catalog: Catalog, arguments: Arguments) -> Iterator[Step]:
        """Yield the steps of a call with ``arguments``, table by table.

        Raises:
            DredgeError: a table cannot be opened, for example TableNotFound; or an argument is invalid (InvalidOption).
        """
        if self.on_catalog is not None:
            yield from self.on_catalog(catalog, arguments)
            return
        assert self.prepare is not None
        options, own = self.own_options(arguments.get("options") or {})
        yield from self.prepare(_open(catalog, arguments["table"], options), {**arguments, **own})

    def own_options(self, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
        """Split ``options`` into (options of the table as texts, converted options of the procedure).

        Raises:
            InvalidOption: an option of the procedure has an invalid value.
        """
        plain = {parameter.name.replace("_", "-"): parameter for parameter in self.options}
        others, own = dict[str, str](), dict[str, Any]()
        for name, value in options.items():
            parameter = plain.get(name.replace("_", "-"))
            if parameter is None:
                others[name] = value
            else:
                own[parameter.name] = _convert(parameter, value)
        return others, own


@dataclass(frozen=True)
class StepResult:
    """Result of one step.

    Attributes:
        table: name of the table.
        description: description of the step for people.
        plan: plan of the step, or None if the step has no plan.
        report: report of the applied plan; None if nothing was applied or the step has no plan.
        error: error of the step, or None.
    """

    table: str
    description: str
    plan: MaintenancePlan | None = None
    report: Report | None = None
    error: DredgeError | None = None

    @property
    def lines(self) -> list[str]:
        """Lines of text for people: the error, the report, or for a planned step its description.

        If a plan has no work, the reasons follow.
        """
        if self.error is not None:
            return [f"{self.table}: {self.error}"]
        lines = [self.description] if self.report is None else self.report.lines(self.table)
        if self.plan is None or self.plan.items:
            return lines
        printed = "\n".join(lines)
        reasons = [
            item.text if item.text.startswith(item.subject) else f"{item.subject}: {item.text}"
            for item in self.plan.declined
            if item.text not in printed
        ]
        more = [f"and {len(reasons) - _MOST_REASONS} more"] if len(reasons) > _MOST_REASONS else []
        return [*lines, *reasons[:_MOST_REASONS], *more]


@dataclass(frozen=True)
class CallResult:
    """Result of a call.

    Attributes:
        procedure: name of the procedure.
        steps: results of the steps, in order.
        applied: False if the call was only planned (`dry_run`, `dredge sql` without --apply).
    """

    procedure: str
    steps: tuple[StepResult, ...]
    applied: bool

    @property
    def reports(self) -> tuple[Report, ...]:
        """Reports of the applied plans."""
        return tuple(step.report for step in self.steps if step.report is not None)

    @property
    def plans(self) -> tuple[MaintenancePlan, ...]:
        """Plans of the steps, applied or not."""
        return tuple(step.plan for step in self.steps if step.plan is not None)

    @property
    def lines(self) -> list[str]:
        """Results of all steps as lines of text for people, or "nothing to do"."""
        return [line for step in self.steps for line in step.lines] or ["nothing to do"]


@dataclass(frozen=True)
class PreparedCall:
    """A call with checked arguments: :meth:`plan` previews it, :meth:`apply` executes it.

    Attributes:
        procedure: the called procedure.
        catalog: catalog with the tables.
        arguments: typed arguments by parameter name.
    """

    procedure: Procedure
    catalog: Catalog
    arguments: Arguments

    @property
    def dry_run(self) -> bool:
        """Whether the call itself requests a plan only."""
        return bool(self.arguments.get("dry_run"))

    def plan(self, runner: Runner | None = None) -> CallResult:
        """Return the plans of the call; nothing is changed.

        Args:
            runner: runs the tasks of planning on many machines; None for this process.

        Raises:
            DredgeError: an error of opening the tables or of planning.
        """
        return CallResult(self.procedure.name, tuple(_plan_step(step, runner) for step in self._steps()), applied=False)

    def apply(self, runner: Runner | None = None, approved_by: str | None = None) -> CallResult:
        """Plan and apply the steps of the call one after another; if the argument `dry_run` is true, only plan them.

        Args:
            runner: runs the tasks of the plans; None for threads of this process.
            approved_by: approver for the ledger, or None.

        Raises:
            DredgeError: a step failed. An only step raises its own error. With several steps, all steps are executed
                first, and the message names all failures.
        """
        if self.dry_run:
            return self.plan(runner)
        steps = list(self._steps())
        results = [_apply_step(step, runner, approved_by, alone=len(steps) == 1) for step in steps]
        failed = [step for step in results if step.error is not None]
        if failed:
            failures = "; ".join(f"{step.table}: {step.error}" for step in failed)
            raise DredgeError(f"sys.{self.procedure.name}: {len(failed)} of {len(results)} steps failed: {failures}")
        return CallResult(self.procedure.name, tuple(results), applied=True)

    def _steps(self) -> Iterator[Step]:
        return self.procedure.steps(self.catalog, self.arguments)


def _plan_step(step: Step, runner: Runner | None) -> StepResult:
    if isinstance(step, DirectStep):
        return StepResult(step.name, f"would {step.description}")
    plan = step.plan(runner)
    return StepResult(step.name, f"would {step.action} {step.name}: plan {plan.hash}, {len(plan.items)} items", plan)


def _apply_step(step: Step, runner: Runner | None, approved_by: str | None, *, alone: bool) -> StepResult:
    try:
        if isinstance(step, DirectStep):
            step.act()
            return StepResult(step.name, f"done: {step.description}")
        plan = step.plan(runner)
        report = apply_plan(step.table.store, plan, runner, approved_by)
    except DredgeError as error:
        if alone:
            raise
        return StepResult(step.name, "failed", error=error)
    return StepResult(step.name, f"{step.action} {step.name}", plan, report)


def prepare_call(catalog: Catalog, statement: str | CallStatement) -> PreparedCall:
    """Check a statement against `PROCEDURES`; no table is opened yet.

    Raises:
        InvalidOption: the text is not a CALL, the procedure is unknown (the message names similar procedures, or lists
            all), or an argument is unknown, missing or invalid.
        UnsupportedFeature: Paimon has the procedure, but Dredge does not offer it; the message says what to do instead.
    """
    call = parse_call(statement) if isinstance(statement, str) else statement
    procedure = PROCEDURES.get(call.procedure)
    if procedure is None:
        if call.procedure in NOT_OFFERED:
            raise UnsupportedFeature(f"the procedure sys.{call.procedure}: {NOT_OFFERED[call.procedure]}")
        similar = get_close_matches(call.procedure, (*PROCEDURES, *NOT_OFFERED), 3, _SIMILAR)
        known = f"perhaps {' or '.join(f'sys.{name}' for name in similar)}" if similar else ", ".join(PROCEDURES)
        raise InvalidOption("CALL", f"sys.{call.procedure}", known if similar else f"one of {known}")
    return PreparedCall(procedure, catalog, _bind_arguments(procedure, call))


# -- arguments ---------------------------------------------------------------------------------------------------------


def _bind_arguments(procedure: Procedure, call: CallStatement) -> dict[str, Any]:
    """Return the typed arguments by parameter name; null and blank texts count as missing, as in Paimon.

    For parameters of the kind VALUE, they are values.
    """
    names = {
        _plain(name): parameter.name
        for parameter in procedure.parameters
        for name in (parameter.name, *parameter.aliases)
    }
    literals = _name_positional(procedure, call.positional)
    for name, value in call.named.items():
        parameter_name = names.get(_plain(name))
        if parameter_name is None:
            raise InvalidOption(name, value, f"arguments of {procedure.form}")
        if parameter_name in literals:
            raise InvalidOption(name, value, f"one value for the argument {parameter_name} of {procedure.form}")
        literals[parameter_name] = value
    bound: dict[str, Any] = {}
    for parameter in procedure.parameters:
        value = literals.get(parameter.name)
        takes_blank = parameter.kind is ParameterKind.VALUE and parameter.name in literals
        if _is_missing(value) and not takes_blank:
            if parameter.required:
                raise InvalidOption(parameter.name, value, f"{parameter.kind}: {procedure.form} requires it")
            continue
        bound[parameter.name] = _convert(parameter, value)
    return bound


def _is_missing(value: Literal) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _name_positional(procedure: Procedure, values: Sequence[Literal]) -> dict[str, Literal]:
    """Return positional arguments by parameter name.

    Spark and Flink document different orders of parameters for some procedures. An order fits if every value matches
    the pattern of its parameter (`_FORMS`; many parameters have none). Among several orders that fit, the order with
    the most matched patterns is used.

    Raises:
        InvalidOption: there are more values than parameters, or the values fit two orders with different meanings.
    """
    orders = (tuple(parameter.name for parameter in procedure.parameters), *procedure.orders)
    if procedure.repeats and len(values) > len(orders[0]):
        head, rest = values[: len(orders[0]) - 1], values[len(orders[0]) - 1 :]
        if any(not isinstance(value, str) for value in rest):
            raise InvalidOption(orders[0][-1], list(rest), f"texts: {procedure.form}")
        values = (*head, ";".join(map(str, rest)))
    named = [dict(zip(order, values, strict=False)) for order in orders if len(values) <= len(order)]
    if not named:
        raise InvalidOption("CALL", f"{len(values)} arguments", procedure.form)
    matches = [{name: _fits(name, value) for name, value in arguments.items()} for arguments in named]
    fitting = [
        (sum(match is True for name, match in forms.items() if name not in _WIDE_FORMS), arguments)
        for forms, arguments in zip(matches, named, strict=True)
        if False not in forms.values()
    ]
    if not fitting:
        return named[0]  # its conversion raises the error that names the argument
    most = max(count for count, _ in fitting)
    best = [arguments for count, arguments in fitting if count == most]
    meanings = [{name: value for name, value in arguments.items() if not _is_missing(value)} for arguments in best]
    if any(meaning != meanings[0] for meaning in meanings[1:]):
        both = " and ".join(f"({', '.join(arguments)})" for arguments in best)
        raise InvalidOption("CALL", list(values), f"arguments by name: these values fit the orders {both}")
    return best[0]


def _fits(name: str, value: Literal) -> bool | None:
    """Return whether a literal matches the pattern of a parameter (`_FORMS`).

    Returns:
        None if the parameter has no pattern, or if the literal is null or blank.
    """
    form = _FORMS.get(name)
    if form is None or _is_missing(value):
        return None
    if name in _LITERAL_TYPES and not isinstance(value, _LITERAL_TYPES[name]):
        return False
    return not isinstance(value, tuple | Mapping) and form.fullmatch(str(value).strip()) is not None


def _plain(name: str) -> str:
    """Return a name in lower case without underscores: Spark's procedures use `consumerId`, Flink's `consumer_id`."""
    return name.lower().replace("_", "")


def _convert(parameter: Parameter, value: Literal) -> Any:
    """Convert a literal to the kind of a parameter. Raises InvalidOption with the name of the parameter."""
    try:
        return _READERS[parameter.kind](value)
    except InvalidOption as error:
        raise InvalidOption(parameter.name, value, error.accepted) from error
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise InvalidOption(parameter.name, value, str(parameter.kind)) from error


def _text(value: Literal) -> str:
    if isinstance(value, bool | tuple | Mapping) or value is None:
        raise TypeError(value)
    return str(value)


def _value(value: Literal) -> str | None:
    """Return the text of a literal as the schema stores it, or None for null."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else _text(value)


def _number_of(value: Literal) -> int:
    number = value if isinstance(value, int) else parse_digits(_text(value).strip())
    if number is None or isinstance(number, bool):
        raise TypeError(value)
    return number


def _flag(value: Literal) -> bool:
    return value if isinstance(value, bool) else {"true": True, "false": False}[_text(value).strip().lower()]


def _time(value: Literal) -> int:
    text = _text(value).strip()
    number = parse_digits(text)
    return millis("", "", text) if number is None else number


def _names(value: Literal, sign: str = ",") -> list[str]:
    return [part.strip() for part in _text(value).split(sign) if part.strip()]


def _range(text: str) -> range:
    """Parse "7", or the range "0-3" with both bounds. Raises TypeError or ValueError."""
    first, sign, last = (part.strip() for part in text.partition("-"))
    low = _number_of(first)
    high = _number_of(last) if sign else low
    if not 0 <= high - low < _MOST_BUCKETS:
        raise ValueError(text)
    return range(low, high + 1)


def _options(value: Literal) -> dict[str, str]:
    return {key: _text(item) for key, item in value.items()} if isinstance(value, Mapping) else _pairs(_text(value))


_READERS: Final[Mapping[ParameterKind, Callable[[Literal], Any]]] = {
    ParameterKind.TEXT: _text,
    ParameterKind.NUMBER: _number_of,
    ParameterKind.FLAG: _flag,
    ParameterKind.NAMES: _names,
    ParameterKind.NUMBERS: lambda value: [number for part in _names(value) for number in _range(part)],
    ParameterKind.PARTITIONS: lambda value: [_partition(part.replace("/", ",")) for part in _names(value, ";")],
    ParameterKind.OPTIONS: _options,
    ParameterKind.TIME: _time,
    ParameterKind.AGE: lambda value: duration(_text(value)),
    ParameterKind.PATTERN: lambda value: re.compile(_text(value)),
    ParameterKind.VALUE: _value,
}


def _pairs(text: str) -> dict[str, str]:
    """Parse "k=v,l=w" as a mapping. Raises ValueError."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not pairs or any(not sign or not key.strip() for key, sign, _ in pairs):
        raise ValueError(text)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _partition(text: str) -> dict[str, str]:
    """Parse a partition such as "dt=2026-01-01,hour=5" as a mapping of key to value.

    Raises:
        ValueError: a key occurs twice, or a part between commas has no key. This also refuses a value with a comma,
            which would select the wrong partition.
    """
    values = _pairs(text)
    if len(values) != text.count(",") + 1:
        raise ValueError(text)
    return values


def _open(catalog: Catalog, name: str, options: Mapping[str, str] | None) -> Table:
    """Open a table or branch with dynamic options.

    Raises:
        TableNotFound: the table does not exist.
        UnsupportedFeature: the name is that of a system table.
        InvalidOption: an option is invalid.
    """
    name = name.replace("`", "")
    parsed = TableName.parse(name)
    if parsed.system or parsed.database == SYSTEM_DATABASE:
        raise UnsupportedFeature("a procedure on a system table; name the table alone", name)
    table = catalog.table(name)
    return table.copy(dict(options)) if options else table


# -- steps -------------------------------------------------------------------------------------------------------------


def _of_action(action: str, **arguments: str) -> Prepare:
    """Return a function that yields one step per call: plan and apply ``action`` on the table.

    ``arguments`` maps each argument of the action's plan to the parameter of the procedure that supplies its value.
    """

    def prepare(table: Table, values: Arguments) -> Iterator[Step]:
        yield PlannedStep(table, action, {key: values[name] for key, name in arguments.items() if name in values})

    return prepare


def _of_each(action: str, argument: str, listed: str) -> Prepare:
    """Return a function that yields a step per name in a list: plan and apply ``action`` with the name.

    Args:
        action: name of the action.
        argument: argument of the action's plan that gets the name.
        listed: parameter of the procedure that has the list of names.
    """

    def prepare(table: Table, values: Arguments) -> Iterator[Step]:
        for name in values[listed]:
            yield PlannedStep(table, action, {argument: name})

    return prepare


def _compact(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: compact the table.

    The compaction is full by default, as in Paimon's batch jobs, but minor with incremental clustering. With
    `order_strategy` the rows are sorted by `order_by` or, without `order_by`, by the table's `clustering.columns`.
    """
    default = "minor" if table.store.options.clusters_incrementally else "full"
    strategy, order = values.get("compact_strategy", default).lower(), values.get("order_strategy", "none").lower()
    if strategy not in ("full", "minor"):
        raise InvalidOption("compact_strategy", strategy, "full, minor", table.name)
    if order not in ("none", "order", "zorder", "hilbert"):
        raise InvalidOption("order_strategy", order, "none, order, zorder, hilbert", table.name)
    if order == "none" and "order_by" in values:
        raise InvalidOption(
            "order_by", values["order_by"], "columns only together with an order_strategy that sorts", table.name
        )
    idle = values.get("partition_idle_time")
    if order != "none" and idle is not None:
        raise InvalidOption(
            "partition_idle_time",
            written_span(idle),
            "no idle time together with an order_strategy that sorts",
            table.name,
        )
    arguments = {
        "partitions": chosen_partitions(table.store, values),
        "buckets": values.get("buckets"),
        "partition_idle_time": idle,
        **(
            {"full": strategy == "full"} if order == "none" else {"order_by": values.get("order_by"), "strategy": order}
        ),
        **({"commit_every": values[_COMMIT_EVERY]} if _COMMIT_EVERY in values else {}),
    }
    yield PlannedStep(table, "compact", arguments)


def _compact_manifest(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: merge the manifests, with the options `manifest-sort.*` that the arguments define."""
    texts = {
        f"manifest-sort.{name.replace('_', '-')}": str(values[f"manifest_sort_{name}"])
        for name in ("enabled", "partition_field", "max_rewrite_size")
        if f"manifest_sort_{name}" in values
    }
    table = table.copy({key: value.lower() if key.endswith(".enabled") else value for key, value in texts.items()})
    check_manifest_sort(table.store.schema, table.store.options, table.name)
    yield PlannedStep(table, "manifests")


def _compact_database(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield a step per table that the patterns select: compact the table.

    `including_databases` must match the whole name of the database, `including_tables` the whole name "db.table".
    Tables whose name "db.table" matches `excluding_tables` get no step. With `mode` "divided" (the default) the steps
    are ordered by name of the table, with "combined" by compaction score, the highest first.

    Source: Flink's `CompactDatabaseAction`.
    """
    mode = values.get("mode", MODES[0]).lower()
    if mode not in MODES:
        raise InvalidOption("mode", mode, ", ".join(MODES))
    if "options" in values and "table_options" in values:
        raise InvalidOption(
            "table_options", values["table_options"], "only one of options and table_options, which mean the same"
        )
    options, own = PROCEDURES["compact"].own_options(values.get("options") or values.get("table_options") or {})
    own = {**own, **{name: values[name] for name in ("partition_idle_time", "compact_strategy") if name in values}}
    every, none = re.compile(".*"), re.compile("(?!)")
    names = [
        f"{database}.{name}"
        for database in catalog.list_databases()
        if values.get("including_databases", every).fullmatch(database)
        for name in catalog.list_tables(database)
    ]
    included, excluded = values.get("including_tables", every), values.get("excluding_tables", none)
    selected = [name for name in names if included.fullmatch(name) and not excluded.fullmatch(name)]
    for name in selected if mode == MODES[0] else sorted(selected, key=partial(_need_of, catalog), reverse=True):
        yield from _compact(_open(catalog, name, options), own)


def _need_of(catalog: Catalog, name: str) -> float:
    """Return the compaction score of a table (0 to 100), or 0 if the table cannot be read.

    The step of the table then reports the error.
    """
    try:
        score, _ = score_of(health(catalog.table(name).store))
    except DredgeError:
        return 0.0
    return score


def _orphans(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield a step per named table: remove its orphan files. The name `db.*` means all tables of a database."""
    arguments = {"older_than_ms": values["older_than"]} if "older_than" in values else {}
    for table in _tables_named(catalog, values["table"]):
        yield PlannedStep(_open(catalog, table, None), "orphans", arguments)


def _missing_files(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield a step per named table: remove missing data files from its metadata.

    The name `db.*` means all tables of a database.
    """
    for table in _tables_named(catalog, values["table"]):
        yield PlannedStep(_open(catalog, table, None), "remove_unexisting_files")


def _tables_named(catalog: Catalog, text: str) -> list[str]:
    """Return the names of the tables that ``text`` means: one table for "db.table", all of a database for "db.*"."""
    name = text.replace("`", "")
    database = name.removesuffix(".*")
    return [name] if database == name else [f"{database}.{table}" for table in catalog.list_tables(database)]


def _repair(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield a step per table: repair its metadata.

    The call names tables or databases, separated by commas. A name without a dot is a database and means all its
    tables. Without names, all tables of all databases are repaired. A named table that a JDBC catalog does not list
    is entered in its list, as in Paimon.
    """
    selected = values.get("database_or_table")
    for name in catalog.list_databases() if selected is None else _names(selected.replace("`", "")):
        names = [name] if "." in name else [f"{name}.{table}" for table in catalog.list_tables(name)]
        for table in names:
            if "." in name and catalog.register_table(table, dry_run=True):
                yield DirectStep(table, f"enter {table} in the catalog's list", partial(catalog.register_table, table))
            else:
                yield PlannedStep(_open(catalog, table, None), "repair")


def _repair_earliest(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: point the hint EARLIEST at the snapshot `snapshot_id`.

    Raises:
        SnapshotNotFound: the table has no snapshot, or one is missing between the named and the newest snapshot.

    Source: ``SnapshotManager.repairEarliestSnapshot``.
    """
    number, ids = values["snapshot_id"], snapshots.list_ids(table.store)
    missing = sorted(set(range(number, ids[-1] + 1 if ids else number + 1)).difference(ids)) if ids else [number]
    if missing or number > ids[-1]:
        held = f"its snapshots are {ids[0]} to {ids[-1]}" if ids else "it has no snapshot"
        first = missing[0] if missing else number
        raise SnapshotNotFound(f"table {table.name} has no snapshot {first}; {held}; `dredge repair` bridges gaps")
    yield DirectStep(
        table,
        f"point the hint EARLIEST of {table.name} at snapshot {number}",
        partial(snapshots.write_earliest_hint, table.store, number),
    )


def _replace_tag(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: replace an existing tag by a tag on `snapshot`, or on the newest snapshot without it.

    Raises:
        SnapshotNotFound: the table has no such tag.
    """
    known = tags.list_names(table.store)
    if values["tag"] not in known:
        raise SnapshotNotFound(f"table {table.name} has no tag {values['tag']}; it has: {', '.join(known) or 'none'}")
    yield from _CREATE_TAG(table, {**values, "replace": True})


def _tag_of_time(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: create a tag on the oldest snapshot that was committed at `timestamp` or later.

    Expired snapshots that existing tags keep are also considered.

    Raises:
        SnapshotNotFound: the table has no such snapshot.

    Source: ``CreateTagFromTimestampProcedure``.
    """
    tagged = sorted(tags.list_tags(table.store).values(), key=lambda snapshot: snapshot.id)
    oldest_of_each = [
        next((candidate for candidate in candidates if candidate.time_millis >= values["timestamp"]), None)
        for candidates in (snapshots.iterate(table.store), tagged)
    ]
    oldest = min(
        (candidate for candidate in oldest_of_each if candidate is not None),
        key=lambda snapshot: snapshot.time_millis,
        default=None,
    )
    if oldest is None:
        raise SnapshotNotFound(f"table {table.name} has no snapshot of {values['timestamp']} (ms) or later")
    yield from _CREATE_TAG(table, {**values, "snapshot": oldest.id})


def _tag_of_watermark(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: create a tag on the oldest snapshot whose watermark is at least the requested watermark.

    The snapshots of existing tags, which may have expired, are searched first. The table's snapshots are searched only
    if no tag fits.

    Raises:
        SnapshotNotFound: the table has no such snapshot.

    Source: ``CreateTagFromWatermarkProcedure``.
    """
    tagged = sorted(tags.list_tags(table.store).values(), key=lambda snapshot: snapshot.id)
    first_of_each = [
        next(
            (each for each in candidates if each.watermark is not None and each.watermark >= values["watermark"]), None
        )
        for candidates in (tagged, snapshots.iterate(table.store))
    ]
    matches = [snapshot for snapshot in first_of_each if snapshot is not None]
    if matches:
        oldest = min(matches, key=lambda snapshot: (snapshot.watermark, snapshot.id))
        yield from _CREATE_TAG(table, {**values, "snapshot": oldest.id})
        return
    raise SnapshotNotFound(f"table {table.name} has no snapshot with a watermark of {values['watermark']} or later")


def _rollback(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: roll back to `version` (a snapshot id or the name of a tag), to `snapshot` or to `tag`."""
    version = values.get("version")
    target = {"snapshot_id": values.get("snapshot"), "tag": values.get("tag")}
    if version is not None:
        number = parse_digits(version)
        target = {"tag": version} if number is None else {"snapshot_id": number}
        if "snapshot" in values or "tag" in values:
            raise InvalidOption("version", version, "only one of version, snapshot and tag", table.name)
    yield PlannedStep(table, "rollback", {key: value for key, value in target.items() if value is not None})


def _rollback_to_watermark(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: roll back to the newest snapshot whose watermark is at most the requested watermark.

    Raises:
        SnapshotNotFound: the table has no such snapshot.
    """
    for number in reversed(snapshots.list_ids(table.store)):
        snapshot = snapshots.try_read(table.store, number)
        if snapshot is not None and snapshot.watermark is not None and snapshot.watermark <= values["watermark"]:
            yield PlannedStep(table, "rollback", {"snapshot_id": snapshot.id})
            return
    raise SnapshotNotFound(f"table {table.name} has no snapshot with a watermark up to {values['watermark']}")


def _expire_partitions(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: drop the partitions that are older than `expiration_time`, or else than the table's option."""
    arguments = {
        "strategy": values.get("expire_strategy"),
        "timestamp_pattern": values.get("timestamp_pattern"),
        "timestamp_formatter": values.get("timestamp_formatter"),
        "max_expires": values.get("max_expires"),
    }
    if "expiration_time" in values:
        arguments["older_than_ms"] = table.store.clock.now_ms() - values["expiration_time"]
    yield PlannedStep(table, "expire_partitions", {k: value for k, value in arguments.items() if value is not None})


def _rescale(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: rewrite the selected partitions with `bucket_num` buckets (default: the option `bucket`)."""
    partitions = chosen_partitions(table.store, values)
    if not partitions and "where" not in values and partitions is not None:
        partitions = typed_partitions(table.store, values["partitions"])  # the plan says that they have no files
    chosen = {"where": values["where"]} if "where" in values else {"partitions": partitions}
    arguments = {"bucket_num": values.get("bucket_num"), **chosen}
    yield PlannedStep(table, "rescale", arguments, fatal=frozenset({"changelog"}))


def _drop_partitions(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: drop the existing partitions that match. If none matches, yield no step, as in Java."""
    partitions = chosen_partitions(table.store, values)
    if partitions:
        yield PlannedStep(table, "drop_partitions", {"partitions": partitions})


def _set_default(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield one step: set the default value of a column in the table's schema, or remove the default for null.

    Raises:
        InvalidOption: the column is a field inside another column, whose default no writer uses.
    """
    column, default = values["column"].replace("`", ""), values["default_value"]
    table = _open(catalog, values["table"], None)
    if "." in column and column not in table.schema.field_names:
        raise InvalidOption(
            "column", column, "a column, not a field inside one: writers use no defaults of those", table.name
        )
    text = f"set the default of column {column} of {table.name} to {default!r}"
    if default is None:
        text = f"remove the default of column {column} of {table.name}"
    change = SchemaChange.update_default(column, default)
    yield DirectStep(table, text, partial(catalog.alter_table, table.name, [change]))


def _rewrite_file_index(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: write the missing file indexes of the selected partitions."""
    yield PlannedStep(table, "rewrite_file_index", {"partitions": chosen_partitions(table.store, values)})


def _purge(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: delete all rows, snapshots and changelogs of the table. The call counts as confirmation."""
    del values
    yield PlannedStep(table, "purge", {"confirm": table.name})


def _rename_tag(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: rename a tag."""
    old, new = values["tag"], values["target_tag"]
    yield DirectStep(table, f"rename tag {old} of {table.name} to {new}", partial(table.rename_tag, old, new))


def _create_branch(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: create a branch. Yield no step if the branch exists and `ignoreIfExists` is true."""
    name, tag = values["branch"], values.get("tag")
    if values.get("ignoreIfExists") and name in table.branches():
        return
    text = f"create branch {name} of {table.name}{f' from tag {tag}' if tag else ''}"
    yield DirectStep(table, text, partial(table.create_branch, name, tag))


def _rename_branch(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: rename a branch."""
    old, new = values["from_branch"], values["to_branch"]
    yield DirectStep(table, f"rename branch {old} of {table.name} to {new}", partial(table.rename_branch, old, new))


def _copy(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield one step: copy a table inside the warehouse."""
    arguments = {"target": values["target_table"].replace("`", ""), "where": values.get("where")}
    yield _copy_step(catalog, values["source_table"], arguments)


def _copy_files(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield a step per selected table: copy the table to another warehouse.

    The call selects one table, the tables of one database, or all tables of this warehouse.
    """
    warehouse = values.get("warehouse")
    if warehouse is not None and warehouse != catalog.place and file_io_for(warehouse)[1].rstrip("/") != catalog.place:
        raise InvalidOption("warehouse", warehouse, f"the opened warehouse {catalog.place}")
    for database, table in _cloned_tables(catalog, values):
        name = f"{values.get('target_database', database)}.{values.get('target_table', table)}"
        arguments = {"target": name, "target_warehouse": values["target_warehouse"]}
        yield _copy_step(catalog, f"{database}.{table}", arguments)


def _clone(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield a step per selected table: copy the table to the warehouse of `target_catalog_conf`, or inside this one.

    The call selects one table, the tables of one database, or all tables of this warehouse. With `clone_if_exists`
    false, tables that exist in the target get no step.

    Raises:
        UnsupportedFeature: the source is a Hive catalog, the files would be converted, or only metadata is copied.
    """
    if values.get("clone_from", "paimon").lower() != "paimon" or "prefer_file_format" in values:
        raise UnsupportedFeature("sys.clone from a Hive catalog or to another file format: use Paimon's Flink")
    if values.get("meta_only"):
        raise UnsupportedFeature("sys.clone with meta_only: write CREATE TABLE ... LIKE instead")
    configured = values.get("target_catalog_conf", {})
    if configured.keys() - {"warehouse"} or "catalog_conf" in values:
        named = {**configured, **({"catalog_conf": values["catalog_conf"]} if "catalog_conf" in values else {})}
        raise InvalidOption("target_catalog_conf", named, "'warehouse=ADDRESS' alone; the source is the opened catalog")
    warehouse = configured.get("warehouse")
    for database, table in _cloned_tables(catalog, values):
        name = f"{values.get('target_database', database)}.{values.get('target_table', table)}"
        arguments = {"target": name, "target_warehouse": warehouse, "where": values.get("where")}
        step = _copy_step(catalog, f"{database}.{table}", arguments)
        if values.get("clone_if_exists", True) or not target_exists(step.table.store, name, warehouse):
            yield step


def _cloned_tables(catalog: Catalog, values: Arguments) -> list[tuple[str, str]]:
    """Return (database, table) of each table to copy.

    With `table` that is one table, with only `database` the tables of the database, otherwise all tables.
    `included_tables` and `excluded_tables` restrict these; they contain names with or without the database.

    Raises:
        InvalidOption: `table` without `database`, or `target_table` without `table`.
    """
    if "table" in values and "database" not in values:
        raise InvalidOption("database", None, "the database of the table", values["table"])
    if "target_table" in values and "table" not in values:
        raise InvalidOption("target_table", values["target_table"], "no value without `table`")
    databases = [values["database"]] if "database" in values else catalog.list_databases()
    included, excluded = values.get("included_tables"), values.get("excluded_tables", [])
    return [
        (database, table)
        for database in databases
        for table in ([values["table"]] if "table" in values else catalog.list_tables(database))
        if (included is None or not {table, f"{database}.{table}"}.isdisjoint(included))
        and {table, f"{database}.{table}"}.isdisjoint(excluded)
    ]


def _copy_step(catalog: Catalog, name: str, arguments: Mapping[str, str | None]) -> PlannedStep:
    """Return the step that copies one table."""
    return PlannedStep(_open(catalog, name, None), "copy_table", {k: v for k, v in arguments.items() if v is not None})


def _merge_branch(catalog: Catalog, values: Arguments) -> Iterator[Step]:
    """Yield one step: add the files of the branch `source_branch` to the branch `target_branch`, or to main."""
    name = values["table"].replace("`", "")
    if "target_branch" in values:
        name = branch_name(name, values["target_branch"])
    yield PlannedStep(_open(catalog, name, None), "merge_branch", {"branch": values["source_branch"]})


def _reset_consumer(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: set the next snapshot of a consumer, or delete the consumer if no snapshot is passed."""
    name, following = values["consumerId"], values.get("nextSnapshotId")
    text = f"let consumer {name} of {table.name} read from snapshot {following} on"
    if following is None:
        text = f"forget consumer {name} of {table.name}"
    yield DirectStep(table, text, partial(table.reset_consumer, name, following))


def _clear_consumers(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield a step per consumer that the patterns select: delete the consumer. Patterns match the whole name."""
    every, none = re.compile(".*"), re.compile("(?!)")
    for name in consumers.list_consumers(table.store):
        matches = values.get("includingConsumers", every).fullmatch(name)
        if matches and not values.get("excludingConsumers", none).fullmatch(name):
            yield DirectStep(table, f"forget consumer {name} of {table.name}", partial(table.forget_consumer, name))


def _mark_done(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: mark all named partitions as done."""
    specs = [without_null_name(table.store, spec) for spec in values["partitions"]]
    specs_text = "; ".join(",".join(f"{key}={value}" for key, value in spec.items()) for spec in specs)
    yield DirectStep(table, f"mark {specs_text} of {table.name} done", partial(table.mark_partitions_done, specs))


def _automatic_tags(table: Table, values: Arguments) -> Iterator[Step]:
    """Yield one step: create the automatic tags (`tag.automatic-creation`) that are due."""
    del values
    from lsm_core.maintenance.automatic_tags import make_automatic_tags

    text = f"make the tags of {table.name} that are due (tag.automatic-creation)"
    yield DirectStep(table, text, partial(make_automatic_tags, table.store, batch=False))


# -- the table of procedures -------------------------------------------------------------------------------------------


def _number(name: str, *, required: bool = False) -> Parameter:
    return Parameter(name, ParameterKind.NUMBER, required)


_TABLE: Final = Parameter("table", required=True)
_OPTIONS: Final = Parameter("options", ParameterKind.OPTIONS)
_DRY_RUN: Final = Parameter("dry_run", ParameterKind.FLAG)
_PARALLELISM: Final = Parameter("parallelism", ParameterKind.NUMBER, ignored=True)
_RETAINED: Final = Parameter("time_retained")
_TAG: Final = Parameter("tag", required=True)
_SNAPSHOT: Final = Parameter("snapshot", ParameterKind.NUMBER, aliases=("snapshot_id",))
_CREATE_TAG: Final = _of_action(
    "create_tag", tag="tag", snapshot_id="snapshot", time_retained="time_retained", replace="replace"
)
_EXPIRY: Final = (
    Parameter("retain_max", ParameterKind.NUMBER),
    Parameter("retain_min", ParameterKind.NUMBER),
    Parameter("older_than", ParameterKind.TIME),
    Parameter("max_deletes", ParameterKind.NUMBER),
)


PROCEDURES: Final[Mapping[str, Procedure]] = {
    procedure.name: procedure
    for procedure in (
        Procedure(
            "compact",
            (
                _TABLE,
                Parameter("partitions", ParameterKind.PARTITIONS),
                Parameter("compact_strategy"),
                Parameter("order_strategy"),
                Parameter("order_by", ParameterKind.NAMES),
                Parameter("where"),
                _OPTIONS,
                Parameter("partition_idle_time", ParameterKind.AGE),
                Parameter("buckets", ParameterKind.NUMBERS),
            ),
            _compact,
            options=(Parameter(_COMMIT_EVERY, ParameterKind.NUMBER),),
            orders=(
                (
                    "table",
                    "partitions",
                    "order_strategy",
                    "order_by",
                    "options",
                    "where",
                    "partition_idle_time",
                    "compact_strategy",
                    "buckets",
                ),
                ("table", "order_strategy", "order_by"),
            ),
        ),
        Procedure(
            "compact_database",
            (
                Parameter("including_databases", ParameterKind.PATTERN),
                Parameter("including_tables", ParameterKind.PATTERN),
                Parameter("excluding_tables", ParameterKind.PATTERN),
                _OPTIONS,
                Parameter("mode"),
                Parameter("table_options", ParameterKind.OPTIONS),
                Parameter("partition_idle_time", ParameterKind.AGE),
                Parameter("compact_strategy"),
            ),
            on_catalog=_compact_database,
            orders=(
                (
                    "including_databases",
                    "mode",
                    "including_tables",
                    "excluding_tables",
                    "table_options",
                    "partition_idle_time",
                    "compact_strategy",
                ),
            ),
        ),
        Procedure(
            "compact_manifest",
            (
                _TABLE,
                _OPTIONS,
                _DRY_RUN,
                Parameter("manifest_sort_enabled", ParameterKind.FLAG),
                Parameter("manifest_sort_partition_field"),
                Parameter("manifest_sort_max_rewrite_size"),
            ),
            _compact_manifest,
        ),
        Procedure("create_tag", (_TABLE, _TAG, _SNAPSHOT, _RETAINED), _CREATE_TAG),
        Procedure("replace_tag", (_TABLE, _TAG, _SNAPSHOT, _RETAINED), _replace_tag),
        Procedure(
            "create_tag_from_timestamp",
            (_TABLE, _TAG, Parameter("timestamp", ParameterKind.TIME, required=True), _RETAINED),
            _tag_of_time,
        ),
        Procedure(
            "create_tag_from_watermark",
            (_TABLE, _TAG, _number("watermark", required=True), _RETAINED),
            _tag_of_watermark,
        ),
        Procedure(
            "rename_tag",
            (
                _TABLE,
                Parameter("tag", required=True, aliases=("tagName",)),
                Parameter("target_tag", required=True, aliases=("targetTagName",)),
            ),
            _rename_tag,
        ),
        Procedure(
            "delete_tag",
            (_TABLE, Parameter("tag", ParameterKind.NAMES, required=True)),
            _of_each("delete_tag", "tag", "tag"),
        ),
        Procedure(
            "expire_tags",
            (_TABLE, Parameter("older_than", ParameterKind.TIME)),
            _of_action("expire_tags", older_than_ms="older_than"),
        ),
        Procedure("trigger_tag_automatic_creation", (_TABLE,), _automatic_tags),
        Procedure("rollback", (_TABLE, Parameter("version"), _number("snapshot"), Parameter("tag")), _rollback),
        Procedure(
            "rollback_to",
            (_TABLE, Parameter("tag"), _number("snapshot_id")),
            _of_action("rollback", tag="tag", snapshot_id="snapshot_id"),
            orders=(("table", "snapshot_id"),),
        ),
        Procedure(
            "rollback_to_as_latest",
            (_TABLE, Parameter("tag"), _number("snapshot_id")),
            _of_action("rollback_as_latest", tag="tag", snapshot_id="snapshot_id"),
            orders=(("table", "snapshot_id"),),
        ),
        Procedure(
            "rollback_to_timestamp",
            (_TABLE, Parameter("timestamp", ParameterKind.TIME, required=True)),
            _of_action("rollback", timestamp_ms="timestamp"),
        ),
        Procedure("rollback_to_watermark", (_TABLE, _number("watermark", required=True)), _rollback_to_watermark),
        Procedure(
            "create_branch",
            (
                _TABLE,
                Parameter("branch", required=True),
                Parameter("tag"),
                Parameter("ignoreIfExists", ParameterKind.FLAG),
            ),
            _create_branch,
        ),
        Procedure(
            "rename_branch",
            (_TABLE, Parameter("from_branch", required=True), Parameter("to_branch", required=True)),
            _rename_branch,
        ),
        Procedure(
            "delete_branch",
            (_TABLE, Parameter("branch", ParameterKind.NAMES, required=True)),
            _of_each("delete_branch", "branch", "branch"),
        ),
        Procedure(
            "fast_forward", (_TABLE, Parameter("branch", required=True)), _of_action("fast_forward", branch="branch")
        ),
        Procedure(
            "copy",
            (Parameter("source_table", required=True), Parameter("target_table", required=True), Parameter("where")),
            on_catalog=_copy,
        ),
        Procedure(
            "copy_files",
            (
                Parameter("warehouse"),
                Parameter("database"),
                Parameter("table"),
                Parameter("catalog_conf", ignored=True),
                Parameter("target_warehouse", required=True),
                Parameter("target_database"),
                Parameter("target_table"),
                Parameter("target_catalog_conf", ignored=True),
                Parameter("parallelism", ParameterKind.NUMBER, ignored=True),
            ),
            on_catalog=_copy_files,
        ),
        Procedure(
            "clone",
            (
                Parameter("database"),
                Parameter("table"),
                Parameter("catalog_conf", ignored=True),
                Parameter("target_database"),
                Parameter("target_table"),
                Parameter("target_catalog_conf", ParameterKind.OPTIONS),
                Parameter("parallelism", ParameterKind.NUMBER, ignored=True),
                Parameter("where"),
                Parameter("included_tables", ParameterKind.NAMES),
                Parameter("excluded_tables", ParameterKind.NAMES),
                Parameter("prefer_file_format"),
                Parameter("clone_from"),
                Parameter("meta_only", ParameterKind.FLAG),
                Parameter("clone_if_exists", ParameterKind.FLAG),
            ),
            on_catalog=_clone,
        ),
        Procedure(
            "merge_branch",
            (_TABLE, Parameter("source_branch", required=True), Parameter("target_branch")),
            on_catalog=_merge_branch,
        ),
        Procedure(
            "expire_snapshots",
            (_TABLE, *_EXPIRY, _OPTIONS),
            _of_action(
                "expire_snapshots",
                retain_max="retain_max",
                retain_min="retain_min",
                older_than_ms="older_than",
                max_deletes="max_deletes",
            ),
        ),
        Procedure(
            "expire_changelogs",
            (_TABLE, *_EXPIRY, Parameter("delete_all", ParameterKind.FLAG)),
            _of_action(
                "expire_changelogs",
                retain_max="retain_max",
                retain_min="retain_min",
                older_than_ms="older_than",
                max_deletes="max_deletes",
                delete_all="delete_all",
            ),
            orders=(("table", "delete_all"),),
        ),
        Procedure(
            "expire_partitions",
            (
                _TABLE,
                Parameter("expiration_time", ParameterKind.AGE),
                Parameter("timestamp_formatter"),
                Parameter("timestamp_pattern"),
                Parameter("expire_strategy"),
                _number("max_expires"),
                _OPTIONS,
            ),
            _expire_partitions,
            orders=(("table", "expiration_time", "timestamp_formatter", "expire_strategy", "options"),),
        ),
        Procedure(
            "drop_partition",
            (_TABLE, Parameter("partitions", ParameterKind.PARTITIONS, required=True)),
            _drop_partitions,
            repeats=True,
        ),
        Procedure(
            "mark_partition_done",
            (_TABLE, Parameter("partitions", ParameterKind.PARTITIONS, required=True)),
            _mark_done,
        ),
        Procedure(
            "remove_orphan_files",
            (
                _TABLE,
                Parameter("older_than", ParameterKind.TIME),
                _DRY_RUN,
                _PARALLELISM,
                Parameter("mode", ignored=True),
            ),
            on_catalog=_orphans,
        ),
        Procedure("remove_unexisting_files", (_TABLE, _DRY_RUN, _PARALLELISM), on_catalog=_missing_files),
        Procedure(
            "remove_unexisting_manifests",
            (Parameter("table", required=True, aliases=("tableId",)), _DRY_RUN),
            _of_action("remove_unexisting_manifests"),
        ),
        Procedure("purge_files", (_TABLE,), _purge),
        Procedure(
            "rescale",
            (
                _TABLE,
                _number("bucket_num"),
                Parameter("partitions", ParameterKind.PARTITIONS, aliases=("partition",)),
                Parameter("where"),
                Parameter("scan_parallelism", ParameterKind.NUMBER, ignored=True),
                Parameter("sink_parallelism", ParameterKind.NUMBER, ignored=True),
            ),
            _rescale,
            orders=(("table", "bucket_num", "partitions", "scan_parallelism", "sink_parallelism"),),
        ),
        Procedure(
            "reset_consumer",
            (_TABLE, Parameter("consumerId", required=True), _number("nextSnapshotId")),
            _reset_consumer,
        ),
        Procedure(
            "clear_consumers",
            (
                _TABLE,
                Parameter("includingConsumers", ParameterKind.PATTERN),
                Parameter("excludingConsumers", ParameterKind.PATTERN),
            ),
            _clear_consumers,
        ),
        Procedure(
            "rewrite_file_index",
            (_TABLE, Parameter("where"), Parameter("partitions", ParameterKind.PARTITIONS)),
            _rewrite_file_index,
            orders=(("table", "partitions"),),
        ),
        Procedure(
            "refresh_iceberg",
            (_TABLE, Parameter("drop_older", ParameterKind.FLAG)),
            _of_action("refresh_iceberg", drop_older="drop_older"),
        ),
        Procedure("repair", (Parameter("database_or_table", aliases=("table",)),), on_catalog=_repair),
        Procedure("repair_earliest_snapshot", (_TABLE, _number("snapshot_id", required=True)), _repair_earliest),
        Procedure(
            "alter_column_default_value",
            (
                _TABLE,
                Parameter("column", required=True),
                Parameter("default_value", ParameterKind.VALUE, required=True),
            ),
            on_catalog=_set_default,
        ),
        Procedure(
            "analyze", (_TABLE, Parameter("columns", ParameterKind.NAMES)), _of_action("analyze", columns="columns")
        ),
    )
}
"""Every procedure that can be called, in the order in which people read them."""

NOT_OFFERED: Final[Mapping[str, str]] = {
    "materialize_deletion_vectors": "it gives rows new ids, which indexes of Paimon may name; run it in Paimon's Spark",
    "reassign_row_id": "it gives rows new ids, which indexes of Paimon may name; run it in Paimon's Spark or Flink",
    "data_evolution_merge_into": "write MERGE INTO, which changes data-evolution tables in the same way",
    "compact_chain_table": "Dredge does not write chain tables; run it in Paimon's Spark or Flink",
    "create_global_index": "global indexes are for tables with row tracking in Paimon's Spark or Flink",
    "drop_global_index": "global indexes are for tables with row tracking in Paimon's Spark or Flink",
    "full_text_search": "Dredge does not read full-text indexes; query with Paimon's Flink",
    "vector_search": "Dredge does not read vector indexes; query with Paimon's Flink",
    "merge_into": "write the statement MERGE INTO instead",
    "query_service": "it starts a Flink service; read the table with a lookup of keys (`Table.lookup`) instead",
    "migrate_table": "it moves a table of a Hive metastore; write INSERT INTO ... SELECT in Spark instead",
    "migrate_database": "it moves tables of a Hive metastore; write INSERT INTO ... SELECT in Spark instead",
    "migrate_iceberg_table": "it moves an Iceberg table; write INSERT INTO ... SELECT in Spark instead",
    "alter_view_dialect": "views belong to the catalog of Paimon's Spark or Flink",
    "create_function": "functions belong to the catalog of Paimon's Spark or Flink",
    "alter_function": "functions belong to the catalog of Paimon's Spark or Flink",
    "drop_function": "functions belong to the catalog of Paimon's Spark or Flink",
    "init_file_based_privilege": "Dredge keeps no privileges of its own; use those of the storage",
    "create_privileged_user": "Dredge keeps no privileges of its own; use those of the storage",
    "drop_privileged_user": "Dredge keeps no privileges of its own; use those of the storage",
    "grant_privilege_to_user": "Dredge keeps no privileges of its own; use those of the storage",
    "revoke_privilege_from_user": "Dredge keeps no privileges of its own; use those of the storage",
}
"""Paimon's procedures that Dredge does not offer, each with the reason and a replacement."""
