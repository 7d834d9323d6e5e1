"""The committed copies of test data say what ../shared says, wherever it lies beside the clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import data


@pytest.mark.parametrize("folder", ["golden", "vectors", "peer"])
def test_committed_copies_equal_the_shared_originals(folder: str) -> None:
    original = data.SHARED / folder
    if not original.is_dir():
        pytest.skip(f"no {original} beside this clone: the copies are all there is")
    copies = data.COPIES / folder
    expected = {path.name for path in original.iterdir() if path.is_file()}
    assert {path.name for path in copies.iterdir() if path.is_file()} == expected
    differing = [name for name in sorted(expected) if (copies / name).read_bytes() != (original / name).read_bytes()]
    assert not differing, f"tests/data/{folder} differs from ../shared/{folder}: copy these anew: {differing}"


@pytest.mark.parametrize("folder", ["", "absent"])
@pytest.mark.parametrize("variable", ["DREDGE_GOLDEN", "DREDGE_VECTORS"])
def test_a_named_folder_that_is_missing_or_empty_is_an_error(
    variable: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / folder))
    with pytest.raises(FileNotFoundError, match=variable) as caught:
        {"DREDGE_GOLDEN": data.golden_dir, "DREDGE_VECTORS": data.vectors_dir}[variable]()
    assert str(tmp_path / folder) in str(caught.value)


def test_a_named_folder_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.json").write_text("[]")
    monkeypatch.setenv("DREDGE_VECTORS", str(tmp_path))
    assert data.vectors_dir() == tmp_path
