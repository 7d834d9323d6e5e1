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
    """The folder of vectors holds something that no test here would run."""


def cases(stem: str) -> list[Any]:
    """All cases of `<stem>.json`, whose first entry describes the fields; none where the folder lacks the file.

    Raises BadVectors naming a file of the folder that nobody runs, or one without cases: both would pass unseen.
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


def not_yet(feature: str) -> None:
    """Leave this case, naming what Dredge does not do yet."""
    pytest.skip(f"not supported yet: {feature}")
