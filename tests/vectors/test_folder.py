"""No vector passes unseen: what a folder holds is run, or it is an error that names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.cases import cases as golden_cases
from tests.support.data import vectors_dir
from tests.vectors.cases import STEMS, BadVectors, cases


def put(folder: Path, name: str, entries: list[dict[str, object]]) -> None:
    (folder / name).write_text(json.dumps(entries))


def test_every_case_of_the_folder_in_force_is_a_pytest_case() -> None:
    for path in vectors_dir().glob("*.json"):
        listed = [case["id"] for case in json.loads(path.read_text()) if "id" in case]
        assert [param.id for param in cases(path.stem)] == [f"{path.stem}-{name}" for name in listed]


@pytest.mark.parametrize("stem", sorted(STEMS))
def test_a_file_of_unknown_name_is_named(stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_VECTORS", str(tmp_path))
    put(tmp_path, "sort_merge.json", [{"id": "a"}])
    put(tmp_path, "postpone_bucket.json", [{"id": "a"}])
    with pytest.raises(BadVectors, match=r"postpone_bucket\.json"):
        cases(stem)


def test_a_folder_need_not_hold_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_VECTORS", str(tmp_path))
    put(tmp_path, "sort_merge.json", [{"doc": {}}, {"id": "a"}])
    assert [param.id for param in cases("sort_merge")] == ["sort_merge-a"]
    assert cases("table_sql") == []


@pytest.mark.parametrize("entries", [[], [{"doc": {}}], [{"id": "a"}, {"id": "a"}], [{"id": "a"}, {"steps": []}]])
def test_a_file_without_cases_or_with_unnamed_ones_is_an_error(
    entries: list[dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DREDGE_VECTORS", str(tmp_path))
    put(tmp_path, "table_sql.json", entries)
    with pytest.raises(BadVectors, match=r"table_sql\.json"):
        cases("table_sql")


def test_half_a_golden_table_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREDGE_GOLDEN", str(tmp_path))
    (tmp_path / "mine.tar.gz").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="mine"):
        golden_cases()
