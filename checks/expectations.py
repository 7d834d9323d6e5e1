"""expectations: a great-expectations suite made from a table's schema, held against a bounded sample of its merged rows.

great-expectations is imported only when the check runs (7 s), on a job of its own, so that no compaction waits for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
import pyarrow as pa

from checks.definition import checked_table, declare, declined, failed
from lsm_core import Table
from lsm_core.errors import DredgeError
from orchestration import names
from orchestration.ops.each_table import each_table
from orchestration.quirks import typed
from orchestration.resources.warehouse import WarehouseResource, describe_warehouse
from orchestration.table_card import TableCard

if TYPE_CHECKING:
    import pandas as pd

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

MAX_ROWS: Final = 500_000
DESCRIPTION: Final = (
    "great-expectations: keys are there and unique, NOT NULL columns hold no null, in a bounded sample of merged rows."
)


def suite_check(card: TableCard, data: dg.AssetKey) -> dg.AssetChecksDefinition:
    """Return the check over ``card``'s data asset; it warns and never blocks: dirt in the source is not maintenance's doing."""
    return declare(card, data, names.SUITE_CHECK, DESCRIPTION, _check, whole_table=True)


def _check(context: dg.AssetCheckExecutionContext, warehouse: WarehouseResource) -> dg.AssetCheckResult:
    return suite_result(warehouse, checked_table(context, warehouse))


def suite_result(warehouse: WarehouseResource, card: TableCard) -> dg.AssetCheckResult:
    """Hold one table's sample to its suite; raises ``SuiteCrashed`` and what reading the table raises."""
    if card.refusal is not None:
        return declined(card)
    sample = read_sample(warehouse.table(card.name))
    outcomes = run_suite(card, sample.frame)
    lines = ["| expectation | rows that break it | |", "|---|--:|---|"]
    lines += [f"| {item.text} | {item.unexpected:,} | {'ok' if item.passed else 'broken'} |" for item in outcomes]
    metadata = {
        "rows looked at": dg.MetadataValue.int(len(sample.frame)),
        "whole table": dg.MetadataValue.bool(sample.whole),
        "expectations": dg.MetadataValue.md("\n".join(lines)),
        "rows that break an expectation": dg.MetadataValue.int(sum(item.unexpected for item in outcomes)),
    }
    broken = [item for item in outcomes if not item.passed]
    if broken:
        text = (
            f"{broken[0].text}: {broken[0].unexpected:,} rows break it; dirt in the source, maintenance changed nothing"
        )
        return failed(text, warn=True, **metadata)
    return dg.AssetCheckResult(
        passed=True,
        description=f"{len(outcomes)} expectations hold over {len(sample.frame):,} rows",
        metadata=metadata,
    )


@dg.op(
    name="hold_to_rules",
    description="Hold a bounded sample of every table to the suite made from its schema, and tell the outcome as its check expectations.",
    out=dg.Out(dg.Nothing),
    tags={"dagster/kind/dredge": ""},
)
@typed
def expectations_op(context: dg.OpExecutionContext, warehouse: WarehouseResource) -> None:
    """Evaluate the suites of all tables that maintenance looks after; a table whose suite fails to run stops no other.

    At the end the op fails and names the tables whose suites could not be run.
    """

    def evaluate(card: TableCard) -> None:
        result = suite_result(warehouse, card)
        context.log.info("%s: %s", card.name, result.description)
        evaluation = dg.AssetCheckEvaluation(
            asset_key=names.data_key(warehouse.path, card.name),
            check_name=names.SUITE_CHECK,
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
        )
        context.log_event(evaluation)  # type: ignore[arg-type]  # stored at once; Dagster's type leaves evaluations out

    cards = {card.name: card for card in describe_warehouse(warehouse) if card.refusal is None}
    each_table(context, cards, evaluate)


@dataclass(frozen=True)
class Sample:
    """A pandas frame and whether it holds the whole table."""

    frame: pd.DataFrame
    whole: bool


def wanted_columns(table: Table) -> list[str]:
    """Return the columns that a suite can say something about: keys and NOT NULL columns."""
    schema = table.store.schema
    keys = set(schema.primary_keys)
    return [column.name for column in schema.fields if column.name in keys or not column.type.nullable] or [
        schema.fields[0].name
    ]


def read_sample(table: Table, max_rows: int = MAX_ROWS) -> Sample:
    """Read up to ``max_rows`` merged rows. Keys of one bucket are never in another, so a cut sample still shows duplicates."""
    columns = wanted_columns(table)
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


class SuiteCrashed(DredgeError):
    """An expectation could not be evaluated: a fault of the check, not of the data."""


@dataclass(frozen=True)
class ExpectationResult:
    """One expectation in words, whether it holds, and how many rows break it."""

    text: str
    passed: bool
    unexpected: int


def run_suite(card: TableCard, frame: pd.DataFrame) -> list[ExpectationResult]:
    """Evaluate the suite over ``frame``; raises ``SuiteCrashed`` when an expectation itself fails to run."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    batch = (
        context.data_sources.add_pandas("rows")
        .add_dataframe_asset(card.name)
        .add_batch_definition_whole_dataframe("all")
    )
    suite = gx.ExpectationSuite(
        name=f"{card.name} keeps its own rules", expectations=[made for _, made in expectations(card, frame)]
    )
    result = batch.get_batch({"dataframe": frame}).validate(suite)
    texts = [text for text, _ in expectations(card, frame)]
    outcomes = []
    for text, item in zip(texts, result.results, strict=True):
        if any(detail.get("raised_exception") for detail in _exceptions(item.exception_info)):
            raise SuiteCrashed(f"table {card.name}: expectation '{text}' crashed: {item.exception_info}")
        unexpected = int((item.result or {}).get("unexpected_count") or 0)
        outcomes.append(ExpectationResult(text, bool(item.success), unexpected))
    return outcomes


def expectations(card: TableCard, frame: pd.DataFrame) -> list[tuple[str, Any]]:
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
