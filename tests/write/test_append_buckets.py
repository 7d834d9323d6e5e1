"""Append tables with buckets: rows in the bucket of their key, in the order in which they came, also after compactions."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core import Catalog, Schema, SchemaChange, Table
from lsm_core.commit import Committer
from lsm_core.errors import InvalidData, WriterStale
from lsm_core.format.hashing import bucket_of
from lsm_core.metadata.store import TableStore
from lsm_core.types import parse
from lsm_core.write import TableWrite
from tests.support.samples import examples
from tests.support.stores import live_files, make_store, read, write

FIELDS = {"k": "BIGINT", "n": "INT"}


def rows(*pairs: tuple[int | None, int]) -> pa.Table:
    keys, numbers = zip(*pairs, strict=True)
    return pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(numbers, pa.int32())})


def of(root: Path, **options: str) -> TableStore:
    given = {"bucket": "3", "bucket-key": "k", **{k.replace("_", "-"): v for k, v in options.items()}}
    return make_store(root, FIELDS, options=given)


def by_bucket(table: pa.Table, total: int = 3) -> dict[int, list[int]]:
    """Numbers of each bucket in the order in which they are read."""
    buckets = bucket_of([table.column("k").combine_chunks()], [parse("BIGINT")], total, "default")
    found: dict[int, list[int]] = {}
    for bucket, number in zip(buckets.tolist(), table.column("n").to_pylist(), strict=True):
        found.setdefault(bucket, []).append(number)
    return found


def test_rows_go_to_the_bucket_of_their_key_and_number_on_where_it_stopped(tmp_path: Path) -> None:
    store = of(tmp_path / "t")
    for step in range(3):
        write(store, rows(*((key, 100 * step + key) for key in range(20)), (None, 100 * step + 99)))
    seen = by_bucket(read(store))
    assert len(seen) == 3
    for (_, bucket), files in live_files(store).items():
        ranges = sorted((f.min_sequence_number, f.max_sequence_number) for f in files)
        assert len(ranges) == 3
        assert ranges[0][0] == 0
        assert all(later[0] == earlier[1] + 1 for earlier, later in itertools.pairwise(ranges))
        assert ranges[-1][1] == len(seen[bucket]) - 1
        assert seen[bucket] == sorted(seen[bucket])
        assert {f.level for f in files} == {0}


def test_an_overwrite_numbers_from_0_and_deletes_are_refused(tmp_path: Path) -> None:
    store = of(tmp_path / "t")
    write(store, rows((1, 1), (1, 2)))
    with TableWrite(store, overwrite=True) as writer:
        writer.write(rows((1, 3)))
        messages = writer.prepare_commit()
    Committer(store).overwrite(messages)
    ((file,),) = live_files(store).values()
    assert (file.min_sequence_number, file.max_sequence_number) == (0, 0)
    with pytest.raises(InvalidData, match=r"append table accepts only \+I"):
        write(store, rows((1, 4)), ["-D"])


def append_table(tmp_path: Path, **options: str) -> Table:
    catalog = Catalog(tmp_path / "wh")
    catalog.create_database("db")
    given: dict[str, Any] = {"bucket": "2", "bucket-key": "k", "compaction.min.file-num": "3", **options}
    schema = pa.schema([("k", pa.int64()), ("n", pa.int32())])
    return catalog.create_table("db.t", Schema(schema, options=given))


def test_another_number_of_buckets_is_refused_until_the_partition_is_overwritten(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    table.write(rows((1, 1), (2, 2)))
    catalog = Catalog(tmp_path / "wh")
    catalog.alter_table("db.t", [SchemaChange.set_option("bucket", "5")])
    table = catalog.table("db.t")
    with pytest.raises(WriterStale, match="2 buckets"):
        table.write(rows((3, 3)))
    table.write(rows((1, 1), (2, 2), (3, 3)), overwrite=True)
    table.write(rows((4, 4)))
    assert sorted(table.to_arrow().column("n").to_pylist()) == [1, 2, 3, 4]


def test_compactions_keep_the_order_of_rows_and_windows_their_places(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    for step in range(7):
        table.write(rows((1, 2 * step), (1, 2 * step + 1)))
    expected = list(range(14))
    plan = table.plan_maintenance("compact")
    assert [len(bin_files) for item in plan.items for bin_files in item.bins] == [3, 3]
    table.apply(plan)
    assert table.to_arrow().column("n").to_pylist() == expected
    ((files,),) = (live_files(table.store).values(),)
    ranges = sorted((f.min_sequence_number, f.max_sequence_number, f.file_source) for f in files)
    assert ranges == [(0, 5, 1), (6, 11, 1), (12, 13, 0)]
    report = table.compact(full=True)
    assert (report.files_in, report.files_out) == (3, 1)
    assert table.to_arrow().column("n").to_pylist() == expected
    assert table.compact(full=True).declined[0].reason == "too-few-small-files"
    table.write(rows((1, 14)))
    assert table.to_arrow().column("n").to_pylist() == list(range(15))


def test_a_full_compaction_that_declines_says_why(tmp_path: Path) -> None:
    table = append_table(tmp_path)
    for count in (1, 4000, 1, 4000, 1, 4000):
        table.write(rows(*((1, n) for n in range(count))))
    small = table.copy({"target-file-size": "5 kb"}).plan_maintenance("compact", full=True)
    assert small.declined[0].text == "3 small files, not more than the large ones behind the first of them (6 in all)"


def test_the_most_files_of_a_window_are_no_matter_since_paimon_1_1(tmp_path: Path) -> None:
    table = append_table(tmp_path, **{"compaction.max.file-num": "2"})
    for step in range(2):
        table.write(rows((1, step)))
    assert table.compact().declined[0].facts["min_files"] == 3


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(0, 9), min_size=1, max_size=8), st.just("minor"), st.just("full"), st.just("overwrite")
        ),
        max_size=12,
    )
)
def test_every_bucket_reads_in_the_order_it_was_written_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    table = append_table(tmp_path_factory.mktemp("t"), **{"compaction.min.file-num": "2"})
    expected: dict[int, list[int]] = {}
    counter = 0
    for step in steps:
        if step in ("minor", "full"):
            table.compact(full=step == "full")
        else:
            keys = [5, 6] if step == "overwrite" else step
            batch = rows(*((key, counter + i) for i, key in enumerate(keys)))
            counter += len(keys)
            if step == "overwrite":
                expected = {}
            table.write(batch, overwrite=step == "overwrite")
            for bucket, numbers in by_bucket(batch, 2).items():
                expected.setdefault(bucket, []).extend(numbers)
        assert by_bucket(table.to_arrow(), 2) == expected
