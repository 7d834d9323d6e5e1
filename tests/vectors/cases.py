"""Vectors as pytest parameters: one case each, id `<file stem>-<case id>`, from the folder that `DREDGE_VECTORS` names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.data import vectors_dir

Case = dict[str, Any]

STEMS: Final = frozenset(
    {
        "aggregators",
        "changelog_wrappers",
        "fixed_bucket_hash",
        "interval_partition",
        "merge_tree_compact_manager",
        "partial_update",
        "sort_merge",
        "table_sql",
        "universal_compaction",
    }
)


class BadVectors(Exception):
    """Error: the folder of vectors has a file, case or field that no test uses."""


def cases(stem: str) -> list[Any]:
    """Return all cases of `<stem>.json` as pytest parameters, or an empty list if the folder has no such file.

    Raises:
        BadVectors: no test uses a file of the folder, or a file has no cases. Both would otherwise pass unnoticed.
    """
    folder = vectors_dir()
    unknown = sorted(path.name for path in folder.glob("*.json") if path.stem not in STEMS)
    if unknown:
        raise BadVectors(f"no test runs {', '.join(unknown)} of {folder}; known: {', '.join(sorted(STEMS))}")
    assert stem in STEMS
    path = folder / f"{stem}.json"
    return [pytest.param(case, id=f"{stem}-{case['id']}") for case in _read(path)] if path.is_file() else []


def _read(path: Path) -> list[Case]:
    entries = json.loads(path.read_text())
    found = [entry for entry in entries if "id" in entry]
    strange = [entry for entry in entries if "id" not in entry and "doc" not in entry]
    names = [case["id"] for case in found]
    if not found or strange or len(set(names)) != len(names):
        raise BadVectors(f"{path} has no cases, entries without id, or an id twice")
    return found


_EVERYWHERE: Final = frozenset({"id", "src", "op", "expect", "note", "derived", "options"})
_RUNS: Final = frozenset({"num_levels", "max_level", "runs", "run_count", "steps", "hour", "at_ms"})
# The fields of a case by file and by the place in it; a place that is not here holds values, rows or the table's own options.
FIELDS: Final[dict[str, dict[str, frozenset[str]]]] = {
    "aggregators": {
        "": _EVERYWHERE
        | {"function", "type", "accumulator", "input", "inputs", "steps", "carry", "unordered", "encoding", "asserted"}
        | {"columns", "primary_key", "rows"},
        "steps[]": frozenset({"op", "accumulator", "input", "expect", "note"}),
        "rows[]": frozenset({"kind", "row", "seq"}),
    },
    "changelog_wrappers": {
        "": _EVERYWHERE | {"wrapper", "merge_engine", "lookup", "inputs"},
        "options": frozenset(
            {
                "row_deduplicate",
                "row_deduplicate_ignore_fields",
                "aggregate",
                "sequence_field",
                "value_fields",
                "max_level",
            }
        ),
        "inputs[]": frozenset({"level", "seq", "kind", "key", "value"}),
        "lookup": frozenset({"level", "seq", "kind", "key", "value"}),
        "expect": frozenset({"changelog", "result"}),
        "expect.changelog[]": frozenset({"level", "seq", "kind", "key", "value"}),
        "expect.result": frozenset({"level", "seq", "kind", "key", "value"}),
    },
    "fixed_bucket_hash": {
        "": _EVERYWHERE
        | {
            "columns",
            "bucket_key",
            "primary_key",
            "partition_key",
            "partition",
            "num_buckets",
            "row",
            "types",
            "values",
        }
        | {"key", "hash", "derived_from", "predicate", "option", "text", "nanos", "expect_nanos", "kind"},
        "expect": frozenset({"error", "hex", "hash", "bucket_of", "selected_count", "selected_derived"}),
    },
    "interval_partition": {
        "": _EVERYWHERE | {"files", "kind", "generate"},
        "expect": frozenset({"max_runs_per_section", "section_spans"}),
        "generate": frozenset({"seed", "rounds", "runs", "files_per_run", "files", "max_key"}),
    },
    "merge_tree_compact_manager": {
        "": _EVERYWHERE
        | {"num_levels", "small_file_below", "before", "pick", "need_lookup", "merge_engine", "keep_delete", "rows"},
        "pick": frozenset({"run_count", "output_level"}),
        "rows[]": frozenset({"key", "seq", "kind"}),
        "expect": frozenset(
            {"after", "drop_delete_if_rewritten", "levels_nonzero", "rows_for_key_all_kind", "rows_for_key_nonempty"}
        ),
    },
    "partial_update": {
        "": _EVERYWHERE
        | {"columns", "primary_key", "read_columns", "expect_effective_read_columns", "steps", "expect_error"},
        "steps[]": frozenset({"add", "reset", "expect", "note"}),
        "steps[].add": frozenset({"seq", "kind", "row"}),
        "steps[].expect": frozenset({"row", "seq", "kind", "kind_derived"}),
        "expect_error": frozenset({"about", "column"}),
    },
    "sort_merge": {
        "": _EVERYWHERE | {"merge_engine", "inputs", "spill_threshold", "with_disk", "columns", "primary_key"},
    },
    "table_sql": {
        "": _EVERYWHERE | {"table", "steps", "expect_create_error"},
        "table": frozenset({"columns", "primary_key", "partition_by", "options"}),
        "steps[].query": frozenset({"select", "where", "options", "aggregate", "group_by"}),
        "steps[].audit_log": frozenset({"columns", "where", "options"}),
        "steps[].binlog": frozenset({"columns", "where", "options"}),
        "steps[].expire": frozenset({"retain_max", "retain_min"}),
    },
    "universal_compaction": {
        "": _EVERYWHERE | _RUNS,
        "steps[]": frozenset({"runs", "at_ms", "expect", "note"}),
        "steps[].expect": frozenset({"picked_sizes", "picked_count", "output_level"}),
        "expect": frozenset({"picked_sizes", "picked_count", "output_level"}),
    },
}


def require_known(stem: str, case: Case) -> Case:
    """Return ``case`` if its tests use all of its fields. Raises BadVectors with the name of an unknown field."""
    for place, known in FIELDS[stem].items():
        for found in _at(case, place):
            unknown = sorted(set(found) - known)
            if unknown:
                where = f" of {place}" if place else ""
                raise BadVectors(f"{stem}, case {case['id']}: unknown field{where}: {', '.join(unknown)}")
    return case


def _at(value: Any, place: str) -> list[Case]:
    """Return the objects at a path like "steps[].expect"; values that are no objects are omitted."""
    found = [value]
    for part in filter(None, place.split(".")):
        name = part.removesuffix("[]")
        found = [item[name] for item in found if isinstance(item, dict) and name in item]
        if part != name:
            found = [item for many in found if isinstance(many, list) for item in many]
    return [item for item in found if isinstance(item, dict)]


def not_yet(feature: str) -> None:
    """Skip the test because Dredge does not support a feature yet."""
    pytest.skip(f"not supported yet: {feature}")
