"""Merging as Paimon's own tests want it; engines that Dredge does not merge yet are refused by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lsm_core.errors import UnsupportedFeature
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.merge import MergeFunction, RunInput, merge_function, merge_streams, merge_unsorted
from lsm_core.types import parse
from tests.vectors.cases import Case, cases, not_yet
from tests.vectors.rows import as_cases, kv_batch

SCHEMA = TableSchema(
    0, (DataField(0, "k0", parse("BIGINT NOT NULL")), DataField(1, "value", parse("BIGINT"))), 1, primary_keys=("k0",)
)
LOOKUP = {"lookup_merge", "pick_high_level", "contains_level0"}


def function_for(engine: str, options: dict[str, str] | None = None) -> MergeFunction:
    """The merge function, or the end of this case if the engine is not there yet; then it must be refused by name."""
    options = {**(options or {}), "merge-engine": engine}
    if engine != "deduplicate":
        with pytest.raises(UnsupportedFeature, match=engine):
            merge_function(SCHEMA, options, "db.t")
        not_yet(f"merge engine {engine}")
    return merge_function(SCHEMA, options, "db.t")


@pytest.mark.parametrize("case", cases("sort_merge"))
def test_sort_merge(case: Case) -> None:
    function = function_for(case["merge_engine"], case.get("options"))
    if case["op"] in LOOKUP:
        not_yet("lookup merging")
    if case["op"] == "write_buffer":
        assert as_cases(merge_unsorted(pa.Table.from_batches([kv_batch(case["inputs"])]), function)) == case["expect"]
        return
    if case["op"] == "merge_one_key":
        one = merge_unsorted(pa.Table.from_batches([kv_batch(case["inputs"])]), function)
        assert as_cases(one) == [case["expect"]]
        return
    assert case["op"] == "sort_merge"
    for size in (1, 2, 3, 7, 1000):
        inputs = [
            RunInput(iter([kv_batch(rows[at : at + size]) for at in range(0, len(rows), size)]), 0, age)
            for age, rows in enumerate(case["inputs"])
        ]
        merged = list(merge_streams(inputs, function))
        assert [row for batch in merged for row in as_cases(batch)] == case["expect"]


@pytest.mark.parametrize("case", cases("partial_update"))
def test_partial_update(case: Case) -> None:
    function_for("partial-update", case.get("options"))


@pytest.mark.parametrize("case", cases("aggregators"))
def test_aggregators(case: Case) -> None:
    function_for("aggregation", case.get("options"))


@pytest.mark.parametrize("case", cases("changelog_wrappers"))
def test_changelog_wrappers(case: Case) -> None:
    function_for(case["merge_engine"])
    not_yet(f"changelog producer {case['wrapper']}")
