"""Copies of row groups: the same rows, and only files that fit together."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, UnsupportedFeature
from lsm_core.files.formats import thrift
from lsm_core.files.formats.parquet_footer import stored_footer
from lsm_core.files.formats.thrift_fields import (
    Fields,
    join_fields,
    join_structs,
    set_number,
    split_struct,
    split_structs,
)
from lsm_core.files.row_group_copier import RowGroupCopier, require_copied
from lsm_core.files.row_groups import (
    BLOOM_AT,
    BOUNDS_BYTES,
    CHUNK_META,
    DATA_AT,
    GROUP_COLUMNS,
    GROUPS,
    INDEX_PAGE_AT,
    OFFSETS_AT,
    OFFSETS_BYTES,
    STORED_BYTES,
    StoredGroups,
    can_join,
    join_refusal,
    open_groups,
    read_groups,
)
from lsm_core.storage import LocalFileIO
from lsm_core.storage.remote_input import RemoteFile
from tests.files.test_parquet_usual import CHANGES, changed, files

IO = LocalFileIO()
GROUP = 100
BLOOM = {"bloom_filter_options": {"k": {"ndv": 100, "fpp": 0.05}}}
WRITERS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "compression": "none"},
    "dictionary": {"compression": "zstd"},
    "v2": {"data_page_version": "2.0", "compression": "snappy", "column_encoding": {"k": "DELTA_BINARY_PACKED"}},
    "bloom": {"compression": "lz4", **BLOOM},
    "gzip": {"compression": "gzip", "write_page_index": False},
    "brotli": {"compression": "brotli", "use_dictionary": ["s"], "store_schema": False},
}
WRITERS["v2"]["use_dictionary"] = ["s"]


def rows(seed: int, count: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.integers(0, 1 << 40, count))
    some = rng.random(count) < 0.8
    return pa.table(
        {
            "k": pa.array(numbers),
            "s": pa.array([f"text {n % 7}" for n in numbers.tolist()], pa.string(), mask=~some),
            "x": pa.array(rng.random(count), mask=some),
            "l": pa.array([[n, None] if n % 3 else None for n in numbers.tolist()], pa.list_(pa.int64())),
            "m": pa.array([[("a", n)] if n % 2 else [] for n in numbers.tolist()], pa.map_(pa.string(), pa.int64())),
            "r": pa.array(
                [{"a": n, "b": None} for n in numbers.tolist()], pa.struct({"a": pa.int64(), "b": pa.bool_()})
            ),
        }
    )


def write(path: Path, table: pa.Table, **options: Any) -> StoredGroups:
    options = {"write_page_index": True, "write_page_checksum": True, "data_page_size": 300} | options
    pq.write_table(table, path, row_group_size=GROUP, write_batch_size=16, **options)
    return open_groups(IO, str(path))


def copy(path: Path, choices: Sequence[tuple[StoredGroups, Sequence[int]]]) -> RowGroupCopier:
    with IO.open_output(str(path)) as output:
        copier = RowGroupCopier(output, str(path))
        for groups, numbers in choices:
            with IO.open_input(groups.path) as source:
                copier.copy(source, groups, numbers)
        copier.close()
        output.close()
    return copier


def group(table: pa.Table, number: int) -> pa.Table:
    return table.slice(number * GROUP, GROUP)


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS.keys())
def test_the_copy_has_the_rows_and_the_indexes_of_its_sources(tmp_path: Path, options: dict[str, Any]) -> None:
    tables = [rows(seed, 350) for seed in (1, 2)]
    first, second = (write(tmp_path / f"{i}.parquet", table, **options) for i, table in enumerate(tables))
    path = tmp_path / "copy.parquet"
    copier = copy(path, [(first, [1, 2]), (second, [3, 0]), (first, [0])])
    expected = pa.concat_tables(group(tables[i], n) for i, n in ((0, 1), (0, 2), (1, 3), (1, 0), (0, 0)))
    assert pq.read_table(path, page_checksum_verification=True).equals(expected)
    require_copied(IO, str(path), copier.copied)
    metadata, source = pq.read_metadata(path), pq.read_metadata(first.path)
    assert metadata.schema.equals(source.schema)
    assert metadata.metadata == source.metadata
    for leaf in range(metadata.num_columns):
        copied, original = metadata.row_group(0).column(leaf), source.row_group(1).column(leaf)
        assert copied.statistics == original.statistics
        assert copied.has_offset_index == original.has_offset_index == options.get("write_page_index", True)
        assert (copied.bloom_filter_length is None) == (original.bloom_filter_length is None)


def test_a_copy_of_a_copy_is_the_same_file(tmp_path: Path) -> None:
    source = write(tmp_path / "a.parquet", rows(3, 350), **BLOOM)
    copy(tmp_path / "b.parquet", [(source, [0, 1, 2, 3])])
    copy(tmp_path / "c.parquet", [(open_groups(IO, str(tmp_path / "b.parquet")), [0, 1, 2, 3])])
    assert (tmp_path / "b.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.integers(1, 250), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=8),
    st.sampled_from(sorted(WRITERS)),
)
def test_any_row_groups_in_any_order(
    tmp_path: Path, sizes: list[int], picks: list[tuple[int, int]], writer: str
) -> None:
    tables = [rows(seed, size) for seed, size in enumerate(sizes)]
    sources = [write(tmp_path / f"{i}.parquet", table, **WRITERS[writer]) for i, table in enumerate(tables)]
    chosen = [(i % len(sources), n) for i, n in picks]
    chosen = [(i, n % len(sources[i].group_rows)) for i, n in chosen]
    path = tmp_path / "copy.parquet"
    path.unlink(missing_ok=True)
    copier = copy(path, [(sources[i], [n]) for i, n in chosen])
    assert pq.read_table(path).equals(pa.concat_tables(group(tables[i], n) for i, n in chosen))
    assert copier.rows == sum(sources[i].group_rows[n] for i, n in chosen)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda table: table.rename_columns(["q", *table.column_names[1:]]), "schema"),
        (lambda table: table.replace_schema_metadata({"a": "b"}), "key-value metadata"),
        (lambda table: table.drop_columns("s"), "schema"),
    ],
)
def test_files_that_differ_are_not_joined(tmp_path: Path, other: Callable[[pa.Table], pa.Table], reason: str) -> None:
    table = rows(1, 120)
    first, second = write(tmp_path / "a.parquet", table), write(tmp_path / "b.parquet", other(table))
    assert not can_join(first, second)
    assert reason in join_refusal(first, second)
    with pytest.raises(UnsupportedFeature, match=reason):
        copy(tmp_path / "c.parquet", [(first, [0]), (second, [0])])
    assert not (tmp_path / "c.parquet").exists()


def test_changed_bytes_are_found(tmp_path: Path) -> None:
    source = write(tmp_path / "a.parquet", rows(1, 250))
    path = tmp_path / "b.parquet"
    copier = copy(path, [(source, [0, 1])])
    data = path.read_bytes()
    for place in (10, len(data) // 2, len(data) - 20):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(CorruptFile, match=r"b\.parquet"):
            require_copied(IO, str(path), copier.copied)
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptFile, match=r"b\.parquet"):
        require_copied(IO, str(path), copier.copied)


def copied_bytes(data: bytes, footer: bytes) -> StoredGroups | str:
    """What a file with another footer copies: all of its row groups, or how it is refused."""
    whole = data[: -8 - len(stored_footer(pa.BufferReader(data), "x.parquet"))]
    whole += footer + len(footer).to_bytes(4, "little") + b"PAR1"
    source, output = pa.BufferReader(whole), io.BytesIO()
    try:
        groups = read_groups(source, "x.parquet")
        copier = RowGroupCopier(output, "copy.parquet")
        copier.copy(source, groups, range(len(groups.group_rows)))
        if groups.group_rows:
            copier.close()
    except (CorruptFile, UnsupportedFeature) as error:
        return type(error).__name__
    limit = len(whole) - 8 - len(footer)
    assert all(4 <= span.start <= span.end <= limit for span in groups.pages)
    assert output.tell() <= 3 * len(whole)
    return groups


@settings(max_examples=int(os.environ.get("DREDGE_GROUP_FOOTERS", "60")), deadline=None)
@given(st.sampled_from(sorted(files())), CHANGES)
def test_changed_footers_are_refused_or_stay_inside_the_file(name: str, changes: list[tuple[int, int, str]]) -> None:
    data = files()[name]
    copied_bytes(data, changed(stored_footer(pa.BufferReader(data), name), changes))


@pytest.mark.parametrize("name", sorted(files()))
def test_an_unchanged_footer_is_read_and_written_again(name: str) -> None:
    footer = stored_footer(pa.BufferReader(files()[name]), name)
    fields, end = split_struct(footer)
    assert end == len(footer)
    assert join_fields(fields) == footer
    assert isinstance(copied_bytes(files()[name], footer), StoredGroups)


def changed_footer(data: bytes, change: Callable[[Fields, Fields, Fields, Fields], object]) -> StoredGroups | str:
    """Copy a file of one row group after a change of (footer, row group, first chunk, its metadata)."""
    footer, _ = split_struct(stored_footer(pa.BufferReader(data), "x.parquet"))
    groups = split_structs(footer[GROUPS][1])
    group, _ = split_struct(groups[0])
    chunks = split_structs(group[GROUP_COLUMNS][1])
    chunk, _ = split_struct(chunks[0])
    meta, _ = split_struct(chunk[CHUNK_META][1])
    change(footer, group, chunk, meta)
    if CHUNK_META in chunk:
        chunk[CHUNK_META] = thrift.STRUCT, join_fields(meta)
    group[GROUP_COLUMNS] = thrift.LIST, join_structs([join_fields(chunk), *chunks[1:]])
    footer[GROUPS] = thrift.LIST, join_structs([join_fields(group), *groups[1:]])
    return copied_bytes(data, join_fields(footer))


def put(number: int, value: int, kind: int = thrift.I64) -> Callable[[Fields], None]:
    return lambda fields: set_number(fields, number, value, kind)


TEXT = thrift.BINARY, b"\x01x"


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda footer, group, chunk, meta: None, None),
        (lambda footer, group, chunk, meta: footer.update({9: TEXT}), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: footer.update({8: (thrift.STRUCT, b"\x00")}), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: group.update({8: TEXT}), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: chunk.update({1: TEXT}), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: chunk.update({8: (thrift.STRUCT, b"\x00")}), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: chunk.update({10: TEXT}), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: meta.update({30: TEXT}), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: put(BLOOM_AT, 10)(meta), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: put(INDEX_PAGE_AT, 1 << 40)(meta), "CorruptFile"),
        (lambda footer, group, chunk, meta: put(DATA_AT, 1 << 62)(meta), "CorruptFile"),
        (lambda footer, group, chunk, meta: put(STORED_BYTES, 1 << 40)(meta), "CorruptFile"),
        (lambda footer, group, chunk, meta: put(STORED_BYTES, 1)(meta), "UnsupportedFeature"),
        (lambda footer, group, chunk, meta: put(OFFSETS_AT, -1)(chunk), "CorruptFile"),
        (lambda footer, group, chunk, meta: put(OFFSETS_BYTES, 1 << 30, thrift.I32)(chunk), "CorruptFile"),
        (lambda footer, group, chunk, meta: put(BOUNDS_BYTES, -5, thrift.I32)(chunk), "CorruptFile"),
        (lambda footer, group, chunk, meta: chunk.pop(OFFSETS_BYTES), "CorruptFile"),
        (lambda footer, group, chunk, meta: put(OFFSETS_AT, 4)(chunk), "CorruptFile"),
    ],
)
def test_a_changed_field_is_refused(change: Callable[..., object], refusal: str | None) -> None:
    sink = io.BytesIO()
    table = pa.table({"k": pa.array(range(500)), "s": ["x"] * 500})
    pq.write_table(table, sink, write_page_index=True, use_dictionary=["s"])
    outcome = changed_footer(sink.getvalue(), change)
    assert outcome == refusal if refusal else isinstance(outcome, StoredGroups)


def test_row_groups_that_overlap_are_refused() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"k": pa.array(range(500))}), sink, row_group_size=250)
    data = sink.getvalue()
    footer, _ = split_struct(stored_footer(pa.BufferReader(data), "x.parquet"))
    groups = split_structs(footer[GROUPS][1])
    footer[GROUPS] = thrift.LIST, join_structs([groups[0], groups[0]])
    assert copied_bytes(data, join_fields(footer)) == "CorruptFile"


def test_a_source_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    groups = write(tmp_path / "a.parquet", rows(1, 120))
    data = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(CorruptFile, match=r"a\.parquet.*ends at byte"):
        RowGroupCopier(io.BytesIO(), "b.parquet").copy(pa.BufferReader(data[:200]), groups, [0])


def test_a_file_that_is_another_size_or_missing_is_refused(tmp_path: Path) -> None:
    groups = write(tmp_path / "a.parquet", rows(1, 20))
    with pytest.raises(CorruptFile, match="manifest entry says 7"):
        open_groups(IO, groups.path, size=7)
    with pytest.raises(CorruptFile, match="missing"):
        open_groups(IO, str(tmp_path / "none.parquet"))


def test_a_remote_file_is_copied_with_few_requests(tmp_path: Path) -> None:
    source = write(tmp_path / "a.parquet", rows(1, 2_000), use_dictionary=False, compression="none")
    data = (tmp_path / "a.parquet").read_bytes()
    requests: list[tuple[int, int]] = []

    def fetch(start: int, end: int) -> bytes:
        requests.append((start, end))
        return data[start:end]

    remote = RemoteFile.opened(fetch, lambda size: (len(data), data[-size:]), lambda: len(data))
    copies = []
    for opened in (remote, pa.BufferReader(data)):
        output = io.BytesIO()
        copier = RowGroupCopier(output, "b.parquet")
        copier.copy(opened, source, range(len(source.group_rows)))
        copier.close()
        copies.append(output.getvalue())
    assert copies[0] == copies[1]
    assert 1 <= len(requests) <= 2
