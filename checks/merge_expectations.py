"""Expectations of great-expectations over the merged rows of a table; importing this module registers them.

Each expectation compares the rows of a given batch with the table's stored history for the same keys. The batch is a
pandas or Spark frame with the table's columns. Keys are sampled; the sample is the same for the same snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Final

import pandas as pd
import pyarrow as pa
from great_expectations.compatibility import pydantic
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.suite_parameters import SuiteParameterDict
from great_expectations.execution_engine import ExecutionEngine, PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, render_suite_parameter_string
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render import LegacyRendererType, RenderedStringTemplateContent, RenderedTableContent
from great_expectations.render.components import LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer
from great_expectations.render.renderer_configuration import RendererConfiguration, RendererValueType

from lsm_core import Catalog, Table
from lsm_core.clock import clock_from
from lsm_core.errors import InvalidData
from lsm_core.maintenance import checks_of
from lsm_core.maintenance.checks.bucket_sample import check_input_at
from lsm_core.maintenance.checks.expected_rows import ExpectedRows, merge_by_rules, replay_changelog, rows_before
from lsm_core.maintenance.checks.outcome import CheckInput
from lsm_core.maintenance.checks.row_comparison import (
    SHOWN_ROWS,
    ArrowRows,
    ReadRows,
    RowComparison,
    RowDifference,
    compare_keys,
    compare_rows,
)
from lsm_core.metadata.store import TableStore

SNAPSHOT_ATTRIBUTE: Final = "dredge.snapshot"
"""Attribute of a frame of `read_rows` with the snapshot that it was read from."""
_ROWS: Final = 500_000
_KEYS: Final = 1_024
_ARGUMENTS: Final = ("warehouse", "table_name", "catalog_options", "snapshot_id", "rows", "keys", "clock")
_LONGEST_SENTENCE: Final = 400
KEPT_ROWS: Final = 1_000
"""Most differing rows that one expectation reports, if its result format asks for so many."""
_OPEN_STORES: ContextVar[Mapping[tuple[Any, ...], TableStore] | None] = ContextVar("open stores", default=None)


def read_rows(table: Table, snapshot_id: int | None = None) -> pd.DataFrame:
    """Read the merged rows of a table into a frame that keeps their exact values and the snapshot.

    Args:
        table: the table.
        snapshot_id: the snapshot, or None for the newest.

    Returns:
        A frame of Arrow columns. NumPy columns cannot distinguish null from NaN, nor hold null among large integers.
    """
    latest = table.latest_snapshot() if snapshot_id is None else None
    resolved_id = snapshot_id if latest is None else latest.id
    return frame_of(table.to_arrow(snapshot_id=resolved_id), resolved_id)


def frame_of(rows: pa.Table, snapshot_id: int | None) -> pd.DataFrame:
    """Return rows as a pandas DataFrame of Arrow types; `attrs[SNAPSHOT_ATTRIBUTE]` is the snapshot id or None."""
    frame: pd.DataFrame = rows.to_pandas(types_mapper=pd.ArrowDtype)
    frame.attrs[SNAPSHOT_ATTRIBUTE] = snapshot_id
    return frame


def merge_expectations(
    warehouse: str,
    table_name: str,
    store: TableStore,
    *,
    catalog_options: Mapping[str, str] | None = None,
    snapshot_id: int | None = None,
    rows: int = _ROWS,
    keys: int = _KEYS,
    clock: str = "system",
) -> list[MergeExpectation]:
    """Return the expectations over rows of one snapshot that apply to the table; an append table has none.

    Args:
        warehouse: root of the catalog.
        table_name: the table, as ``database.table``.
        store: the same table, opened.
        catalog_options: options of the catalog.
        snapshot_id: snapshot of the batch; None for the snapshot attribute of the frame, or the newest snapshot.
        rows: number of rows to read, in addition to the first bucket.
        keys: number of keys per bucket to compare.
        clock: clock by which rows expire.
    """
    arguments: dict[str, Any] = {
        "warehouse": warehouse,
        "table_name": table_name,
        "catalog_options": dict(catalog_options or {}),
        "snapshot_id": snapshot_id,
        "rows": rows,
        "keys": keys,
        "clock": clock,
    }
    applicable = {check.name for check in checks_of(store.schema.primary_keys, store.schema.options)}
    classes = {
        "unique_keys": ExpectPrimaryKeysToBeUnique,
        "merge_engine_rules": ExpectRowsToFollowMergeEngine,
        "changelog_replays": ExpectChangelogToReplayToRows,
    }
    return [expectation_class(**arguments) for check, expectation_class in classes.items() if check in applicable]


class _RowMetric(TableMetricProvider):
    """Comparison of a batch's rows with the table's history.

    Attributes:
        expected: function that computes the expected rows; None if no rows are expected, and only the uniqueness of
            the batch's keys is checked.
        more_keys: names of the expectation's arguments that ``expected`` takes in addition to the check's input.
    """

    value_keys: tuple[str, ...] = _ARGUMENTS
    expected: ClassVar[Callable[..., ExpectedRows] | None] = None
    more_keys: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def compare(cls, check_input: CheckInput, rows: ReadRows, values: Mapping[str, Any]) -> RowComparison:
        """Compare the rows of a batch with the expected rows, or check only the keys if `expected` is None.

        Raises the errors of reading the table.

        Args:
            check_input: table, snapshot and sample sizes.
            rows: rows of the batch.
            values: arguments of the expectation by name.
        """
        if cls.expected is None:
            return compare_keys(check_input.store, rows, KEPT_ROWS)
        expected = cls.expected(check_input, **{name: values[name] for name in cls.more_keys})
        return compare_rows(check_input.store, expected, rows, KEPT_ROWS)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805  (great-expectations passes the class)
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        **_: Any,
    ) -> RowComparison:
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        check_input = _check_input_of(metric_value_kwargs, frame.attrs.get(SNAPSHOT_ATTRIBUTE))
        return cls.compare(check_input, _rows_of_pandas(check_input.store, frame), metric_value_kwargs)

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805  (great-expectations passes the class)
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        **_: Any,
    ) -> RowComparison:
        from lsm_core.spark.spark_verify import SparkRows

        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        check_input = _check_input_of(metric_value_kwargs, None)
        return cls.compare(check_input, SparkRows(check_input.store, frame), metric_value_kwargs)


@contextmanager
def use_open_store(arguments: Mapping[str, Any], store: TableStore) -> Iterator[None]:
    """Let the expectations with these arguments use an open table instead of opening it once per expectation.

    Args:
        arguments: arguments of the expectations by name.
        store: the table that the arguments name.
    """
    token = _OPEN_STORES.set({_store_key(arguments): store})
    try:
        yield
    finally:
        _OPEN_STORES.reset(token)


def _store_key(values: Mapping[str, Any]) -> tuple[Any, ...]:
    options = tuple(sorted((values["catalog_options"] or {}).items()))
    return values["warehouse"], values["table_name"], options, values["clock"]


def _check_input_of(values: Mapping[str, Any], own_snapshot: int | None) -> CheckInput:
    """Return the table, the snapshot and the sizes of samples that an expectation's arguments name.

    Args:
        values: arguments of the expectation by name.
        own_snapshot: snapshot id of the batch, used if the expectation names none; None for unknown.
    """
    store = (_OPEN_STORES.get() or {}).get(_store_key(values))
    if store is None:
        catalog = Catalog(values["warehouse"], values["catalog_options"] or {}, clock=clock_from(values["clock"]))
        store = catalog.table(values["table_name"]).store
    snapshot_id = values["snapshot_id"] if values["snapshot_id"] is not None else own_snapshot
    return check_input_at(store, snapshot_id, rows=values["rows"], keys=values["keys"])


def _rows_of_pandas(store: TableStore, frame: pd.DataFrame) -> ArrowRows:
    """Return the table's columns of a frame with the table's types.

    Raises:
        InvalidData: the values of a column do not fit its type; the message names the column.
    """
    own, columns, lossy = store.schema.arrow_schema, dict[str, pa.Array](), set[str]()
    for name in own.names:
        if name not in frame.columns:
            continue
        series = frame[name]
        if not isinstance(series.dtype, pd.ArrowDtype):
            lossy.add(name)
        try:
            column = pa.array(series, type=own.field(name).type, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError) as error:
            reason = f"the frame's values are no {own.field(name).type}: {' '.join(str(error).split())}"
            raise InvalidData(store.name, name, reason) from error
        columns[name] = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return ArrowRows(store, pa.table(columns), lossy)


class _MergeRulesMetric(_RowMetric):
    """Comparison of the batch's rows with the result of merging all written versions of their keys again."""

    metric_name = "table.dredge.merge_rules"
    expected = staticmethod(merge_by_rules)


class _UniqueKeysMetric(_RowMetric):
    """Search for primary keys that have several rows in the batch."""

    metric_name = "table.dredge.unique_keys"


class _ChangelogMetric(_RowMetric):
    """Comparison of the batch's rows with those of an older snapshot to which the changelog was applied."""

    metric_name = "table.dredge.changelog_replay"
    expected = staticmethod(replay_changelog)


class _CompactionMetric(_RowMetric):
    """Comparison of the batch's rows with the rows before a compaction."""

    metric_name = "table.dredge.rows_before"
    value_keys = (*_ARGUMENTS, "before")
    expected = staticmethod(rows_before)
    more_keys = ("before",)


class MergeExpectation(BatchExpectation):
    """Base of the expectations over merged rows.

    Attributes:
        warehouse: root of the table's catalog.
        table_name: the table, as ``database.table``.
        catalog_options: options of the catalog; no secrets, because suites are stored.
        snapshot_id: snapshot of the batch; None for the snapshot attribute of the frame (`read_rows`), or the newest.
        rows: number of rows to read, in addition to the first bucket.
        keys: number of keys per bucket to compare.
        clock: clock by which rows expire: ``system``, ``fixed:<epoch ms>`` or ``file:<path>``.
    """

    warehouse: str | SuiteParameterDict
    table_name: str | SuiteParameterDict
    catalog_options: dict[str, str] = pydantic.Field(default_factory=dict)
    snapshot_id: int | SuiteParameterDict | None = None
    rows: int = _ROWS
    keys: int = _KEYS
    clock: str = "system"

    sentence: ClassVar[str] = ""
    success_keys: ClassVar[tuple[str, ...]] = _ARGUMENTS
    args_keys: ClassVar[tuple[str, ...]] = ("warehouse", "table_name")

    @classmethod
    def is_abstract(cls) -> bool:
        """Return whether the class is a base that great-expectations does not register."""
        return not cls.metric_dependencies

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine | None = None,
    ) -> dict[str, Any]:
        comparison: RowComparison = metrics[self.metric_dependencies[0]]
        result_format = self._get_result_format(runtime_configuration=runtime_configuration)
        limit = result_format.get("partial_unexpected_count") if isinstance(result_format, dict) else None
        shown = comparison.differences[: SHOWN_ROWS if not isinstance(limit, int) else limit]
        share = 100 * comparison.differing / comparison.compared if comparison.compared else 0.0
        return {
            "success": comparison.ok,
            "result": {
                "observed_value": _observed_text(comparison),
                "element_count": comparison.compared,
                "unexpected_count": comparison.differing,
                "unexpected_percent": share,
                "partial_unexpected_list": [str(difference) for difference in shown],
                "partial_unexpected_index_list": [dict(difference.key) for difference in shown],
                "details": {"basis": comparison.basis, "differences": [_as_plain(item) for item in shown[:SHOWN_ROWS]]},
            },
        }

    @classmethod
    def _prescriptive_template(cls, renderer_configuration: RendererConfiguration) -> RendererConfiguration:
        renderer_configuration.add_param(name="table_name", param_type=RendererValueType.STRING)
        renderer_configuration.template_str = cls.sentence
        return renderer_configuration

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    @render_suite_parameter_string
    def _prescriptive_renderer(
        cls, configuration: Any = None, runtime_configuration: dict[str, Any] | None = None, **_: Any
    ) -> list[RenderedStringTemplateContent]:
        parameters = {"table_name": str(configuration.kwargs["table_name"])} if configuration is not None else {}
        styling = (runtime_configuration or {}).get("styling", {})
        text = {"template": cls.sentence, "params": parameters, "styling": styling}
        return [RenderedStringTemplateContent(content_block_type="string_template", string_template=text)]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(cls, result: Any = None, **_: Any) -> list[RenderedTableContent] | None:
        differences = ((result.result or {}) if result is not None else {}).get("details", {}).get("differences")
        if not differences:
            return None
        styling = {"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}}
        header = ["Key", "What is wrong", "Column", "Observed", "Expected"]
        lines = [line for difference in differences for line in difference_lines(difference)]
        return [RenderedTableContent(content_block_type="table", table=lines, header_row=header, styling=styling)]


class ExpectRowsToFollowMergeEngine(MergeExpectation):
    """Expect the rows to be the merge engine's result for the versions that were written.

    The versions are merged again one by one, by code independent of the engine's kernels. deduplicate: the newest
    version by sequence; first-row: the first version; aggregation: all versions combined by the columns' functions;
    partial-update: each field, or sequence group of fields, by its own order.
    """

    metric_dependencies: ClassVar[tuple[str, ...]] = (_MergeRulesMetric.metric_name,)
    sentence: ClassVar[str] = "Rows of $table_name must be what its merge engine makes of the written versions."


class ExpectPrimaryKeysToBeUnique(MergeExpectation):
    """Expect no two rows of the batch to have the same primary key."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_UniqueKeysMetric.metric_name,)
    sentence: ClassVar[str] = "Rows of $table_name must have unique primary keys after merging."


class ExpectChangelogToReplayToRows(MergeExpectation):
    """Expect the rows to be those of an older snapshot with the changelog since that snapshot applied."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_ChangelogMetric.metric_name,)
    sentence: ClassVar[str] = "The changelog of $table_name must lead from an older snapshot to its rows."


class ExpectCompactionToKeepRows(MergeExpectation):
    """Expect the rows of a compaction's snapshot to be equal to the rows before the compaction.

    Attributes:
        before: snapshot to compare with, or None for the snapshot before that of the batch.
    """

    before: int | SuiteParameterDict | None = None

    metric_dependencies: ClassVar[tuple[str, ...]] = (_CompactionMetric.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = (*_ARGUMENTS, "before")
    sentence: ClassVar[str] = "Rows of $table_name must be the same before and after the compaction."


def _observed_text(comparison: RowComparison) -> str:
    """Return the observed value: the number of differing keys and the first difference."""
    if not comparison.compared:
        return f"no row was compared ({comparison.basis})"
    if comparison.ok:
        return f"{comparison.compared:,} rows, all as expected ({comparison.basis})"
    first = str(comparison.differences[0])[:_LONGEST_SENTENCE]
    return f"{comparison.differing:,} of {comparison.compared:,} keys differ ({comparison.basis}): {first}"


def _as_plain(difference: RowDifference) -> dict[str, Any]:
    return {
        "key": dict(difference.key),
        "reason": difference.reason,
        "expected": None if difference.expected is None else dict(difference.expected),
        "observed": None if difference.observed is None else dict(difference.observed),
    }


def difference_lines(difference: Mapping[str, Any]) -> list[list[str]]:
    """Return a difference as table rows: key, reason, column, observed and expected value; a row per column.

    Args:
        difference: mapping with ``key``, ``reason``, ``expected`` and ``observed``. Each of the last two is a row by
            column, or None without a row.
    """
    key = ", ".join(f"{name}={value}" for name, value in difference["key"].items())
    observed, expected = difference["observed"] or {}, difference["expected"] or {}
    columns = list(dict.fromkeys([*observed, *expected])) or [""]
    return [
        [key, difference["reason"], name, observed.get(name, "no row"), expected.get(name, "no row")]
        for name in columns
    ]
