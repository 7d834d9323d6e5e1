"""Expectations of great-expectations over the merged rows of a table; importing this module registers them.

Each compares the rows of a batch, which somebody read, with what the table's stored history says of the same keys. The batch is a
frame of pandas or Spark with the table's columns. Sampled keys are judged, the same ones for the same snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from lsm_core.maintenance.checks.expected_rows import ExpectedRows, merged_by_rules, replayed_changelog, rows_before
from lsm_core.maintenance.checks.outcome import Question
from lsm_core.maintenance.checks.row_comparison import (
    SHOWN_ROWS,
    ArrowRows,
    ReadRows,
    RowComparison,
    RowDifference,
    compare_keys,
    compare_rows,
)
from lsm_core.maintenance.checks.sampled_rows import question_at
from lsm_core.metadata.store import TableStore

SNAPSHOT_ATTRIBUTE: Final = "dredge.snapshot"
"""Where a frame of `read_rows` keeps the snapshot that it was read from."""
_ROWS: Final = 500_000
_KEYS: Final = 1_024
_ARGUMENTS: Final = ("warehouse", "table_name", "catalog_options", "snapshot_id", "rows", "keys", "clock")
_LONGEST_SENTENCE: Final = 400


def read_rows(table: Table, snapshot_id: int | None = None) -> pd.DataFrame:
    """Read the merged rows of a table into a frame that keeps their exact values and the snapshot.

    Args:
        table: the table.
        snapshot_id: the snapshot, None for the newest one.

    Returns:
        A frame of Arrow columns. One of NumPy's columns cannot tell null from NaN, nor hold null among large integers.
    """
    latest = table.latest_snapshot() if snapshot_id is None else None
    number = snapshot_id if latest is None else latest.id
    return frame_of(table.to_arrow(snapshot_id=number), number)


def frame_of(rows: pa.Table, snapshot_id: int | None) -> pd.DataFrame:
    """Return rows of a snapshot as a frame of Arrow columns that knows the snapshot."""
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
    """Return the expectations over rows of one snapshot that the table can have; an append table has none.

    Args:
        warehouse: the root of the catalog.
        table_name: the table, as ``database.table``.
        store: the same table, opened.
        catalog_options: options of the catalog.
        snapshot_id: the snapshot of the batch, None for the frame's own, or the newest one.
        rows: number of rows that are looked at, apart from the first bucket.
        keys: number of keys per bucket that are judged.
        clock: what tells the time, by which rows expire.
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
    own = {check.name for check in checks_of(store.schema.primary_keys, store.schema.options)}
    classes = {
        "unique_keys": ExpectPrimaryKeysToBeUnique,
        "merge_engine_rules": ExpectRowsToFollowMergeEngine,
        "changelog_replays": ExpectChangelogToReplayToRows,
    }
    return [made(**arguments) for check, made in classes.items() if check in own]


class _RowMetric(TableMetricProvider):
    """Comparison of a batch's rows with what the table's history says of them.

    Attributes:
        expected: makes the rows to compare with, None where the batch alone is looked at.
        more_keys: arguments of an expectation that ``expected`` takes besides the question.
    """

    value_keys: tuple[str, ...] = _ARGUMENTS
    expected: ClassVar[Callable[..., ExpectedRows] | None] = None
    more_keys: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def compare(cls, question: Question, rows: ReadRows, values: Mapping[str, Any]) -> RowComparison:
        """Compare the rows. Raises what reading the table raises."""
        if cls.expected is None:
            return compare_keys(question.store, rows)
        expected = cls.expected(question, **{name: values[name] for name in cls.more_keys})
        return compare_rows(question.store, expected, rows)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805  (great-expectations passes the class)
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        **_: Any,
    ) -> RowComparison:
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        question = _question(metric_value_kwargs, frame.attrs.get(SNAPSHOT_ATTRIBUTE))
        return cls.compare(question, _rows_of_pandas(question.store, frame), metric_value_kwargs)

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805  (great-expectations passes the class)
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: Any,
        metric_value_kwargs: Any,
        **_: Any,
    ) -> RowComparison:
        from lsm_core.spark.spark_rows import SparkRows

        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        question = _question(metric_value_kwargs, None)
        return cls.compare(question, SparkRows(question.store, frame), metric_value_kwargs)


def _question(values: Mapping[str, Any], own_snapshot: int | None) -> Question:
    """Return the question about the table and snapshot that an expectation names."""
    catalog = Catalog(values["warehouse"], values["catalog_options"] or {}, clock=clock_from(values["clock"]))
    store = catalog.table(values["table_name"]).store
    number = values["snapshot_id"] if values["snapshot_id"] is not None else own_snapshot
    return question_at(store, number, rows=values["rows"], keys=values["keys"])


def _rows_of_pandas(store: TableStore, frame: pd.DataFrame) -> ArrowRows:
    """Return a frame's columns that the table has, typed as those of the table. Raises InvalidData naming a column whose values do not fit."""
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
    """Rows compared with what the reference makes of the written versions."""

    metric_name = "table.dredge.merge_rules"
    expected = staticmethod(merged_by_rules)


class _UniqueKeysMetric(_RowMetric):
    """Primary keys of which the batch has several rows."""

    metric_name = "table.dredge.unique_keys"


class _ChangelogMetric(_RowMetric):
    """Rows compared with an older snapshot's to which the changelog was applied."""

    metric_name = "table.dredge.changelog_replay"
    expected = staticmethod(replayed_changelog)


class _CompactionMetric(_RowMetric):
    """Rows compared with those from before a compaction."""

    metric_name = "table.dredge.rows_before"
    value_keys = (*_ARGUMENTS, "before")
    expected = staticmethod(rows_before)
    more_keys = ("before",)


class MergeExpectation(BatchExpectation):
    """Base of the expectations over merged rows.

    Attributes:
        warehouse: the root of the table's catalog.
        table_name: the table, as ``database.table``.
        catalog_options: options of the catalog; no secrets, because suites are stored.
        snapshot_id: the snapshot that the batch was read from. None: that of the frame (`read_rows`), else the newest one.
        rows: number of rows that are looked at, apart from the first bucket.
        keys: number of keys per bucket that are judged.
        clock: what tells the time, by which rows expire: ``system``, ``fixed:<epoch ms>`` or ``file:<path>``.
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
        wanted = self._get_result_format(runtime_configuration=runtime_configuration)
        limit = wanted.get("partial_unexpected_count") if isinstance(wanted, dict) else None
        shown = comparison.differences[: SHOWN_ROWS if not isinstance(limit, int) else min(limit, SHOWN_ROWS)]
        share = 100 * comparison.differing / comparison.compared if comparison.compared else 0.0
        return {
            "success": comparison.ok,
            "result": {
                "observed_value": _observed(comparison),
                "element_count": comparison.compared,
                "unexpected_count": comparison.differing,
                "unexpected_percent": share,
                "partial_unexpected_list": [str(difference) for difference in shown],
                "partial_unexpected_index_list": [dict(difference.key) for difference in shown],
                "details": {"basis": comparison.basis, "differences": [_plain(one) for one in shown]},
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
        found = ((result.result or {}) if result is not None else {}).get("details", {}).get("differences")
        if not found:
            return None
        styling = {"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}}
        header = ["Key", "What is wrong", "Column", "Observed", "Expected"]
        lines = [line for difference in found for line in difference_lines(difference)]
        return [RenderedTableContent(content_block_type="table", table=lines, header_row=header, styling=styling)]


class ExpectRowsToFollowMergeEngine(MergeExpectation):
    """Expect the rows to be what the table's merge engine makes of the versions that were written.

    deduplicate: the newest version by sequence; first-row: the first one; aggregation: the fold of all versions by the columns'
    functions; partial-update: each field, or group of fields, by its own order. The versions are merged again one at a time, by
    code that shares nothing with the engine's kernels.
    """

    metric_dependencies: ClassVar[tuple[str, ...]] = (_MergeRulesMetric.metric_name,)
    sentence: ClassVar[str] = "Rows of $table_name must be what its merge engine makes of the written versions."


class ExpectPrimaryKeysToBeUnique(MergeExpectation):
    """Expect no two rows of the batch to have the same primary key."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_UniqueKeysMetric.metric_name,)
    sentence: ClassVar[str] = "Rows of $table_name must have unique primary keys after merging."


class ExpectChangelogToReplayToRows(MergeExpectation):
    """Expect the rows to be those of an older snapshot with the changes applied that the changelog tells since."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (_ChangelogMetric.metric_name,)
    sentence: ClassVar[str] = "The changelog of $table_name must lead from an older snapshot to its rows."


class ExpectCompactionToKeepRows(MergeExpectation):
    """Expect the rows of a compaction's snapshot to be those from before it.

    Attributes:
        before: the snapshot to compare with, None for the one right before the batch's.
    """

    before: int | SuiteParameterDict | None = None

    metric_dependencies: ClassVar[tuple[str, ...]] = (_CompactionMetric.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = (*_ARGUMENTS, "before")
    sentence: ClassVar[str] = "Rows of $table_name must be the same before and after the compaction."


def _observed(comparison: RowComparison) -> str:
    """Return the observed value: how many keys differ and what the first one is."""
    if not comparison.compared:
        return f"no row was compared ({comparison.basis})"
    if comparison.ok:
        return f"{comparison.compared:,} rows, all as expected ({comparison.basis})"
    first = str(comparison.differences[0])[:_LONGEST_SENTENCE]
    return f"{comparison.differing:,} of {comparison.compared:,} keys differ ({comparison.basis}): {first}"


def _plain(difference: RowDifference) -> dict[str, Any]:
    return {
        "key": dict(difference.key),
        "reason": difference.reason,
        "expected": None if difference.expected is None else dict(difference.expected),
        "observed": None if difference.observed is None else dict(difference.observed),
    }


def difference_lines(difference: Mapping[str, Any]) -> list[list[str]]:
    """Return a difference as lines of a table: key, reason, column, observed and expected value."""
    key = ", ".join(f"{name}={value}" for name, value in difference["key"].items())
    observed, expected = difference["observed"] or {}, difference["expected"] or {}
    columns = list(dict.fromkeys([*observed, *expected])) or [""]
    return [
        [key, difference["reason"], name, observed.get(name, "no row"), expected.get(name, "no row")]
        for name in columns
    ]


__all__ = [
    "SNAPSHOT_ATTRIBUTE",
    "ExpectChangelogToReplayToRows",
    "ExpectCompactionToKeepRows",
    "ExpectPrimaryKeysToBeUnique",
    "ExpectRowsToFollowMergeEngine",
    "MergeExpectation",
    "difference_lines",
    "frame_of",
    "merge_expectations",
    "read_rows",
]
