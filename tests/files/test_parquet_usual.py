"""Footers and page headers read by patterns: the same as read as Thrift, whatever their bytes."""

from __future__ import annotations

import functools
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.formats import parquet_footer, thrift
from lsm_core.files.formats.parquet_footer import Footer, parse_footer, stored_footer
from lsm_core.files.formats.thrift import RowGroupFields, page_header
from tests.fuzz.footers import samples
from tests.support.parquet_files import footer_of

_NAME = "x.parquet"


@functools.cache
def files() -> dict[str, bytes]:
    return dict(samples())


def read(footer: bytes, size: int) -> Footer | str:
    """What the footer says, or how it is refused."""
    try:
        return parse_footer(footer, _NAME, size)
    except (CorruptFile, UnsupportedFeature) as error:
        return type(error).__name__


def read_as_thrift(footer: bytes, size: int) -> Footer | str:
    """The same without any pattern: nothing is known when it begins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_footer._KnownLists, "at", lambda *_: None)
        return read(footer, size)


def changed(data: bytes, changes: list[tuple[int, int, str]]) -> bytes:
    """Bytes set to others, left out, or put between."""
    found = bytearray(data)
    for place, byte, how in changes:
        at = place % len(found)
        found[at : at + (how != "more")] = b"" if how == "less" else bytes([byte])
    return bytes(found)


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 1 << 16),
        st.integers(0, 255) | st.sampled_from(b"\x80\xff\x7f"),
        st.sampled_from(["same", "more", "less"]),
    ),
    max_size=3,
)


@example("INT96", [(37, 0, "less")])  # row groups that are no structs, and a field that means encryption
@given(st.sampled_from(sorted(files())), CHANGES)
def test_a_footer_means_the_same_read_by_patterns_and_as_thrift(name: str, changes: list[tuple[int, int, str]]) -> None:
    data = files()[name]
    footer_of(data)  # knows the schema from here on
    footer = changed(stored_footer(pa.BufferReader(data), _NAME), changes)
    assert read(footer, len(data)) == read_as_thrift(footer, len(data))


@pytest.mark.parametrize("name", sorted(files()))
def test_what_writers_give_is_read_by_patterns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = files()[name]
    expected = footer_of(data)
    groups: list[Any] = []
    read_groups = thrift.row_groups

    def kept(*arguments: Any) -> Any:
        found = read_groups(*arguments)
        groups.extend(found[0])
        return found

    monkeypatch.setattr(parquet_footer, "row_groups", kept)
    assert footer_of(data) == expected
    assert groups
    assert all(
        isinstance(group, RowGroupFields) and not any(isinstance(each, dict) for each in group.columns)
        for group in groups
    )


@given(st.sampled_from(sorted(files())), st.integers(0, 40), CHANGES)
def test_a_page_header_means_the_same_read_by_a_pattern_and_as_thrift(
    name: str, number: int, changes: list[tuple[int, int, str]]
) -> None:
    chunks = [chunk for group in footer_of(files()[name]).groups for chunk in group.chunks]
    chunk = chunks[number % len(chunks)]
    start = changed(
        files()[name][chunk.start : chunk.start + 60], [(place % 30, byte, how) for place, byte, how in changes]
    )
    page = page_header(start)
    if page is None:
        return
    reader = thrift.Reader(start)
    header = reader.struct()
    result = header[7 if page.kind else 5][1]
    assert reader.at == page.end
    assert [header[field][1] for field in (1, 2, 3)] == [page.kind, page.plain_bytes, page.stored_bytes]
    assert [result[1][1], result[2][1]] == [page.values, page.encoding]
    assert page.kind or (result[3][1], result[4][1]) == page.levels


def test_page_headers_of_writers_are_read_by_a_pattern() -> None:
    data = files()["all types"]
    chunks = [chunk for group in footer_of(data).groups for chunk in group.chunks]
    plain = [page_header(data[chunk.start : chunk.start + 256]) for chunk in chunks if chunk.coded]
    assert plain
    assert all(page is not None and page.kind == 2 for page in plain)


def test_a_pattern_takes_no_number_that_its_type_does_not_hold() -> None:
    long = re.compile(thrift._LONG + rb"\Z", re.DOTALL)
    assert long.match(thrift.varint((1 << 63) - 1))
    assert not long.match(thrift.varint(1 << 63))
