"""Options that all verbs share, and functions that open catalogs and tables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lsm_core.cli.completion import table_names
from lsm_core.cli.render import visible_lines
from lsm_core.clock import Clock, clock_from, why_silent
from lsm_core.errors import DatabaseNotFound, InvalidOption, UnsupportedFeature, typed_failure
from lsm_core.maintenance.actions.built_in import PARTITIONS

if TYPE_CHECKING:  # `dredge --help` starts in a third of a second: the engine is imported by the verb that runs
    from lsm_core.maintenance.action import MaintenancePlan, Runner
    from lsm_core.spark.compaction_job import JobProgress
    from lsm_core.table import Catalog, Table

_CLOCK_VARIABLE: Final = "DREDGE_CLOCK"
CATALOG_VARIABLE: Final = "DREDGE_CATALOG_OPTIONS"
CATALOG_FLAG: Final = "--catalog-option"
_TELL_SECONDS: Final = 5.0
_given_options: ContextVar[tuple[str, ...]] = ContextVar("catalog_options", default=())
TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="database.table", show_default=False, autocompletion=table_names)
]
Warehouse = Annotated[
    str,
    typer.Option(
        "--warehouse",
        "-w",
        envvar="DREDGE_WAREHOUSE",
        help="Path or URL of the warehouse; rest:ADDRESS or hive:ADDRESS for a catalog server or Hive metastore.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ClockOption = Annotated[
    str | None,
    typer.Option("--clock", envvar=_CLOCK_VARIABLE, help="system, fixed:<epoch ms> or file:<path>.", hidden=True),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Dynamic table option; may be repeated.")
]
Partitions = Annotated[list[str] | None, typer.Option("--partition", metavar="K=V[,K=V]", help=PARTITIONS.help)]
CatalogOption = Annotated[
    list[str] | None,
    typer.Option(
        CATALOG_FLAG,
        metavar="KEY=VALUE",
        help="Option of the catalog (metastore, uri, catalog-key, lock.enabled ...). May be repeated; overrides "
        f"{CATALOG_VARIABLE}. No secrets.",
    ),
]


class RunnerName(StrEnum):
    """Value of ``--runner``: the engine that runs the tasks of maintenance."""

    PROCESS = "process"
    SPARK = "spark"


RunnerOption = Annotated[
    RunnerName,
    typer.Option(
        "--runner",
        help="Where tasks run: in this process, or as jobs of Spark (a local one, or the server of "
        "DREDGE_SPARK_REMOTE).",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")]


def add_catalog_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the flag ``--catalog-option`` to a verb that takes a warehouse; other verbs are returned unchanged."""
    seen = signature(verb, eval_str=True)
    if "warehouse" not in seen.parameters:
        return verb

    @wraps(verb)
    def run_verb(*, catalog_option: list[str] | None = None, **arguments: Any) -> None:
        before = _given_options.set(tuple(catalog_option or ()))
        try:
            verb(**arguments)
        finally:
            _given_options.reset(before)

    own = Parameter("catalog_option", Parameter.KEYWORD_ONLY, default=None, annotation=CatalogOption)
    parameters = [*seen.parameters.values(), own]
    run_verb.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run_verb.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run_verb


def open_catalog(warehouse: str, clock: str | None = None) -> Catalog:
    """Open a warehouse with the catalog options of the command line and of the variable DREDGE_CATALOG_OPTIONS.

    Args:
        warehouse: path or address of the warehouse.
        clock: text of ``--clock``, or None for the system's clock.

    Returns:
        The catalog of an existing warehouse.

    Raises:
        DatabaseNotFound: the warehouse does not exist; a mistyped path must not look like an empty warehouse.
        InvalidOption: a catalog option or the clock is wrong.
        DredgeError: the storage cannot be reached.
    """
    from lsm_core.table import Catalog

    catalog = Catalog(warehouse, _catalog_options(), clock=_read_clock(clock))
    if catalog.options.metastore in ("rest", "hive"):  # the server says itself which databases it has
        return catalog
    try:
        exists = catalog.file_io.exists(catalog.root)
    except BaseException as error:
        own = typed_failure(error, f"opening the warehouse {catalog.root}")
        if own is None:
            raise
        raise own from error
    if not exists:
        raise DatabaseNotFound(f"there is no warehouse at {catalog.root}")
    return catalog


def _catalog_options() -> dict[str, str]:
    """Return the catalog options of the environment, overridden by options of the command. Raises InvalidOption."""
    return {key: value for key, (value, _) in read_catalog_options().items()}


def read_catalog_options() -> dict[str, tuple[str, str]]:
    """Return the catalog options that are set, each as (value, source), by name of the option.

    The source is "DREDGE_CATALOG_OPTIONS" (environment variable) or "--catalog-option", which takes precedence. Raises
    InvalidOption.
    """
    from lsm_core.options import parse_catalog_options

    named = parse_catalog_options(os.environ.get(CATALOG_VARIABLE, ""), CATALOG_VARIABLE)
    flags = dict(_split_pair(text, CATALOG_FLAG) for text in _given_options.get())
    return {
        **{key: (value, CATALOG_VARIABLE) for key, value in named.items()},
        **{key: (value, CATALOG_FLAG) for key, value in flags.items()},
    }


def _read_clock(spec: str | None) -> Clock:
    """Return the clock of a specification. Raises InvalidOption, which names the source and the file."""
    source = _CLOCK_VARIABLE if spec is not None and spec == os.environ.get(_CLOCK_VARIABLE) else "--clock"
    try:
        clock = clock_from(spec)
    except ValueError as error:
        raise InvalidOption(source, spec, "system, fixed:<epoch ms> or file:<path>") from error
    silent = why_silent(clock)
    if silent is not None:
        raise InvalidOption(source, spec, f"a file that holds epoch milliseconds ({silent})")
    return clock


def runner_of(name: RunnerName, plan: MaintenancePlan | None = None) -> Runner | None:
    """Return the runner for the tasks of a plan.

    A runner on Spark prints its progress on standard error every few seconds.

    Args:
        name: value of ``--runner``.
        plan: the plan to run, or None for any plan.

    Returns:
        The runner, or None to use threads of this process.

    Raises:
        JavaNotFound: Spark needs Java, which is not installed.
        SparkFailed: no session can be started.
    """
    if name is RunnerName.PROCESS:
        return None
    from lsm_core.spark import spark_runner, spark_session

    printed_s = 0.0

    def print_progress(progress: JobProgress) -> None:
        nonlocal printed_s
        if progress.seconds - printed_s >= _TELL_SECONDS:
            printed_s = progress.seconds
            typer.echo(visible_lines(progress.text()), err=True)

    return spark_runner(spark_session(app_name="dredge"), progress=print_progress, plan=plan)


def open_table(warehouse: str, name: str, clock: str | None, settings: Sequence[str] | None = None) -> Table:
    """Open a table with dynamic options.

    Raises:
        UnsupportedFeature: the name is that of a system table.
        InvalidOption: an option is malformed or cannot be used.
        DredgeError: the errors of :func:`open_catalog` and `Catalog.table`, such as TableNotFound.
    """
    from lsm_core.table.names import TableName

    catalog = open_catalog(warehouse, clock)
    system = TableName.parse(name).system
    if system:  # it has rows but no life to look after
        raise UnsupportedFeature(f"this verb on the system table ${system}; name the table alone", name)
    table = catalog.table(name)
    options = dict(_split_pair(text, "--set") for text in settings or ())
    return table.copy(options) if options else table


def _split_pair(text: str, option: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise InvalidOption(option, text, "KEY=VALUE")
    return key.strip(), value.strip()


_PARTITION_PART: Final = re.compile(r'\s*([^=,/"]+)=(\s*)("[^"]*"|(?!").*?)(\s*)(?:$|[,/](?=\s*[^=,/"]+=))', re.DOTALL)
"""A column and its value: the value is in quotes, or ends at the comma or slash before the next column name."""


def parse_partitions(table: Table, texts: Sequence[str] | None) -> list[dict[str, Any]] | None:
    """Return typed partitions from texts such as "dt=2024-01-01,h=3" or "dt=2024-01-01/h=3".

    A value ends before the next column name, so it may contain commas. A quoted value ends at its closing quote. ``%``
    with two hex digits is one character, as in paths. Blanks around a text must be in quotes. An empty value and
    `partition.default-name` mean null; in quotes they are text.

    Args:
        table: the table.
        texts: values of ``--partition``, or None.

    Returns:
        The partitions as values by column, or None without texts.

    Raises:
        InvalidOption: a text does not name all partition columns, or a value does not fit.
    """
    if not texts:
        return None
    import pyarrow as pa

    from lsm_core.format.partitions import unescape

    partitions, keys = [], table.schema.partition_keys
    null = ("", table.store.options.partition_default_name)
    if not keys:
        raise InvalidOption("--partition", texts[0], f"no partition: {table.name} is not partitioned", table.name)
    exactly = f"exactly the columns {', '.join(keys)}"
    for text in texts:
        texts_by_column: dict[str, str] = {}
        at = 0
        while not texts_by_column or at < len(text):
            part = _PARTITION_PART.match(text, at)
            if part is None:
                raise InvalidOption(
                    "--partition", text, f"{exactly}, such as {','.join(f'{key}=...' for key in keys)}", table.name
                )
            name, at = unescape(part[1].strip()), part.end()
            if name not in keys and texts_by_column:
                accepted = (
                    f"{exactly}: '{name}' is none of them; quote a value that holds '{part[1].strip()}=': "
                    f'{keys[-1]}="..."'
                )
                raise InvalidOption("--partition", text, accepted, table.name)
            if name in texts_by_column:
                accepted = f"each column once, not {name} twice; other partitions need a --partition of their own"
                raise InvalidOption("--partition", text, accepted, table.name)
            value = part[3]
            is_text = name in keys and pa.types.is_string(table.schema.arrow_schema.field(name).type)
            if is_text and not value.startswith('"') and (part[2] or part[4]):
                accepted = (
                    f'a value without outer blanks ({name}={value}), or in quotes ({name}="{part[2]}{value}{part[4]}")'
                )
                raise InvalidOption("--partition", text, accepted, table.name)
            texts_by_column[name] = value
        if set(texts_by_column) != set(keys):
            raise InvalidOption("--partition", text, exactly, table.name)
        values: dict[str, Any] = {}
        for key in keys:
            kind, value = table.schema.arrow_schema.field(key).type, texts_by_column[key]
            quoted = len(value) > 1 and value[0] == value[-1] == '"'
            value = unescape(value[1:-1] if quoted else value)
            if value in null and not quoted:
                values[key] = None
                continue
            # Plans and paths name a date by its days since 1970 where `partition.legacy-name` is on.
            days = pa.types.is_date32(kind) and value.lstrip("-").isdecimal()
            try:
                values[key] = (pa.scalar(int(value), pa.int32()) if days else pa.scalar(value)).cast(kind).as_py()
            except (pa.ArrowException, OverflowError) as error:
                example = " such as 2024-01-01" if pa.types.is_date32(kind) else ""
                raise InvalidOption("--partition", text, f"a {kind}{example} for column {key}", table.name) from error
        partitions.append(values)
    return partitions


def load_platform_function(name: str) -> Callable[..., Any] | None:
    """Return a function of the platform's packages that reads a Dagster instance, or None if they are not installed.

    Args:
        name: name of the entry point in the group "dredge.platform".
    """
    from importlib.metadata import entry_points

    for entry in entry_points(group="dredge.platform"):
        if entry.name == name:
            with suppress(ImportError):
                function: Callable[..., Any] = entry.load()
                return function
    return None


def load_policy_functions(group: str) -> list[Callable[..., Any]]:
    """Return the functions of installed packages that evaluate the policy file; none if no policy file is set.

    Packages whose dependencies are missing are left out; `dredge status` warns about them.

    Args:
        group: group of entry points, such as "dredge.metrics".
    """
    if not os.environ.get("DREDGE_POLICIES", "").strip():
        return []
    from importlib.metadata import entry_points

    functions = []
    for entry in entry_points(group=group):
        with suppress(ImportError):
            functions.append(entry.load())
    return functions
