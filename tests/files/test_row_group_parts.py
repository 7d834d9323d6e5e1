"""Parts of row groups: the rows, bounds and counts of their pages, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile
from lsm_core.files.formats import thrift
from lsm_core.files.row_group_parts import GroupPages, PageIndexes
from lsm_core.files.row_groups import StoredGroups, open_groups
from lsm_core.files.splicing import part_of_group
from lsm_core.storage import LocalFileIO
from tests.files.test_row_groups import WRITERS, rows

IO = LocalFileIO()
ROWS = 400
INDEXED = [name for name in sorted(WRITERS) if name not in ("bloom", "gzip")]


def write(path: Path, table: pa.Table, **options: Any) -> StoredGroups:
    chosen = {"write_page_index": True, "max_rows_per_page": 50, "write_page_checksum": True} | options
    pq.write_table(table, path, row_group_size=ROWS, **chosen)
    return open_groups(IO, str(path))


def pages_of(groups: StoredGroups, schema: pa.Schema) -> list[GroupPages | None]:
    with IO.open_input(groups.path) as source:
        indexes = PageIndexes(source, groups, schema)
        return [indexes.of(number) for number in range(len(groups.group_rows))]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(INDEXED), st.integers(0, 1), st.data())
def test_a_part_has_the_rows_and_the_statistics_of_its_pages(
    tmp_path: Path, writer: str, number: int, data: st.DataObject
) -> None:
    """The statistics are those that the writer stores for the same rows in a file of their own."""
    table = rows(5, 700)
    groups = write(tmp_path / "a.parquet", table, **WRITERS[writer])
    pages = pages_of(groups, table.schema)[number]
    assert pages is not None
    assert len(pages.borders) > 3
    first, stop = sorted(data.draw(st.lists(st.sampled_from(pages.borders), min_size=2, max_size=2, unique=True)))
    with IO.open_input(groups.path) as source:
        memory, part = part_of_group(source, groups, pages, first, stop)
    expected = table.slice(number * ROWS + first, stop - first)
    file = pq.ParquetFile(memory.open_input(""), page_checksum_verification=True)
    assert file.read().equals(expected)
    assert part.pages[0].size == pages.sizes().between(first, stop)
    write(tmp_path / "alone.parquet", expected, **WRITERS[writer])
    alone = pq.read_metadata(tmp_path / "alone.parquet").row_group(0)
    for at in range(alone.num_columns):
        column, own = file.metadata.row_group(0).column(at), alone.column(at)
        assert column.num_values == own.num_values
        assert column.statistics.null_count == own.statistics.null_count
        if "." not in column.path_in_schema:
            assert (column.statistics.min, column.statistics.max) == (own.statistics.min, own.statistics.max)
    again = PageIndexes(memory.open_input(""), part, table.schema).of(0)
    assert again is not None
    assert again.borders == tuple(border - first for border in pages.borders if first <= border <= stop)


def test_files_without_page_indexes_or_with_bloom_filters_are_not_cut(tmp_path: Path) -> None:
    table = rows(1, 500)
    for writer in ("gzip", "bloom"):
        groups = write(tmp_path / f"{writer}.parquet", table, **WRITERS[writer])
        assert pages_of(groups, table.schema) == [None, None]


def test_columns_whose_pages_end_elsewhere_leave_no_border(tmp_path: Path) -> None:
    table = pa.table({"k": np.arange(ROWS), "s": ["x" * (90 * (n % 7)) for n in range(ROWS)]})
    options = {"max_rows_per_page": None, "data_page_size": 2_000, "write_batch_size": 8, "use_dictionary": False}
    groups = write(tmp_path / "a.parquet", table, **options)
    (pages,) = pages_of(groups, table.schema)
    assert pages is not None
    assert {0, ROWS} <= set(pages.borders)
    starts = [set(chunk.first_rows) for chunk in pages.chunks]
    assert set(pages.borders) == starts[0] & starts[1]
    assert len(pages.borders) < len(starts[1]) // 2


@pytest.mark.parametrize("name", ["k", "x", "s"])
def test_bounds_that_are_not_those_of_the_pages_are_an_error(tmp_path: Path, name: str) -> None:
    table = rows(2, ROWS)
    groups = write(tmp_path / "a.parquet", table, use_dictionary=False)
    leaf = groups.footer.singles[name]
    low = groups.footer.groups[0].chunks[leaf].low
    assert low is not None
    content = (tmp_path / "a.parquet").read_bytes()
    footer = content[groups.footer_at :]
    assert low in footer
    changed = bytes([low[0] ^ 1]) + low[1:]
    (tmp_path / "a.parquet").write_bytes(content[: groups.footer_at] + footer.replace(low, changed))
    with pytest.raises(CorruptFile, match=f"bounds of column '{name}' in row group 0"):
        pages_of(open_groups(IO, groups.path), table.schema)


def test_a_column_that_has_another_name_in_a_row_group_is_an_error(tmp_path: Path) -> None:
    groups = write(tmp_path / "a.parquet", rows(2, ROWS), use_dictionary=False)
    content = (tmp_path / "a.parquet").read_bytes()
    footer = content[groups.footer_at :]
    at = footer.rindex(b"\x19\x18\x01k")  # the list of one name in the metadata of the column
    changed = footer[: at + 3] + b"q" + footer[at + 4 :]
    (tmp_path / "a.parquet").write_bytes(content[: groups.footer_at] + changed)
    with pytest.raises(CorruptFile, match="column 'k' has another name in row group 0"):
        pages_of(open_groups(IO, groups.path), rows(2, ROWS).schema)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 1 << 20), st.integers(1, 255), st.data())
def test_changed_page_indexes_are_refused_or_give_the_same_rows(
    tmp_path: Path, place: int, flip: int, data: st.DataObject
) -> None:
    """A changed byte never makes a part of other rows than its file has at its place."""
    table = rows(9, ROWS)
    groups = write(tmp_path / "a.parquet", table)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    start = groups.pages[-1].end
    content[start + place % (groups.footer_at - start)] ^= flip
    (tmp_path / "b.parquet").write_bytes(content)
    changed = open_groups(IO, str(tmp_path / "b.parquet"))
    try:
        (pages,) = pages_of(changed, table.schema)
        if pages is None or len(pages.borders) < 3:
            return
        first, stop = sorted(data.draw(st.lists(st.sampled_from(pages.borders), min_size=2, max_size=2, unique=True)))
        with IO.open_input(changed.path) as source:
            memory, _ = part_of_group(source, changed, pages, first, stop)
    except CorruptFile:
        return
    assert pq.read_table(memory.open_input("")).equals(table.slice(first, stop - first))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40), st.sampled_from([thrift.STRUCT, thrift.LIST, thrift.BINARY, thrift.I32, thrift.SET]))
def test_a_skipped_value_ends_where_its_parser_ends(data: bytes, kind: int) -> None:
    reader = thrift.Reader(data)
    try:
        reader.value(kind)
    except (ValueError, IndexError):
        return
    assert thrift.skip(data, 0, kind) == reader.at
