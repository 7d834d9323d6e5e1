"""Check `expectations`: great-expectations suites over a bounded sample of merged rows, or over all rows in Spark.

The suites come from the table's schema and the policy. Rows of sampled keys are compared with the table's history
(`dredge.checks.merge_expectations`). The rows of a small table are read once for all its suites. With a folder for Data
Docs each suite has a checkpoint that writes its pages there.

great-expectations is imported only when the check runs (7 s), in a job of its own, so that no compaction waits for
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import dagster as dg
import pyarrow as pa

from dredge.checks.definition import failed_result, unmaintained_result
from dredge.checks.unexpected_keys import file_name_of, write_keys
from dredge.platform_core.metadata import plain_cell
from dredge.platform_core.policies.policy import Expectation
from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import WarehouseResource
from dredge.platform_core.table_card import TableCard
from lsm_core import Table
from lsm_core.errors import CorruptFile, DredgeError
from lsm_core.maintenance import newest_compaction

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS: Final = 500_000
MERGED_ROWS: Final = 200_000
"""Rows whose sampled keys are merged again, in addition to those of the first bucket."""
MERGED_KEYS: Final = 1_024
"""Sampled keys per bucket."""
DESCRIPTION: Final = (
    "great-expectations, in bounded samples: keys are set and unique, NOT NULL columns have no nulls, "
    "the expectations of the policy hold, and merged rows match the merge engine's result for the written versions."
)
MOST_KEYS: Final = 10_000
"""Most unexpected rows of one expectation that are identified; the results count all of them."""
_DOCS_KEYS: Final = 1_000
"""Most unexpected rows of one expectation that are identified if Data Docs are written, whose pages list all of them.
"""
_KEYS_SHOWN: Final = 20
_LONGEST_VALUE: Final = 1_000
_CELLS_SHOWN: Final = 60
_SITE: Final = "dredge"
_PLACE: Final = "place"
SEVERITY: Final = "severity"
"""Key of the severity, ``warn`` or ``error``, in the ``meta`` of every expectation of a suite."""
KEYS_FILE: Final = "file with the keys"
"""Metadata key of a result: path of the file with the keys that break an expectation."""
_STORE_ARGUMENTS: Final = ("warehouse", "table_name", "catalog_options", "clock")
_COLUMN_ARGUMENTS: Final = ("column", "column_A", "column_B", "column_list", "column_set")
"""Arguments of expectations that name columns to read."""


@dataclass(frozen=True)
class SuitePlaces:
    """Files that the evaluation of suites writes.

    Attributes:
        keys: folder for the files with the keys that break an expectation, one file per table, or None for no files.
        docs: folder for the pages of Data Docs, or None for no pages.
        docs_url: address at which a web server serves the folder of the pages, or "".
    """

    keys: Path | None = None
    docs: Path | None = None
    docs_url: str = ""


def suite_result(
    warehouse: WarehouseResource,
    card: TableCard,
    declared: Sequence[Expectation] = (),
    spark: SparkResource | None = None,
    *,
    table: Table | None = None,
    places: SuitePlaces | None = None,
) -> dg.AssetCheckResult:
    """Return the result of a table's suites of expectations.

    Args:
        warehouse: warehouse of the table.
        card: description of the table.
        declared: expectations of the policy, in addition to those of the schema.
        spark: session that checks all rows, or None to check samples in this process.
        table: the opened table, or None to open it.
        places: folders of the files that the suites write (`SuitePlaces`), or None to write none.

    Returns:
        Counts and keys of unexpected rows, as text without markup; a pass for a table that is not maintained. If a file
            of the table cannot be read, a failure that names it.

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
    """
    if card.refusal is not None and not card.unreadable:
        return unmaintained_result(card)
    places = places or SuitePlaces()
    docs = None if places.docs is None else places.docs / file_name_of(card.name)
    try:
        outcomes = suite_outcomes(warehouse, card, declared, spark, None if docs is None else str(docs), table)
    except SuiteCrashed:
        raise
    except CorruptFile as error:
        text = f"no expectation was evaluated: {error.finding}; restore the file or roll the table back"
        return failed_result(text, problems=dg.MetadataValue.md(f"- {plain_cell(error.path)}"))
    except DredgeError as error:
        return failed_result(f"no expectation was evaluated: {type(error).__name__}: {error}", warn=True)
    metadata: dict[str, Any] = {}
    if places.keys is not None:
        file = write_keys(places.keys, card.name, failed_records(outcomes.outcomes))
        metadata |= {} if file is None else {KEYS_FILE: dg.MetadataValue.path(str(file))}
    if docs is not None:
        metadata["data docs"] = dg.MetadataValue.path(str(docs / "index.html"))
        if places.docs_url:
            address = f"{places.docs_url}/{quote(docs.name)}/index.html"
            metadata["data docs (web page)"] = dg.MetadataValue.url(address)
    return _check_result(outcomes, metadata)


def suite_outcomes(
    warehouse: WarehouseResource,
    card: TableCard,
    declared: Sequence[Expectation] = (),
    spark: SparkResource | None = None,
    docs: str | None = None,
    table: Table | None = None,
) -> SuiteOutcomes:
    """Return the outcomes of a table's suites.

    Args:
        warehouse: warehouse of the table.
        card: description of the table.
        declared: expectations of the policy, in addition to those of the schema.
        spark: session that checks all rows, or None to check samples in this process.
        docs: folder for the pages of Data Docs, or None for no pages.
        table: the opened table, or None to open it.

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
        DredgeError: the table cannot be read.
    """
    opened = table or warehouse.table(card.name)
    merged, whole = merged_batches(warehouse, card, spark, opened)
    with _open_stores(merged, opened):
        if spark is not None:
            with rows_in_spark(spark, opened, declared) as frame:
                batches = [rows_batch(card, frame, declared), *merged]
                outcomes = run_batches(card, batches, in_spark=True, docs=docs)
                return SuiteOutcomes(outcomes, frame.count(), "all its rows, in Spark")
        if whole is None:
            sample = read_sample(opened, declared=declared)
        else:
            sample = Sample(_plain_frame(whole, suite_columns(opened, declared)), whole=True)
        batches = [rows_batch(card, sample.frame, declared), *merged]
        where = "all its rows" if sample.whole else "a sample"
        return SuiteOutcomes(run_batches(card, batches, docs=docs), len(sample.frame), where)


def _open_stores(merged: Sequence[Batch], table: Table) -> AbstractContextManager[None]:
    """Return a context in which the expectations of ``merged`` use the opened table, instead of opening it again."""
    if not merged:
        return nullcontext()
    from dredge.checks.merge_expectations import use_open_store

    arguments = {name: getattr(merged[0].expected[0][1], name) for name in _STORE_ARGUMENTS}
    return use_open_store(arguments, table.store)


@dataclass(frozen=True)
class SuiteOutcomes:
    """Outcomes of a table's suites.

    Attributes:
        outcomes: one outcome per expectation, of all suites.
        rows: number of rows that the suite with the expectations of the schema and the policy checked; it is one suite.
            Rows that other suites compare with the history are not counted.
        where: which rows these are: "all its rows, in Spark", "all its rows" or "a sample".
    """

    outcomes: Sequence[ExpectationResult]
    rows: int
    where: str


def failed_records(outcomes: Sequence[ExpectationResult]) -> list[Mapping[str, Any]]:
    """Return the unexpected rows of failed expectations as plain values, each with its expectation and severity."""
    return [
        {"expectation": item.text, "severity": item.severity, **record}
        for item in outcomes
        if not item.passed
        for record in item.records
    ]


def _check_result(result: SuiteOutcomes, more: Mapping[str, Any]) -> dg.AssetCheckResult:
    """Return the outcomes as Dagster's result: the expectations, and keys and values of unexpected rows.

    Args:
        result: outcomes of the suites.
        more: metadata to add to the result, by name.
    """
    outcomes, rows, where = result.outcomes, result.rows, result.where
    lines = ["| expectation | unexpected rows | observed | result | severity |", "|---|--:|---|---|---|"]
    lines += [
        f"| {plain_cell(item.text)} | {item.unexpected:,} | {plain_cell(item.observed)} "
        f"| {'ok' if item.passed else item.outcome} | {item.severity} |"
        for item in outcomes
    ]
    failing = [item for item in outcomes if not item.passed]
    metadata: dict[str, Any] = {
        "rows looked at": dg.MetadataValue.int(rows),
        "checked rows": dg.MetadataValue.text(where),
        "whole table": dg.MetadataValue.bool(where != "a sample"),
        "expectations": dg.MetadataValue.md("\n".join(lines)),
        "rows that break an expectation": dg.MetadataValue.int(sum(item.unexpected for item in outcomes)),
        "rows merged again": dg.MetadataValue.int(max((item.compared for item in outcomes), default=0)),
        "failed expectations (error)": dg.MetadataValue.int(sum(not item.warn for item in failing)),
        "failed expectations (warning)": dg.MetadataValue.int(sum(item.warn for item in failing)),
        **more,
    }
    if failing:
        keys = [
            line
            for item in failing
            for line in (
                *(f"- {plain_cell(item.text)}: {plain_cell(row)}" for row in item.rows),
                *_rest_of_keys(item, str(more[KEYS_FILE].value) if KEYS_FILE in more else ""),
            )
        ]
        if keys:
            metadata["keys that break an expectation"] = dg.MetadataValue.md("\n".join(keys))
        if cells := [line for item in failing for line in item.cells]:
            header = ["| key | difference | column | observed | expected |", "|---|---|---|---|---|"]
            cell_rows = [f"| {' | '.join(map(plain_cell, line))} |" for line in cells[:_CELLS_SHOWN]]
            metadata["observed and expected values"] = dg.MetadataValue.md("\n".join([*header, *cell_rows]))
        worst = next((item for item in failing if not item.warn), failing[0])
        others = f" ({len(failing)} failed expectations)" if len(failing) > 1 else ""
        text = f"{worst.text}: {worst.failure}{others}"
        return failed_result(text, warn=worst.warn, **metadata)
    holds_text = f"{len(outcomes)} expectations hold over {rows:,} rows"
    return dg.AssetCheckResult(passed=True, description=holds_text, metadata=metadata)


def _rest_of_keys(item: ExpectationResult, file: str) -> list[str]:
    """Return a line that says how many unexpected rows are not shown and where they are, or no line if all are shown.

    Args:
        item: outcome of a failed expectation.
        file: path of the file with the keys, or "".
    """
    if item.unexpected <= len(item.rows):
        return []
    listed = len(item.records)
    share = "all" if listed >= item.unexpected else f"the first {listed:,}"
    where = f"{share} in {file}" if file else "`dredge expectations --keys FOLDER` lists them"
    return [f"- {plain_cell(item.text)}: {len(item.rows)} of {item.unexpected:,} shown; {plain_cell(where)}"]


@dataclass(frozen=True)
class Sample:
    """Sample of a table's rows.

    Attributes:
        frame: the rows.
        whole: whether the frame has all rows of the table.
    """

    frame: pd.DataFrame
    whole: bool


def suite_columns(table: Table, declared: Sequence[Expectation] = ()) -> list[str]:
    """Return the columns that a suite reads: keys, NOT NULL columns, and columns of declared expectations.

    Args:
        table: the table.
        declared: expectations of the policy.

    Raises:
        SuiteCrashed: an expectation names a column that the table does not have.
    """
    schema = table.store.schema
    keys, named_columns = set(schema.primary_keys), set[str]()
    for item in declared:
        arguments = [item.kwargs[name] for name in _COLUMN_ARGUMENTS if name in item.kwargs]
        columns = {name for argument in arguments for name in ([argument] if isinstance(argument, str) else argument)}
        if unknown := sorted(columns - set(schema.field_names)):
            raise SuiteCrashed(
                f"table {table.name}: expectation '{item.type}' of the policy names column {unknown[0]!r}; "
                f"the columns are {', '.join(schema.field_names)}"
            )
        named_columns |= columns
    return [
        column.name
        for column in schema.fields
        if column.name in keys or column.name in named_columns or not column.type.nullable
    ] or [schema.fields[0].name]


def read_sample(table: Table, max_rows: int = MAX_ROWS, declared: Sequence[Expectation] = ()) -> Sample:
    """Read up to `max_rows` merged rows of the columns that a suite needs.

    A key is in one bucket only, so a truncated sample still shows duplicates.

    Args:
        table: the table.
        max_rows: most rows to read.
        declared: expectations of the policy.
    """
    columns = suite_columns(table, declared)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in table.to_batches(columns=columns):
        batches.append(batch)
        rows += batch.num_rows
        if rows >= max_rows:
            break
    schema = pa.schema([table.store.schema.arrow_schema.field(name) for name in columns])
    whole = rows < max_rows
    return Sample(_plain_frame(pa.Table.from_batches(batches, schema=schema).slice(0, max_rows), columns), whole)


def _plain_frame(rows: pa.Table, columns: Sequence[str]) -> pd.DataFrame:
    """Return some columns of rows as a pandas frame of NumPy columns, for expectations of great-expectations itself."""
    frame: pd.DataFrame = rows.select(list(columns)).to_pandas()
    return frame


@contextmanager
def rows_in_spark(spark: SparkResource, table: Table, declared: Sequence[Expectation] = ()) -> Iterator[Any]:
    """Provide all merged rows of a suite's columns as a Spark DataFrame, cached while several expectations read it.

    The cache spills to the disks of Spark. Raises the errors of opening a session.

    Args:
        spark: Spark session that reads the rows.
        table: the table.
        declared: expectations of the policy, whose columns are also read.

    Yields:
        The DataFrame.
    """
    from lsm_core.spark import read_table

    frame = read_table(spark.session(), table, columns=suite_columns(table, declared)).persist()
    try:
        yield frame
    finally:
        frame.unpersist()


class SuiteCrashed(DredgeError):
    """Error: an expectation could not be evaluated, which is a fault of the check, not of the data."""


@dataclass(frozen=True)
class ExpectationResult:
    """Outcome of one expectation.

    Attributes:
        text: the expectation in words.
        passed: whether the expectation holds.
        unexpected: number of unexpected rows.
        rows: texts of the first unexpected rows: value and key, difference to the history, or number in the sample.
        warn: whether a failure only warns.
        observed: observation of great-expectations, in words.
        cells: lines of key, reason, column, observed and expected value of the first unexpected rows.
        compared: number of rows that were compared with the table's history.
        of_merge: whether the expectation is about the result of merging, not about the rows themselves.
        records: the first `MOST_KEYS` unexpected rows as plain values. The names are ``key`` and ``value``, ``key`` and
            ``difference``, or in tables without a key ``row`` (number in the sample).
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
    records: tuple[Mapping[str, Any], ...] = ()

    @property
    def outcome(self) -> str:
        """Outcome in one word: ``passed``, ``warning`` or ``failed``."""
        return "passed" if self.passed else "warning" if self.warn else "failed"

    @property
    def severity(self) -> str:
        """Severity of a failure: ``warn`` or ``error``."""
        return "warn" if self.warn else "error"

    @property
    def failure(self) -> str:
        """What was observed instead of the expectation, in one sentence."""
        if self.of_merge:
            return self.observed
        if not self.unexpected:
            return f"observed {self.observed or 'that it does not hold'}"
        return f"{self.unexpected:,} unexpected rows; the source data are wrong, maintenance did not change them"

    def to_plain(self) -> dict[str, Any]:
        """Return the outcome as plain values for JSON."""
        return {
            "expectation": self.text,
            "outcome": self.outcome,
            "rows_that_break_it": self.unexpected,
            "rows": list(self.rows),
            "observed": self.observed,
        }


@dataclass(frozen=True)
class Batch:
    """Rows with their expectations.

    Attributes:
        name: name of the batch, its suite and its checkpoint.
        frame: the rows, a pandas or Spark frame.
        expected: the expectations, each with its text and whether a failure only warns.
        keys: columns that identify a row.
        of_merge: whether the expectations are those of `dredge.checks.merge_expectations`.
    """

    name: str
    frame: Any
    expected: Sequence[tuple[str, Any, bool]]
    keys: Sequence[str] = ()
    of_merge: bool = False


def run_suite(
    card: TableCard, frame: Any, declared: Sequence[Expectation] = (), *, in_spark: bool = False
) -> list[ExpectationResult]:
    """Evaluate the suite of a table's rows over a frame. Raises SuiteCrashed if an expectation cannot be evaluated.

    Args:
        card: description of the table.
        frame: the rows, a pandas or Spark frame.
        declared: expectations of the policy.
        in_spark: whether the frame is a Spark frame.
    """
    return run_batches(card, [rows_batch(card, frame, declared)], in_spark=in_spark)


def rows_batch(card: TableCard, frame: Any, declared: Sequence[Expectation] = ()) -> Batch:
    """Return rows with the expectations of the schema and the policy.

    The failure of an expectation of the schema only warns. An expectation of the policy replaces the expectation of the
    schema that has the same type and columns.

    Args:
        card: description of the table.
        frame: the rows, a pandas or Spark frame.
        declared: expectations of the policy.

    Raises:
        SuiteCrashed: the policy names an unknown expectation.
    """
    of_policy = [_policy_expectation(card, item) for item in declared]
    replaced = {_identity(expectation) for _, expectation, _ in of_policy}
    own = [
        (text, expectation, True)
        for text, expectation in schema_expectations(card, frame)
        if _identity(expectation) not in replaced
    ]
    keys = [name for name in card.primary_keys if name in frame.columns]
    return Batch(f"{card.name}: rows", frame, [*own, *of_policy], keys)


def _identity(expectation: Any) -> tuple[str, str]:
    """Return (type, columns) of an expectation, by which the policy's expectation replaces that of the schema."""
    columns = {name: getattr(expectation, name) for name in _COLUMN_ARGUMENTS if hasattr(expectation, name)}
    return type(expectation).__name__, repr(columns)


def merged_batches(
    warehouse: WarehouseResource, card: TableCard, spark: SparkResource | None = None, table: Table | None = None
) -> tuple[list[Batch], pa.Table | None]:
    """Read rows of sampled keys of the newest snapshot and the newest compaction, to compare with the history.

    Args:
        warehouse: the warehouse of the table.
        card: description of the table; without a primary key or a snapshot, there are no batches.
        spark: Spark session that reads the rows, or None to read them in this process.
        table: the opened table, or None to open it.

    Returns:
        The batches, and the rows of the newest snapshot if its batch has all of them, else None.
    """
    table = table or warehouse.table(card.name)
    latest = table.latest_snapshot()
    if latest is None or not card.primary_keys:
        return [], None
    from dredge.checks.merge_expectations import ExpectCompactionToKeepRows, frame_of, merge_expectations
    from lsm_core.maintenance.checks.bucket_sample import SampledRows, check_input_at, read_sampled_rows

    samples: dict[int, SampledRows] = {}

    def batch(snapshot_id: int, name: str, *, compaction: bool) -> Batch:
        """Read the rows of a snapshot. Very wide rows make the sample smaller; the expectations get the actual size.

        Args:
            snapshot_id: snapshot to read.
            name: end of the name of the batch.
            compaction: whether to expect the rows from before a compaction, instead of the merge rules.
        """
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
            if snapshot_id not in samples:
                check_input = check_input_at(table.store, snapshot_id, rows=MERGED_ROWS, keys=MERGED_KEYS)
                samples[snapshot_id] = read_sampled_rows(check_input)
            arguments["keys"] = samples[snapshot_id].keys
            frame: Any = frame_of(samples[snapshot_id].rows, snapshot_id)
        else:
            from lsm_core.spark import read_table

            frame = read_table(spark.session(), table, snapshot_id=snapshot_id)
        if compaction:
            merge_suite: Sequence[Any] = [ExpectCompactionToKeepRows(**arguments)]
        else:
            arguments |= {"store": table.store}
            merge_suite = merge_expectations(**arguments)
        expected = [
            (expectation.sentence.replace("$table_name", card.name).rstrip("."), expectation, False)
            for expectation in merge_suite
        ]
        return Batch(f"{card.name}: {name}", frame, expected, of_merge=True)

    batches = [batch(latest.id, "merged rows", compaction=False)]
    compacted = newest_compaction(table.store)
    if compacted is not None:
        batches.append(batch(compacted, f"rows after compaction {compacted}", compaction=True))
    whole = samples.get(latest.id)
    return batches, whole.rows if whole is not None and whole.whole else None


def run_batches(
    card: TableCard, batches: Sequence[Batch], *, in_spark: bool = False, docs: str | None = None
) -> list[ExpectationResult]:
    """Run the checkpoint of each batch.

    Args:
        card: description of the table.
        batches: rows with their expectations.
        in_spark: whether the frames are Spark frames.
        docs: folder for the pages of Data Docs, or None for no pages.

    Returns:
        The outcomes in the order of the expectations.

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
    """
    import great_expectations as gx
    from great_expectations.checkpoint import UpdateDataDocsAction

    outcomes: list[ExpectationResult] = []
    if docs is None:  # a checkpoint takes five times as long as its suite over a small table
        definition = _new_definition(in_spark=True) if in_spark else _definition_of_process()
        for batch in batches:
            suite = gx.ExpectationSuite(name=batch.name, expectations=_marked_expectations(batch))
            rows = definition.get_batch({"dataframe": batch.frame})
            result = rows.validate(suite, result_format=_format(batch, MOST_KEYS))
            outcomes += _read_outcomes(card, batch, result.results)
        return outcomes
    context, source = _new_source(in_spark=in_spark)
    context.add_data_docs_site(_SITE, _data_docs_site(docs))
    actions = [UpdateDataDocsAction(name="data docs", site_names=[_SITE])]
    for batch in batches:
        definition = source.add_dataframe_asset(batch.name).add_batch_definition_whole_dataframe("all")
        suite = gx.ExpectationSuite(name=batch.name, expectations=_marked_expectations(batch))
        validation = gx.ValidationDefinition(name=batch.name, data=definition, suite=context.suites.add(suite))
        checkpoint = gx.Checkpoint(
            name=batch.name,
            validation_definitions=[context.validation_definitions.add(validation)],
            actions=actions,
            result_format=_format(batch, _DOCS_KEYS),
        )
        run = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": batch.frame})
        for page in run.run_results.values():
            outcomes += _read_outcomes(card, batch, page.results)
    return outcomes


def _new_source(*, in_spark: bool) -> tuple[Any, Any]:
    """Return a new context of great-expectations, and its source of pandas or Spark frames."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(enable=False)
    context.variables.progress_bars = {"globally": False}
    return context, context.data_sources.add_spark("rows") if in_spark else context.data_sources.add_pandas("rows")


def _new_definition(*, in_spark: bool) -> Any:
    """Return a new batch definition for a whole frame."""
    _, source = _new_source(in_spark=in_spark)
    return source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")


@lru_cache(maxsize=1)
def _definition_of_process() -> Any:
    """Return the batch definition for all pandas frames of this process.

    A new one for each table takes as long as three expectations, because great-expectations writes its configuration.
    """
    return _new_definition(in_spark=False)


def _marked_expectations(batch: Batch) -> list[Any]:
    """Return the expectations of a batch, each marked with its index and severity to recognise its result.

    The results of great-expectations need not have the order of the expectations.
    """
    for place, (_, expectation, warn) in enumerate(batch.expected):
        expectation.meta = {**(expectation.meta or {}), _PLACE: place, SEVERITY: "warn" if warn else "error"}
        expectation.severity = type(expectation.severity)("warning" if warn else "critical")
    return [expectation for _, expectation, _ in batch.expected]


def _format(batch: Batch, most: int) -> dict[str, Any]:
    """Return the argument `result_format` of great-expectations for a batch.

    It requests counts, and the keys of the first `most` unexpected rows.
    """
    keys = {"unexpected_index_column_names": list(batch.keys)} if batch.keys else {}
    return {"result_format": "SUMMARY", "partial_unexpected_count": most, **keys}


def _read_outcomes(card: TableCard, batch: Batch, results: Sequence[Any]) -> list[ExpectationResult]:
    """Convert the results of great-expectations for a batch, and return them in the order of its expectations.

    Args:
        card: description of the table.
        batch: the rows and expectations.
        results: results of great-expectations, in any order.

    Raises:
        SuiteCrashed: an expectation could not be evaluated.
    """
    from dredge.checks.merge_expectations import difference_lines

    outcomes: dict[int, ExpectationResult] = {}
    for item in results:
        position = item.expectation_config.meta[_PLACE]
        text, _, warn = batch.expected[position]
        if any(detail.get("raised_exception") for detail in _read_exceptions(item.exception_info)):
            messages = (
                " ".join(str(detail.get("exception_message", "")).split())
                for detail in _read_exceptions(item.exception_info)
            )
            crash_text = "; ".join(dict.fromkeys(message for message in messages if message))
            raise SuiteCrashed(f"table {card.name}: expectation '{text}' crashed: {crash_text}")
        details = item.result or {}
        records = _records_of(batch, details)
        differences = (details.get("details") or {}).get("differences") or () if batch.of_merge else ()
        outcomes[position] = ExpectationResult(
            text,
            bool(item.success),
            int(details.get("unexpected_count") or 0),
            tuple(_record_text(record) for record in records[:_KEYS_SHOWN]),
            warn,
            _observed_text(details),
            tuple(line for difference in differences for line in difference_lines(difference)),
            int(details.get("element_count") or 0) if batch.of_merge else 0,
            batch.of_merge,
            tuple(records),
        )
    return [outcomes[position] for position in sorted(outcomes)]


def _data_docs_site(folder: str) -> dict[str, Any]:
    """Return the configuration of a Data Docs site with its pages in a folder."""
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": folder}
    return {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": backend,
    }


def _observed_text(details: Mapping[str, Any]) -> str:
    """Return what great-expectations observed: the value of a table or column, or the share of unexpected rows."""
    if details.get("observed_value") is not None:
        return _value_text(details["observed_value"])
    if details.get("element_count") is None or details.get("unexpected_count") is None:
        return ""
    share = 100 * details["unexpected_count"] / max(details["element_count"], 1)
    return f"{share:.3g} % of {details['element_count']:,} rows"


def _records_of(batch: Batch, details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the unexpected rows of a result as plain values for JSON.

    Args:
        batch: rows and expectations.
        details: result of one expectation.

    Returns:
        For each row its key, and the unexpected values or the difference to the history. Rows of tables without a key
            have their number in the sample.
    """
    listed = (details.get("partial_unexpected_index_list") or ())[:MOST_KEYS]
    if batch.of_merge:
        texts = (details.get("partial_unexpected_list") or ())[:MOST_KEYS]
        return [{"key": key, "difference": text} for key, text in zip(listed, texts, strict=True)]
    records: list[Mapping[str, Any]] = []
    for row in listed:
        if not isinstance(row, dict):
            records.append({"row": int(row)})
            continue
        values = {str(name): _value_text(value) for name, value in row.items()}
        key = {name: values.pop(name) for name in batch.keys if name in values}
        records.append({"key": key, "value": values})
    return records


def _value_text(value: Any) -> str:
    """Return a value as text of bounded length."""
    text = str(value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text):,} characters)"


def _record_text(record: Mapping[str, Any]) -> str:
    """Return an unexpected row as text: values and key, difference to the history, or row number in the sample."""
    if "difference" in record:
        return str(record["difference"])
    if "row" in record:
        return f"row {record['row']} of the sample"
    return ", ".join(f"{name}={value}" for name, value in {**record["value"], **record["key"]}.items())


def _policy_expectation(card: TableCard, item: Expectation) -> tuple[str, Any, bool]:
    """Convert an expectation of the policy to one of great-expectations.

    Args:
        card: description of the table.
        item: the expectation in the policy.

    Returns:
        Text of the expectation, the expectation, and whether its failure only warns.

    Raises:
        SuiteCrashed: the expectation is unknown, or its arguments are invalid.
    """
    from great_expectations.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.registry import get_expectation_impl

    arguments = ", ".join(f"{name}={value!r}" for name, value in item.kwargs.items())
    text = f"{item.type}({arguments})"
    try:
        expectation = get_expectation_impl(item.type)(**{"meta": item.meta or None, **item.kwargs})
    except ExpectationNotFoundError as error:
        raise SuiteCrashed(f"table {card.name}: great-expectations has no '{item.type}'") from error
    except (TypeError, ValueError) as error:
        lines = " ".join(str(error).split())
        raise SuiteCrashed(f"table {card.name}: expectation '{text}' of the policy: {lines}") from error
    return text, expectation, item.severity == "warn"


def schema_expectations(card: TableCard, frame: Any) -> list[tuple[str, Any]]:
    """Return pairs of the text and the expectation for each rule of the schema.

    Args:
        card: description of the table.
        frame: rows whose columns are checked, a pandas or Spark frame.
    """
    import great_expectations.expectations as gxe

    present = set(frame.columns)
    required = [
        column.name
        for column in card.columns
        if column.name in present and (not column.nullable or column.name in card.primary_keys)
    ]
    suite: list[tuple[str, Any]] = [
        (f"{name} is never null", gxe.ExpectColumnValuesToNotBeNull(column=name)) for name in required
    ]
    if len(card.primary_keys) == 1:
        suite.append(
            (f"{card.primary_keys[0]} is unique", gxe.ExpectColumnValuesToBeUnique(column=card.primary_keys[0]))
        )
    elif card.primary_keys:
        text = f"({', '.join(card.primary_keys)}) is unique"
        suite.append((text, gxe.ExpectCompoundColumnsToBeUnique(column_list=list(card.primary_keys))))
    if not suite:
        suite.append(("the table has columns", gxe.ExpectTableColumnCountToBeBetween(min_value=1)))
    return suite


def _read_exceptions(info: Any) -> list[dict[str, Any]]:
    """Return the details of exceptions in `exception_info` of a result of great-expectations.

    `info` itself has the details, or it maps each metric to details.
    """
    if not isinstance(info, dict):
        return []
    return [info] if "raised_exception" in info else [value for value in info.values() if isinstance(value, dict)]
