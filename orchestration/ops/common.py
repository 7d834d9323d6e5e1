"""Functions for the ops of jobs: declaration of ops, the loop over many tables, and failures in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar

import dagster as dg

from dredge.checks.unevaluated import report_unevaluated
from dredge.platform_core import names
from dredge.platform_core.dagster_internals import resolve_annotations
from dredge.platform_core.failure_records import failure_tags, unreadable_metadata
from dredge.platform_core.metadata import plain_cell
from dredge.platform_core.policies.permanent_failures import error_name, find_permanent_error, names_permanent_error
from dredge.platform_core.resource_names import rename_resources
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import count_text
from lsm_core.errors import CorruptFile, DredgeError

T = TypeVar("T")
_MOST_NAMED: Final = 3
_MOST_LISTED: Final = 200


def job_op(
    name: str, description: str, *, config: Any = None, out: dg.Out | None = None, kind: str = "dredge", **settings: Any
) -> Callable[[Callable[..., Any]], dg.OpDefinition]:
    """Return the decorator of an op of the platform.

    Args:
        name: name of the op.
        description: description in the Dagster UI.
        config: class of the configuration, or its schema; None for no configuration.
        out: output of the op, or None for none.
        kind: label of the op in the Dagster UI.
        settings: further arguments of `dg.op`.
    """
    is_class = isinstance(config, type) and issubclass(config, dg.Config)
    schema = config.to_fields_dict() if is_class else config

    def declare(function: Callable[..., Any]) -> dg.OpDefinition:
        @cache
        def declare_for(prefix: str) -> dg.OpDefinition:
            warehouse_names = names.WarehouseNames("", prefix=prefix)
            pool = {"pool": warehouse_names.spark_pool} if settings.get("pool") == names.SPARK_POOL else {}
            decorate = dg.op(
                name=warehouse_names.definition(name),
                description=description,
                config_schema=schema,
                out=out or dg.Out(dg.Nothing),
                tags={f"dagster/kind/{kind}": ""},
                **{**settings, **pool},
            )
            return decorate(rename_resources(resolve_annotations(function), warehouse_names))

        op = declare_for("")
        _DECLARED[op] = declare_for
        return op

    return declare


_DECLARED: Final[dict[dg.OpDefinition, Callable[[str], dg.OpDefinition]]] = {}
"""Function of each op of the platform that returns the op for a prefix of names."""


def op_of(op: dg.OpDefinition, warehouse_names: names.WarehouseNames) -> dg.OpDefinition:
    """Return an op of the platform for a warehouse: with its resources and pool, and its own name.

    Args:
        op: op that `job_op` declared.
        warehouse_names: names of the warehouse in Dagster.

    Returns:
        The op itself if the warehouse has no prefix.
    """
    return _DECLARED[op](warehouse_names.prefix)


class TableFailed(DredgeError):
    """Failure of one table; reports show only its message, without the name of the exception."""


class TableUnreadable(TableFailed):
    """A part of one table cannot be read; the rest of the work on the table is done.

    Attributes:
        files: paths of the damaged files.
    """

    def __init__(self, text: str, files: Sequence[str] = ()) -> None:
        self.files = tuple(files)
        super().__init__(text)


def process_tables(
    context: dg.OpExecutionContext,
    tables: Mapping[str, T],
    process: Callable[[T], None],
    *,
    unattended_in: WarehouseResource | None = None,
) -> None:
    """Call a function for each table, in order.

    Args:
        context: context of the op, for its log.
        tables: argument of `process` for each table. The key is the table's name; ``: `` and a detail may follow.
        process: function to call.
        unattended_in: the warehouse, if no person started the run. Then a table that cannot be read is only a warning:
            the metadata of the run list it, and the sensor `watch` sends an alert. None for a run of a person, which
            fails.

    Raises:
        dg.Failure: at the end, if tables failed; the message names the first failed tables with their errors.
    """
    failed: list[str] = []
    unreadable: dict[str, str] = {}
    damaged: dict[str, list[str]] = {}
    for name, table in tables.items():
        try:
            process(table)
        except Exception as error:  # noqa: BLE001  (one table stops no other)
            kind = "" if isinstance(error, TableFailed) else f"{type(error).__name__}: "
            text = f"{name}: {kind}{error}"
            permanent = isinstance(error, TableUnreadable) or find_permanent_error(error) is not None
            if unattended_in is not None and (permanent or names_permanent_error(str(error))):
                subject, why = name.partition(": ")[0], text.removeprefix(f"{name}: ")
                unreadable[subject] = f"{unreadable[subject]}; {why}" if subject in unreadable else why
                damaged.setdefault(subject, []).extend(_damaged_files(error))
                context.log.warning(text)
                continue
            failed.append(text)
            context.log.error(text)
    if unreadable and unattended_in is not None:
        rows = [f"| {plain_cell(table)} | {plain_cell(text)} |" for table, text in unreadable.items()]
        listed = "\n".join(["| table | why |", "|---|---|", *rows[:_MOST_LISTED]])
        context.add_output_metadata(
            {
                "tables that cannot be read": dg.MetadataValue.md(listed),
                **unreadable_metadata(unattended_in, unreadable, damaged),
            }
        )
    if failed:
        more = f" (and {count_text(len(failed) - _MOST_NAMED, 'more table')})" if len(failed) > _MOST_NAMED else ""
        raise dg.Failure("; ".join(failed[:_MOST_NAMED]) + more)


def _damaged_files(error: BaseException) -> Sequence[str]:
    """Return the paths of the damaged files that an error is about."""
    if isinstance(error, TableUnreadable):
        return error.files
    cause = find_permanent_error(error)
    return [cause.path] if isinstance(cause, CorruptFile) else []


@contextmanager
def report_failure(context: dg.OpExecutionContext, warehouse: WarehouseResource, table: str) -> Iterator[None]:
    """Report an error of the block that ends the run without a retry, and raise the error again.

    An error that no retry heals becomes a tag of the run: sensors start no further run of the plan, and the sensor
    `watch` sends an alert. Checks of the layout that the run planned keep their earlier results.

    Args:
        context: context of the op.
        warehouse: the warehouse.
        table: full name of the table.

    Raises:
        dg.Failure: the error, without a retry.
    """
    try:
        yield
    except Exception as error:
        cause = find_permanent_error(error)
        if cause is not None:
            try:
                store = warehouse.store(table)
            except (DredgeError, OSError):
                store = None
            table_tag = {names.TAG_TABLE: warehouse.names.table_value(table)}
            context.instance.add_run_tags(context.run_id, {**table_tag, **failure_tags(store, error)})
        if cause is None and not (isinstance(error, dg.Failure) and not error.allow_retries):
            raise  # a retry may follow; after the last one, the sensor `failures` reports the checks
        run = context.instance.get_run_by_id(context.run_id)
        if run is not None:
            report_unevaluated(context.instance, warehouse.names, run, [warehouse.names.layout_key(table)])
        if cause is None or isinstance(error, dg.Failure):
            raise
        text = f"{table}: {error_name(cause)}: {' '.join(str(cause).split())}"
        raise dg.Failure(text, allow_retries=False) from error


@contextmanager
def fail_in_one_line(table: str) -> Iterator[None]:
    """Turn an error of the engine in the block into a failure of the run with one line and no retry.

    Raises:
        dg.Failure: the engine raised a DredgeError; the message names the table.
    """
    try:
        yield
    except DredgeError as error:
        message = " ".join(str(error).split())
        prefix = "" if table in message else f"{table}: "
        raise dg.Failure(f"{prefix}{type(error).__name__}: {message}", allow_retries=False) from error
