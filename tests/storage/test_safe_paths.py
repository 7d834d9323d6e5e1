"""Hostile names never lead out of a table, and honest ones always pass."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, InvalidData
from lsm_core.storage import check_name, inside, inside_really

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/../b",
    "/etc/passwd",
    "a\x00b",
    "%2e%2e",
    "%2E%2e%2fx",
    "a\\b",
    "x\n",
    "a/b",
    "\x7f",
    "n" * 300,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidData, match=r"db\.t"):
        check_name(name, "db.t")


@pytest.mark.parametrize(
    "name",
    [
        "data-8d9f958c-0.parquet",
        "compacted-changelog-1$0-99.cc-parquet",
        "a..b",
        ".x",
        "-",
        "tag ä",
        "data.parquet.index",
    ],
)
def test_honest_names_pass(name: str) -> None:
    assert check_name(name) == name


@given(st.text(max_size=20))
def test_a_name_that_passes_is_one_component_of_a_path(name: str) -> None:
    try:
        check_name(name)
    except InvalidData:
        return
    assert posixpath.normpath(f"/w/t/{name}") == f"/w/t/{name}"
    assert posixpath.dirname(f"/w/t/{name}") == "/w/t"


@given(st.lists(st.sampled_from(["..", ".", "a", "", "t", "t2", "%2e%2e", "\x00", "b c"]), max_size=6), st.booleans())
def test_a_path_that_passes_lies_strictly_inside(parts: list[str], absolute: bool) -> None:
    path = ("/w/t/" if absolute else "") + "/".join(parts)
    try:
        clean = inside("/w/t", path)
    except CorruptFile:
        return
    assert clean.startswith("/w/t/")
    assert ".." not in clean.split("/")


@pytest.mark.parametrize(
    "path", ["/w/t", "/w/t/", "/w/t2/x", "/w/t/../t2/x", "/w/t/a/../../x", "x", "", "/", "/w/t/a\x00", "/w/t/a/../b"]
)
def test_paths_outside_are_refused(path: str) -> None:
    with pytest.raises(CorruptFile):
        inside("/w/t", path)


def test_a_root_may_end_with_a_slash_or_be_a_link_but_nothing_below_it(tmp_path: Path) -> None:
    real = tmp_path / "real/t/bucket-0"
    real.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "w").symlink_to(tmp_path / "real")
    (real.parent / "bucket-1").symlink_to(tmp_path / "elsewhere")
    root = f"{tmp_path}/w/t/"
    assert inside_really(root, f"{root}bucket-0/x") == f"{tmp_path}/w/t/bucket-0/x"
    with pytest.raises(CorruptFile, match="symbolic link"):
        inside_really(root, f"{root}bucket-1/x")
