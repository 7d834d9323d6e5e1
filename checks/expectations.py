"""expectations: a great-expectations suite made from a table's schema and what its policy declares, held against a bounded sample of its merged rows, or against all of them in Spark.

Rows of sampled keys are held against what the table's history says of them (`checks.merge_expectations`). Each batch has a suite and a
checkpoint; with a folder for Data Docs they write their pages there.

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
from lsm_core.maintenance import newest_compaction
from orchestration.metadata import plain_cell
from orchestration.policies.policy import Expectation
from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import WarehouseResource
from orchestration.table_card import TableCard

if TYPE_CHECKING:
    import pandas as pd

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")

MAX_ROWS: Final = 500_000
MERGED_ROWS: Final = 200_000
"""Rows of which sampled keys are merged again, apart from those of the first bucket."""
MERGED_KEYS: Final = 1_024
"""Sampled keys per bucket."""
DESCRIPTION: Final = "great-expectations: keys are there and unique, NOT NULL columns hold no null, what the policy declares holds, and merged rows are what the merge engine makes of the written versions, in bounded samples."
_KEYS_SHOWN: Final = 20
_CELLS_SHOWN: Final = 60
_SITE: Final = "dredge"
_PLACE: Final = "place"
_COLUMN_ARGUMENTS: Final = ("column", "column_A", "column_B", "column_list", "column_set")
"""Arguments of expectations that name columns to read."""


def suite_result(
    warehouse: WarehouseResource,
    card: TableCard,
    declared: Sequence[Expectation] = (),
    spark: SparkResource | None = None,
    docs: str | None = None,
) -> dg.AssetCheckResult:
    """Return the result of a table's suites of expectations.

    Args:
        warehouse: warehouse of the table.
        card: description of the table.
        declared: expectations of the policy, beside those that follow from the schema.
        spark: session that checks all rows, or None to check samples in this process.
        docs: folder for the pages of Data Docs, or None for no pages.

    Returns:
        Counts and keys of rows that break an expectation, as text without markup; a pass for a table that maintenance leaves alone.

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
        DredgeError: the table cannot be read.
    """
    if card.refusal is not None:
        return declined(card)
    return _told(suite_outcomes(warehouse, card, declared, spark, docs))


def suite_outcomes(
    warehouse: WarehouseResource,
    card: TableCard,
    declared: Sequence[Expectation] = (),
    spark: SparkResource | None = None,
    docs: str | None = None,
) -> SuiteOutcomes:
    """Return the outcomes of a table's suites; arguments and errors are those of `suite_result`."""
    merged = merged_batches(warehouse, card, spark)
    if spark is not None:
        with rows_in_spark(spark, warehouse.table(card.name), declared) as frame:
            batches = [rows_batch(card, frame, declared), *merged]
            outcomes = run_batches(card, batches, in_spark=True, docs=docs)
            return SuiteOutcomes(outcomes, frame.count(), "all its rows, in Spark")
    sample = read_sample(warehouse.table(card.name), declared=declared)
    batches = [rows_batch(card, sample.frame, declared), *merged]
    where = "all its rows" if sample.whole else "a sample"
    return SuiteOutcomes(run_batches(card, batches, docs=docs), len(sample.frame), where)


@dataclass(frozen=True)
class SuiteOutcomes:
    """Outcomes of a table's suites.

    Attributes:
        outcomes: one for each expectation.
        rows: number of rows that the suite of the schema and the policy looked at.
        where: which rows these are.
    """

    outcomes: Sequence[ExpectationResult]
    rows: int
    where: str


def _told(found: SuiteOutcomes) -> dg.AssetCheckResult:
    """Return the outcomes as Dagster's result: the expectations, the keys of rows that break one, and their values."""
    outcomes, rows, where = found.outcomes, found.rows, found.where
    lines = ["| expectation | rows that break it | observed | |", "|---|--:|---|---|"]
    lines += [
        f"| {plain_cell(item.text)} | {item.unexpected:,} | {plain_cell(item.observed)} | {'ok' if item.passed else 'broken'} |"
        for item in outcomes
    ]
    metadata = {
        "rows looked at": dg.MetadataValue.int(rows),
        "which rows": dg.MetadataValue.text(where),
        "whole table": dg.MetadataValue.bool(where != "a sample"),
        "expectations": dg.MetadataValue.md("\n".join(lines)),
        "rows that break an expectation": dg.MetadataValue.int(sum(item.unexpected for item in outcomes)),
        "rows merged again": dg.MetadataValue.int(max((item.compared for item in outcomes), default=0)),
    }
    broken = [item for item in outcomes if not item.passed]
    if broken:
        named = [f"- {plain_cell(item.text)}: {plain_cell(str(row))}" for item in broken for row in item.rows]
        if named:
            metadata["keys that break an expectation"] = dg.MetadataValue.md("\n".join(named))
        if cells := [line for item in broken for line in item.cells]:
            head = ["| key | what is wrong | column | observed | expected |", "|---|---|---|---|---|"]
            listed = [f"| {' | '.join(map(plain_cell, line))} |" for line in cells[:_CELLS_SHOWN]]
            metadata["observed and expected values"] = dg.MetadataValue.md("\n".join([*head, *listed]))
        worst = next((item for item in broken if not item.warn), broken[0])
        share = f"{worst.unexpected:,} rows break it" if worst.unexpected else "it does not hold"
        text = f"{worst.text}: {share}; dirt in the source, maintenance changed nothing"
        if worst.of_merge:
            text = f"{worst.text}: {worst.observed}"
        return failed(text, warn=worst.warn, **metadata)
    held = f"{len(outcomes)} expectations hold over {rows:,} rows"
    return dg.AssetCheckResult(passed=True, description=held, metadata=metadata)


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
    """Outcome of one expectation.

    Attributes:
        text: the expectation in words.
        passed: whether it holds.
        unexpected: number of rows that break it.
        rows: the first of these rows by their keys.
        warn: whether a failure only warns.
        observed: what great-expectations observed, in words.
        cells: lines of key, reason, column, observed and expected value of the first rows that break it.
        compared: number of rows that were compared with the table's history.
        of_merge: whether it is about what merging made of the rows, not about the rows themselves.
    """

    text: str
    passed: bool
    unexpected: int
    rows: tuple[str, ...] = ()
    warn: bool = True
    observed: str = ""
    cells: tuple[Sequence[str], ...] = ()
    compared: int = 0
    of_merge: bool = False

    @property
    def outcome(self) -> str:
        """``passed``, ``warning`` or ``failed``."""
        return "passed" if self.passed else "warning" if self.warn else "failed"

    def to_plain(self) -> dict[str, Any]:
        """Return the outcome as plain values, for JSON."""
        return {
            "expectation": self.text,
            "outcome": self.outcome,
            "rows_that_break_it": self.unexpected,
            "rows": list(self.rows),
            "observed": self.observed,
        }


@dataclass(frozen=True)
class Batch:
    """Rows and what is expected of them.

    Attributes:
        name: name of the batch, its suite and its checkpoint.
        frame: the rows, a frame of pandas or of Spark.
        expected: the expectations, each with its words and whether a failure only warns.
        keys: columns by which rows are named.
        of_merge: whether the expectations are those of `checks.merge_expectations`.
    """

    name: str
    frame: Any
    expected: Sequence[tuple[str, Any, bool]]
    keys: Sequence[str] = ()
    of_merge: bool = False


def run_suite(
    card: TableCard, frame: Any, declared: Sequence[Expectation] = (), *, in_spark: bool = False
) -> list[ExpectationResult]:
    """Evaluate the suite of a table's rows over ``frame``, of pandas, or ``in_spark`` of Spark. Raises SuiteCrashed where an expectation cannot be evaluated."""
    return run_batches(card, [rows_batch(card, frame, declared)], in_spark=in_spark)


def rows_batch(card: TableCard, frame: Any, declared: Sequence[Expectation] = ()) -> Batch:
    """Return rows with what the schema promises and what the policy declares of them. Raises SuiteCrashed for a declared expectation that there is not."""
    own = [(text, made, True) for text, made in expectations(card, frame)]
    keys = [name for name in card.primary_keys if name in frame.columns]
    return Batch(f"{card.name}: rows", frame, [*own, *(_declared(card, item) for item in declared)], keys)


def merged_batches(warehouse: WarehouseResource, card: TableCard, spark: SparkResource | None = None) -> list[Batch]:
    """Return rows of sampled keys, with what the table's history says of them: of the newest snapshot, and of the newest compaction.

    Args:
        warehouse: the warehouse of the table.
        card: the table; one without a primary key, or without a snapshot, has no such rows.
        spark: where the rows are read, None for this process.
    """
    table = warehouse.table(card.name)
    latest = table.latest_snapshot()
    if latest is None or not card.primary_keys:
        return []
    from checks.merge_expectations import ExpectCompactionToKeepRows, frame_of, merge_expectations
    from lsm_core.maintenance.checks.sampled_rows import question_at, read_sampled_rows

    def batch(snapshot_id: int, name: str, *, compaction: bool) -> Batch:
        """Read the rows of a snapshot. Rows that are very wide make the sample smaller, which the expectations must know."""
        arguments: dict[str, Any] = {
            "warehouse": warehouse.path,
            "table_name": card.name,
            "catalog_options": dict(warehouse.catalog_options),
            "snapshot_id": snapshot_id,
            "rows": MERGED_ROWS,
            "keys": MERGED_KEYS,
            "clock": warehouse.clock,
        }
        if spark is None:
            question = question_at(table.store, snapshot_id, rows=MERGED_ROWS, keys=MERGED_KEYS)
            rows, arguments["keys"] = read_sampled_rows(question)
            frame: Any = frame_of(rows, snapshot_id)
        else:
            from lsm_core.spark import read_table

            frame = read_table(spark.session(), table, snapshot_id=snapshot_id)
        if compaction:
            made: Sequence[Any] = [ExpectCompactionToKeepRows(**arguments)]
        else:
            arguments |= {"store": table.store}
            made = merge_expectations(**arguments)
        expected = [(one.sentence.replace("$table_name", card.name).rstrip("."), one, False) for one in made]
        return Batch(f"{card.name}: {name}", frame, expected, of_merge=True)

    batches = [batch(latest.id, "merged rows", compaction=False)]
    compacted = newest_compaction(table.store)
    if compacted is not None:
        batches.append(batch(compacted, f"rows after compaction {compacted}", compaction=True))
    return batches


def run_batches(
    card: TableCard, batches: Sequence[Batch], *, in_spark: bool = False, docs: str | None = None
) -> list[ExpectationResult]:
    """Run the checkpoint of each batch.

    Args:
        card: the table.
        batches: rows and what is expected of them.
        in_spark: whether the frames are those of Spark.
        docs: a folder for the pages of Data Docs, None for no pages.

    Returns:
        The outcomes in the order of the expectations.

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
    """
    import great_expectations as gx
    from great_expectations.checkpoint import UpdateDataDocsAction

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    source = context.data_sources.add_spark("rows") if in_spark else context.data_sources.add_pandas("rows")
    actions = []
    if docs is not None:
        context.add_data_docs_site(_SITE, _site(docs))
        actions.append(UpdateDataDocsAction(name="data docs", site_names=[_SITE]))
    outcomes: list[ExpectationResult] = []
    for batch in batches:
        for place, (_, made, _) in enumerate(batch.expected):
            made.meta = {_PLACE: place}  # great-expectations answers in an order of its own
        definition = source.add_dataframe_asset(batch.name).add_batch_definition_whole_dataframe("all")
        suite = gx.ExpectationSuite(name=batch.name, expectations=[made for _, made, _ in batch.expected])
        validation = gx.ValidationDefinition(name=batch.name, data=definition, suite=context.suites.add(suite))
        shown: dict[str, Any] = {"result_format": "SUMMARY", "partial_unexpected_count": _KEYS_SHOWN}
        if batch.keys:
            shown["unexpected_index_column_names"] = list(batch.keys)
        checkpoint = gx.Checkpoint(
            name=batch.name,
            validation_definitions=[context.validation_definitions.add(validation)],
            actions=actions,
            result_format=shown,
        )
        run = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": batch.frame})
        for result in run.run_results.values():
            outcomes += _outcomes(card, batch, result.results)
    return outcomes


def _outcomes(card: TableCard, batch: Batch, results: Sequence[Any]) -> list[ExpectationResult]:
    """Return the results of a batch in the order of its expectations. Raises SuiteCrashed."""
    from checks.merge_expectations import difference_lines

    outcomes: dict[int, ExpectationResult] = {}
    for item in results:
        place = item.expectation_config.meta[_PLACE]
        text, _, warn = batch.expected[place]
        if any(detail.get("raised_exception") for detail in _exceptions(item.exception_info)):
            raise SuiteCrashed(f"table {card.name}: expectation '{text}' crashed: {_crash_text(item.exception_info)}")
        told = item.result or {}
        named = told.get("partial_unexpected_list" if batch.of_merge else "partial_unexpected_index_list") or ()
        differences = (told.get("details") or {}).get("differences") or () if batch.of_merge else ()
        outcomes[place] = ExpectationResult(
            text,
            bool(item.success),
            int(told.get("unexpected_count") or 0),
            tuple(row if batch.of_merge else _row_text(row) for row in named[:_KEYS_SHOWN]),
            warn,
            str(told.get("observed_value", "")),
            tuple(line for difference in differences for line in difference_lines(difference)),
            int(told.get("element_count") or 0) if batch.of_merge else 0,
            batch.of_merge,
        )
    return [outcomes[place] for place in sorted(outcomes)]


def _crash_text(info: Any) -> str:
    """Return the messages of what was raised, without their traces."""
    lines = [" ".join(str(detail.get("exception_message", "")).split()) for detail in _exceptions(info)]
    return "; ".join(dict.fromkeys(line for line in lines if line))


def _site(folder: str) -> dict[str, Any]:
    """Return the configuration of a site of Data Docs whose pages lie in ``folder``."""
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": folder}
    return {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": backend,
    }


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
