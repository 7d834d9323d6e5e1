"""Every field that a vector file documents is acted on: a small file with it passes as it should, fails where it lies, and an unknown one is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.vectors import test_hash_vectors, test_merge_vectors, test_table_vectors, test_tree_vectors
from tests.vectors.cases import FIELDS, STEMS, BadVectors, Case, cases

AMP: Case = {"max_size_amp": 200, "size_ratio": 1, "num_run_trigger": 5}
INT_KEY: Case = {"columns": [["k", "INT"], ["v", "INT"]], "primary_key": ["k"], "options": {}}
TREE: Case = {"num_levels": 3, "small_file_below": 2}


def run(stem: str, case: Case, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put ``case`` into a folder of vectors that `DREDGE_VECTORS` names, read it from there and run its test."""
    folder = place / f"vectors-{len(list(place.iterdir()))}"
    folder.mkdir()
    (folder / f"{stem}.json").write_text(json.dumps([{"doc": {}}, {"id": "one", **case}]))
    monkeypatch.setenv("DREDGE_VECTORS", str(folder))
    (parameters,) = cases(stem)
    (found,) = parameters.values
    runners: dict[str, Callable[[Case], None]] = {
        "aggregators": test_merge_vectors.test_aggregators,
        "changelog_wrappers": test_merge_vectors.test_changelog_wrappers,
        "fixed_bucket_hash": lambda one: test_hash_vectors.test_fixed_bucket_hash(one, folder),
        "interval_partition": test_tree_vectors.test_interval_partition,
        "merge_tree_compact_manager": test_tree_vectors.test_merge_tree_compact_manager,
        "partial_update": test_merge_vectors.test_partial_update,
        "sort_merge": test_merge_vectors.test_sort_merge,
        "table_sql": lambda one: test_table_vectors.test_table_sql(one, folder),
        "universal_compaction": test_tree_vectors.test_universal_compaction,
    }
    assert set(runners) == STEMS
    runners[stem](found)


def changed(case: Case, path: str, value: Any) -> Case:
    """``case`` with another value at a path like "steps.1.expect"."""
    made = deepcopy(case)
    at: Any = made
    *parts, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parts:
        at = at[part]
    at[last] = value
    return made


def step(runs: list[list[int]], expect: Case | None, at_ms: int = 0) -> Case:
    return {"at_ms": at_ms, "runs": runs, "expect": expect}


FORCED: Case = {
    "op": "pick_sequence",
    "options": {**AMP, "force_up_level0": True, "force_up_level0_interval": 3},
    "num_levels": 3,
    "steps": [
        step([[0, 1], [2, 10]], None),
        step([[0, 1], [2, 10]], None),
        step([[0, 1], [2, 10]], {"picked_sizes": [1], "output_level": 1}),
        step([[0, 1], [2, 10]], None),
    ],
}
AGGREGATE: Case = {"function": "max", "type": "DATE", "op": "agg"}
PARTITIONED: Case = {
    "op": "bucket_pruning",
    "columns": [["pt", "INT"], ["k", "INT"]],
    "partition_key": ["pt"],
    "bucket_key": ["k"],
    "predicate": ["or", ["and", ["=", "pt", 1], ["=", "k", 5]], ["and", ["=", "pt", 2], ["=", "k", 7]]],
    "num_buckets": 100,
    "partition": {"pt": 1},
    "expect": {"selected_count": 1, "selected_derived": [96]},
}
OUT_TO_0: Case = {
    **TREE,
    "before": [[0, 1, 3], [0, 1, 5], [0, 1, 8]],
    "pick": {"run_count": 2, "output_level": 0},
    "expect": {"after": [[0, 1, 8], [0, 1, 3]], "drop_delete_if_rewritten": False},
}
TEXTS: Case = {
    "table": {
        "columns": [["k", "INT"], ["d", "DATE"], ["t", "TIMESTAMP(6)"]],
        "primary_key": ["k"],
        "options": {"bucket": "1"},
    },
    "steps": [
        {"write": [["+I", 1, {"epoch_day": 19000}, {"epoch_ms": 1_000, "nanos": 5_000}]]},
        {
            "query": {"where": [["d", "=", {"epoch_day": 19000}]]},
            "expect": [[1, "2022-01-08", "1970-01-01T00:00:01.000005"]],
        },
    ],
}
GENERATED: Case = {
    "kind": "property",
    "generate": {"seed": 3, "rounds": 5, "runs": [1, 6], "files_per_run": [1, 8], "max_key": 200},
    "expect": {},
}
UPDATED: Case = {
    **INT_KEY,
    "steps": [
        {"add": {"seq": 4, "kind": "+I", "row": [1, 2]}},
        {"add": {"seq": 9, "kind": "+I", "row": [1, None]}},
        {"expect": {"seq": 9}},
        {"expect": {"row": [1, 2], "kind_derived": "+I"}},
    ],
}
COLLECTED: Case = {
    "table": {
        "columns": [["k", "INT"], ["a", "ARRAY<INT>"]],
        "primary_key": ["k"],
        "options": {"bucket": "1", "merge-engine": "aggregation", "fields.a.aggregate-function": "collect"},
    },
    "steps": [
        {"write": [["+I", 1, [2]]]},
        {"write": [["+I", 1, [1]]]},
        {"query": {}, "unordered_columns": ["a"], "expect": [[1, [1, 2]]]},
    ],
}

# stem, a case that is right, and where it becomes wrong with which value.
RIGHT: list[tuple[str, Case, str, Any]] = [
    ("universal_compaction", FORCED, "steps.1.expect", {"output_level": 1}),
    ("universal_compaction", FORCED, "options.force_up_level0_interval", 2),
    ("universal_compaction", FORCED, "options.force_up_level0", False),
    (
        "universal_compaction",
        {"op": "pick", "options": {**AMP, "full_compaction_interval_ms": 50, "last_full_at_ms": 10}, "num_levels": 5,
         "at_ms": 40, "runs": [[0, 1], [0, 2]], "expect": None},
        "at_ms",
        90,
    ),
    (
        "universal_compaction",
        {"op": "early_full_sequence", "options": {}, "num_levels": 5, "steps": [step([[0, 1], [0, 2]], None)]},
        "options.total_size_threshold",
        1000,
    ),
    ("universal_compaction", {"op": "early_full_enabled", "options": {}, "expect": False}, "options", {"total_size_threshold": 5}),
    (
        "universal_compaction",
        {"op": "early_full_enabled", "options": {}, "expect": False},
        "options",
        {"compaction.optimization-interval": "1 h"},
    ),
    (
        "universal_compaction",
        {"op": "pick_size_amp", "options": AMP, "num_levels": 3, "runs": [[0, 9]] * 4 + [[2, 1]], "expect": {"output_level": 2}},
        "num_levels",
        4,
    ),
    ("interval_partition", {"files": [[1, 4], [2, 6]], "expect": [[[[1, 4]], [[2, 6]]]]}, "expect", [[[[1, 4], [2, 6]]]]),
    ("merge_tree_compact_manager", OUT_TO_0, "expect.after", [[0, 1, 3], [0, 1, 8]]),
    ("merge_tree_compact_manager", OUT_TO_0, "expect.drop_delete_if_rewritten", True),
    ("partial_update", UPDATED, "steps.2.expect.seq", 4),
    ("partial_update", UPDATED, "steps.3.expect.row", [1, None]),
    ("partial_update", UPDATED, "steps.3.expect.kind_derived", "-D"),
    (
        "aggregators",
        {**AGGREGATE, "accumulator": {"epoch_day": 3}, "input": {"epoch_day": 5}, "expect": {"epoch_day": 5}},
        "expect.epoch_day",
        3,
    ),
    ("aggregators", {**AGGREGATE, "input": "1970-01-06", "expect": {"epoch_day": 5}}, "input", {"epoch_day": 6}),
    (
        "aggregators",
        {"function": "min", "type": "TIMESTAMP(9)", "op": "fold", "inputs": [{"millis": 7, "nano_of_millisecond": 3}, {"epoch_ms": 8}],
         "expect": {"millis": 7, "nano_of_millisecond": 3}},
        "expect.nano_of_millisecond",
        4,
    ),
    ("fixed_bucket_hash", PARTITIONED, "partition", {"pt": 2}),
    ("fixed_bucket_hash", PARTITIONED, "expect.selected_count", 2),
    ("fixed_bucket_hash", {**PARTITIONED, "partition": [3], "expect": {"selected_count": 0}}, "partition", [1]),
    (
        "fixed_bucket_hash",
        {"op": "binary_row", "types": ["DATE"], "values": [{"epoch_day": 5}],
         "expect": {"hex": "00000000000000000500000000000000", "hash": 260196596}},
        "values.0.epoch_day",
        6,
    ),
    ("fixed_bucket_hash", {"op": "row_kind_in_header", "kind": "-D", "expect": 3}, "expect", 2),
    ("table_sql", TEXTS, "steps.0.write.0.2.epoch_day", 19001),
    ("table_sql", TEXTS, "steps.0.write.0.3.nanos", 6_000),
    ("table_sql", COLLECTED, "steps.2.expect.0.1", [1, 3]),
    (
        "changelog_wrappers",
        {"wrapper": "lookup", "merge_engine": "deduplicate", "options": {"row_deduplicate": False}, "lookup": None,
         "inputs": [{"level": 0, "seq": 4, "kind": "+I", "key": 1, "value": [2]}],
         "expect": {"changelog": [{"kind": "+I", "seq": 4}], "result": {"seq": 4}}},
        "expect.result.seq",
        5,
    ),
    (
        "sort_merge",
        {"op": "merge_one_key", "merge_engine": "deduplicate", "spill_threshold": 1, "with_disk": True,
         "inputs": [{"key": 3, "seq": 4, "kind": "+I", "value": 1}], "expect": {"key": 3, "seq": 4, "kind": "+I", "value": 1}},
        "expect.seq",
        5,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("stem", "case", "path", "wrong"), RIGHT, ids=lambda one: one if isinstance(one, str) else "")
def test_a_documented_field_is_acted_on(
    stem: str, case: Case, path: str, wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(stem, case, tmp_path, monkeypatch)
    with pytest.raises(AssertionError):
        run(stem, changed(case, path, wrong), tmp_path, monkeypatch)


def test_a_generated_property_looks_at_as_many_inputs_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("interval_partition", GENERATED, tmp_path, monkeypatch)
    inputs = list(test_tree_vectors.generated(GENERATED["generate"]))
    assert len(inputs) == 5
    assert {runs for _, runs in inputs} <= set(range(1, 7))
    for ranges, _ in inputs:
        assert all(0 <= low <= high <= 200 for low, high in ranges)
    assert inputs == list(test_tree_vectors.generated(GENERATED["generate"]))
    real = test_tree_vectors.interval_partition
    monkeypatch.setattr(
        test_tree_vectors, "interval_partition", lambda files: [[run for section in real(files) for run in section]]
    )
    with pytest.raises(AssertionError):
        run("interval_partition", GENERATED, tmp_path, monkeypatch)


@pytest.mark.parametrize("stem", sorted(STEMS))
def test_an_unknown_field_is_an_error_that_names_it(stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(FIELDS) == STEMS
    with pytest.raises(BadVectors, match=rf"{stem}, case one: unknown field: colour"):
        run(stem, {"op": "pick", "colour": 1, "options": {}}, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("stem", "case", "path", "name"),
    [
        ("universal_compaction", FORCED, "options.colour", "colour"),
        ("universal_compaction", FORCED, "steps.0.colour", "colour"),
        ("universal_compaction", FORCED, "steps.2.expect.colour", "colour"),
        ("interval_partition", GENERATED, "generate.colour", "colour"),
        ("merge_tree_compact_manager", OUT_TO_0, "pick.colour", "colour"),
        ("partial_update", UPDATED, "steps.2.expect.colour", "colour"),
        ("partial_update", UPDATED, "steps.0.add.colour", "colour"),
        ("fixed_bucket_hash", PARTITIONED, "expect.colour", "colour"),
        ("table_sql", TEXTS, "steps.1.query.colour", "colour"),
        ("table_sql", TEXTS, "steps.1.colour", "colour"),
        ("table_sql", TEXTS, "steps.0.write.0.2.colour", "unknown form"),
        ("aggregators", {**AGGREGATE, "input": {"epoch_day": 1}, "expect": {"epoch_day": 1}}, "input", "unknown form"),
    ],
)
def test_an_unknown_field_inside_is_an_error_that_names_it(
    stem: str, case: Case, path: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadVectors, match=name):
        run(stem, changed(case, path, {"light": 1} if path == "input" else 1), tmp_path, monkeypatch)
