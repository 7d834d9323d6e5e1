"""expectations: a great-expectations suite made from a table's schema and what its policy declares, held against a bounded sample of its merged rows, or against all of them in Spark.

great-expectations is imported only when the check runs (7 s), on a job of its own, so that no compaction waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
import pyarrow as pa

from checks.definition import declined, failed
from lsm_core import Table
from lsm_core.errors import DredgeError
from orchestration.metadata import plain_cell
from orchestration.policies.policy import Expectation
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard

if TYPE_CHECKING:
    import pandas as pd

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

MAX_ROWS: Final = 500_000
DESCRIPTION: Final = "great-expectations: keys are there and unique, NOT NULL columns hold no null, and what the policy declares holds, in a bounded sample of merged rows."
_KEYS_SHOWN: Final = 20
_PLACE: Final = "place"
_COLUMN_ARGUMENTS: Final = ("column", "column_A", "column_B", "column_list", "column_set")
"""Arguments of expectations that name columns to read."""


def suite_result(
    warehouse: WarehouseResource,
    card: TableCard,
    declared: Sequence[Expectation] = (),
    spark: SparkResource | None = None,
) -> dg.AssetCheckResult:
    """Return the result of a table's suite of expectations.

    Args:
        warehouse: warehouse of the table.
        card: description of the table.
        declared: expectations of the policy, beside those that follow from the schema.
        spark: session that checks all rows, or None to check a sample in this process.

    Returns:
        Counts and keys of rows that break an expectation, as text without markup; a pass for a table that maintenance leaves alone.

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
        DredgeError: the table cannot be read.
    """
    if card.refusal is not None:
        return declined(card)
    if spark is not None:
        with rows_in_spark(spark, warehouse.table(card.name), declared) as frame:
            return _told(run_suite(card, frame, declared, in_spark=True), frame.count(), "all its rows, in Spark")
    sample = read_sample(warehouse.table(card.name), declared=declared)
    where = "all its rows" if sample.whole else "a sample"
    return _told(run_suite(card, sample.frame, declared), len(sample.frame), where)


def _told(outcomes: Sequence[ExpectationResult], rows: int, where: str) -> dg.AssetCheckResult:
    """Return what became of the expectations, held against so many rows."""
    lines = ["| expectation | rows that break it | |", "|---|--:|---|"]
    lines += [
        f"| {plain_cell(item.text)} | {item.unexpected:,} | {'ok' if item.passed else 'broken'} |" for item in outcomes
    ]
    metadata = {
        "rows looked at": dg.MetadataValue.int(rows),
        "which rows": dg.MetadataValue.text(where),
        "whole table": dg.MetadataValue.bool(where != "a sample"),
        "expectations": dg.MetadataValue.md("\n".join(lines)),
        "rows that break an expectation": dg.MetadataValue.int(sum(item.unexpected for item in outcomes)),
    }
    broken = [item for item in outcomes if not item.passed]
    if broken:
        named = [f"- {plain_cell(item.text)}: {plain_cell(str(row))}" for item in broken for row in item.rows]
        if named:
            metadata["keys that break an expectation"] = dg.MetadataValue.md("\n".join(named))
        worst = next((item for item in broken if not item.warn), broken[0])
        share = f"{worst.unexpected:,} rows break it" if worst.unexpected else "it does not hold"
        text = f"{worst.text}: {share}; dirt in the source, maintenance changed nothing"
        return failed(text, warn=worst.warn, **metadata)
    return dg.AssetCheckResult(
        passed=True,
        description=f"{len(outcomes)} expectations hold over {rows:,} rows",
        metadata=metadata,
    )


@dataclass(frozen=True)
class Sample:
    """A pandas frame and whether it holds the whole table."""

    frame: pd.DataFrame
    whole: bool


def wanted_columns(table: Table, declared: Sequence[Expectation] = ()) -> list[str]:
    """Return the columns that a suite says something about: keys, NOT NULL columns, and those that declared expectations name.

    Raises ``SuiteCrashed`` for an expectation of a column that the table does not have.
    """
    schema = table.store.schema
    keys, asked = set(schema.primary_keys), set[str]()
    for item in declared:
        given = [item.kwargs[name] for name in _COLUMN_ARGUMENTS if name in item.kwargs]
        listed = {name for one in given for name in ([one] if isinstance(one, str) else one)}
        if unknown := sorted(listed - set(schema.field_names)):
            raise SuiteCrashed(
                f"table {table.name}: expectation '{item.type}' of the policy names column {unknown[0]!r}; there are {', '.join(schema.field_names)}"
            )
        asked |= listed
    return [
        column.name
        for column in schema.fields
        if column.name in keys or column.name in asked or not column.type.nullable
    ] or [schema.fields[0].name]


def read_sample(table: Table, max_rows: int = MAX_ROWS, declared: Sequence[Expectation] = ()) -> Sample:
    """Read up to ``max_rows`` merged rows. Keys of one bucket are never in another, so a cut sample still shows duplicates."""
    columns = wanted_columns(table, declared)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in table.to_batches(columns=columns):
        batches.append(batch)
        rows += batch.num_rows
        if rows >= max_rows:
            break
    schema = pa.schema([table.store.schema.arrow_schema.field(name) for name in columns])
    whole = rows < max_rows
    return Sample(pa.Table.from_batches(batches, schema=schema).slice(0, max_rows).to_pandas(), whole)


@contextmanager
def rows_in_spark(spark: SparkResource, table: Table, declared: Sequence[Expectation] = ()) -> Iterator[Any]:
    """Give all merged rows of a suite's columns as a DataFrame, which Spark keeps (spilling to its disks) while several expectations read it.

    Raises what opening a session raises.
    """
    from lsm_core.spark import read_table

    frame = read_table(spark.session(), table, columns=wanted_columns(table, declared)).persist()
    try:
        yield frame
    finally:
        frame.unpersist()


class SuiteCrashed(DredgeError):
    """An expectation could not be evaluated: a fault of the check, not of the data."""


@dataclass(frozen=True)
class ExpectationResult:
    """One expectation in words, whether it holds, how many rows break it, and the keys of the first of these; ``warn``: a failure only warns."""

    text: str
    passed: bool
    unexpected: int
    rows: tuple[str, ...] = ()
    warn: bool = True


def run_suite(
    card: TableCard, frame: Any, declared: Sequence[Expectation] = (), *, in_spark: bool = False
) -> list[ExpectationResult]:
    """Evaluate the suite over ``frame``, of pandas, or ``in_spark`` of Spark; raises ``SuiteCrashed`` when an expectation itself fails to run."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_spark("rows") if in_spark else context.data_sources.add_pandas("rows")
    batch = source.add_dataframe_asset(card.name).add_batch_definition_whole_dataframe("all")
    own = [(text, made, True) for text, made in expectations(card, frame)]
    every = [*own, *(_declared(card, item) for item in declared)]
    for place, (_, made, _) in enumerate(every):
        made.meta = {_PLACE: place}  # great-expectations answers in an order of its own
    suite = gx.ExpectationSuite(name=f"{card.name} keeps its own rules", expectations=[made for _, made, _ in every])
    keys = [name for name in card.primary_keys if name in frame.columns]
    shown: dict[str, Any] = {"result_format": "SUMMARY", "partial_unexpected_count": _KEYS_SHOWN}
    result = batch.get_batch({"dataframe": frame}).validate(
        suite, result_format={**shown, "unexpected_index_column_names": keys} if keys else shown
    )
    outcomes: dict[int, ExpectationResult] = {}
    for item in result.results:
        place = item.expectation_config.meta[_PLACE]
        text, _, warn = every[place]
        if any(detail.get("raised_exception") for detail in _exceptions(item.exception_info)):
            raise SuiteCrashed(f"table {card.name}: expectation '{text}' crashed: {item.exception_info}")
        told = item.result or {}
        unexpected = int(told.get("unexpected_count") or 0)
        rows = tuple(_row_text(row) for row in (told.get("partial_unexpected_index_list") or ())[:_KEYS_SHOWN])
        outcomes[place] = ExpectationResult(text, bool(item.success), unexpected, rows, warn)
    return [outcomes[place] for place in sorted(outcomes)]


def _row_text(row: Any) -> str:
    """A row as great-expectations names it: by key, with the value that is not as expected; by number where there is no key."""
    if not isinstance(row, dict):
        return f"row {row} of the sample"
    return ", ".join(f"{name}={value.item() if hasattr(value, 'item') else value!s}" for name, value in row.items())


def _declared(card: TableCard, item: Expectation) -> tuple[str, Any, bool]:
    """Return an expectation of the policy with its words, and whether its failure only warns. Raises ``SuiteCrashed`` where there is no such one."""
    from great_expectations.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.registry import get_expectation_impl

    words = ", ".join(f"{name}={value!r}" for name, value in item.kwargs.items())
    text = f"{item.type}({words})"
    try:
        made = get_expectation_impl(item.type)(**item.kwargs)
    except ExpectationNotFoundError as error:
        raise SuiteCrashed(f"table {card.name}: great-expectations has no '{item.type}'") from error
    except (TypeError, ValueError) as error:
        lines = " ".join(str(error).split())
        raise SuiteCrashed(f"table {card.name}: expectation '{text}' of the policy: {lines}") from error
    return text, made, item.severity == "warn"


def expectations(card: TableCard, frame: Any) -> list[tuple[str, Any]]:
    """Return the expectations with their words: what the schema promises, said without the engine that wrote the rows."""
    import great_expectations.expectations as gxe

    present = set(frame.columns)
    required = [
        column.name
        for column in card.columns
        if column.name in present and (not column.nullable or column.name in card.primary_keys)
    ]
    made: list[tuple[str, Any]] = [
        (f"{name} is never null", gxe.ExpectColumnValuesToNotBeNull(column=name)) for name in required
    ]
    if len(card.primary_keys) == 1:
        made.append(
            (f"{card.primary_keys[0]} is unique", gxe.ExpectColumnValuesToBeUnique(column=card.primary_keys[0]))
        )
    elif card.primary_keys:
        text = f"({', '.join(card.primary_keys)}) is unique"
        made.append((text, gxe.ExpectCompoundColumnsToBeUnique(column_list=list(card.primary_keys))))
    if not made:
        made.append(("the table has columns", gxe.ExpectTableColumnCountToBeBetween(min_value=1)))
    return made


def _exceptions(info: Any) -> list[dict[str, Any]]:
    """Return the exception details, which great-expectations keeps either flat or one level down, by metric."""
    if not isinstance(info, dict):
        return []
    return [info] if "raised_exception" in info else [value for value in info.values() if isinstance(value, dict)]
