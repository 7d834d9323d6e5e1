"""The semi-join of compactions: for the keys of window after window, where the levels above hold them and what they say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile
from lsm_core.files import KeyValueFileWriter, kv_read_schema
from lsm_core.files.formats import parquet
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.format.manifest import SOURCE_COMPACT, DataFileMeta
from lsm_core.merge import normalise_keys
from lsm_core.metadata.store import TableStore
from lsm_core.read.lookup import RowsAbove, SortedKeys
from tests.support.samples import examples
from tests.support.stores import make_store

KINDS = {"INT": (pa.int32(), int), "STRING": (pa.string(), lambda key: f"key-{key:06}")}


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 7 rows."""
    monkeypatch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", 7)


def store_at(root: Path, kind: str = "INT", options: dict[str, str] | None = None) -> TableStore:
    return make_store(
        root, {"k": f"{kind} NOT NULL", "v": "BIGINT", "s": "STRING"}, ["k"], (), {"bucket": "1", **(options or {})}
    )


def file_of(store: TableStore, kind: str, keys: list[int], level: int) -> DataFileMeta:
    """A file of one level; a row's value and sequence number tell its key and level."""
    arrow, make = KINDS[kind]
    made = pa.array([make(key) for key in keys], arrow)
    numbers = pa.array([100 * key + level for key in keys], pa.int64())
    columns = {
        "_KEY_k": made, "_SEQUENCE_NUMBER": numbers, "_VALUE_KIND": pa.array([key % 4 for key in keys], pa.int8()),
        "k": made, "v": numbers, "s": pa.array([f"{level}/{key}" for key in keys]),
    }  # fmt: skip
    writer = KeyValueFileWriter(store, EMPTY_ROW, 0, 1, level=level, file_source=SOURCE_COMPACT)
    writer.write(pa.RecordBatch.from_pydict(columns))
    (file,) = writer.close()
    return file


def asked(kind: str, keys: list[int]) -> SortedKeys:
    arrow, make = KINDS[kind]
    column = pa.array([make(key) for key in keys], arrow)
    return SortedKeys(normalise_keys([column]), pa.RecordBatch.from_arrays([column], names=["k"]))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.usefixtures("small_groups")
def test_each_key_is_found_in_the_lowest_level_that_has_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    draw = data.draw
    kind = draw(st.sampled_from(sorted(KINDS)))
    file_format = draw(st.sampled_from(["parquet", "parquet", "orc", "avro"]))
    options = {"file.format": file_format, "data-file.thin-mode": draw(st.sampled_from(["true", "false"]))}
    if file_format == "parquet" and draw(st.booleans()):
        options["file-index.bloom-filter.columns"] = "k"
    store = store_at(tmp_path_factory.mktemp("t") / "t", kind, options)
    lies: dict[int, tuple[int, str, int]] = {}
    files = []
    for level in draw(st.lists(st.integers(1, 5), unique=True, max_size=3)):
        keys = sorted(draw(st.sets(st.integers(0, 120), min_size=1, max_size=60)))
        cut = sorted({0, *draw(st.sets(st.integers(0, len(keys) - 1), max_size=2)), len(keys)})
        for start, stop in pairwise(cut):
            file = file_of(store, kind, keys[start:stop], level)
            files.append(file)
            for place, key in enumerate(keys[start:stop]):
                if key not in lies or lies[key][0] > level:
                    lies[key] = (level, file.file_name, place)
    wanted = sorted(draw(st.sets(st.integers(-5, 130), max_size=80)))
    bounds = sorted({0, *draw(st.sets(st.integers(0, len(wanted)), max_size=4)), len(wanted)})
    layout = kv_read_schema(store)
    names = draw(st.sampled_from([layout.names, ["s"], ["_KEY_k"], ["v", "_VALUE_KIND", "k"], []]))
    target = pa.schema([layout.field(name) for name in names])
    found: dict[int, tuple[int, str, int]] = {}
    with RowsAbove(store, EMPTY_ROW, 0, files, target, batch_rows=draw(st.sampled_from([3, 65_536]))) as above:
        for start, stop in pairwise(bounds):
            window = wanted[start:stop]
            for hits in above.find(asked(kind, window)):
                keys = [window[i] for i in hits.lookup_rows.tolist()]
                found |= {
                    k: (hits.file.level, hits.file.file_name, p)
                    for k, p in zip(keys, hits.positions.tolist(), strict=True)
                }
                assert hits.rows.schema.names == names
                values = {
                    "s": [f"{hits.file.level}/{key}" for key in keys],
                    "_KEY_k": [KINDS[kind][1](key) for key in keys],
                    "k": [KINDS[kind][1](key) for key in keys],
                    "v": [100 * key + hits.file.level for key in keys],
                    "_SEQUENCE_NUMBER": [100 * key + hits.file.level for key in keys],
                    "_VALUE_KIND": [key % 4 for key in keys],
                }
                assert hits.rows.to_pydict() == {name: values[name] for name in names}
    assert found == {key: lies[key] for key in wanted if key in lies}


def watch_decoding(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    seen: list[tuple[str, int]] = []
    real = parquet.ParquetSource.batches

    def watched(self: Any, columns: Any, batch_rows: int, row_groups: Any = None, **how: Any) -> Any:
        seen.extend((name, group) for name in columns for group in row_groups)
        yield from real(self, columns, batch_rows, row_groups, **how)

    monkeypatch.setattr(parquet.ParquetSource, "batches", watched)
    return seen


@pytest.mark.usefixtures("small_groups")
def test_a_row_group_is_decoded_once_whatever_the_windows_and_values_only_where_keys_hit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(tmp_path / "t")
    file = file_of(store, "INT", list(range(0, 210, 2)), 3)  # 15 row groups of 7 rows, 14 keys apart
    target = pa.schema([kv_read_schema(store).field("s")])
    seen = watch_decoding(monkeypatch)
    with RowsAbove(store, EMPTY_ROW, 0, [file], target) as above:
        windows = [[0, 2], [4, 6, 30], [31, 33], [35, 199, 200], [204, 300]]
        hits = [hit for window in windows for hit in above.find(asked("INT", window))]
    assert [p for hit in hits for p in hit.positions.tolist()] == [0, 1, 2, 3, 15, 100, 102]
    assert sorted(seen) == [("k", 0), ("k", 2), ("k", 14), ("s", 0), ("s", 2), ("s", 14)]


def test_level_0_is_refused_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = store_at(tmp_path / "t")
    with pytest.raises(ValueError, match="level 0"):
        RowsAbove(store, EMPTY_ROW, 0, [file_of(store, "INT", [1], 0)], pa.schema([]))
    file = file_of(store, "INT", [1, 2], 1)
    Path(store.data_path(EMPTY_ROW, 0, file)).write_bytes(b"PAR1" + bytes(file.file_size - 8) + b"PAR1")
    with RowsAbove(store, EMPTY_ROW, 0, [file], pa.schema([])) as above, pytest.raises(CorruptFile) as caught:
        above.find(asked("INT", [1]))
    assert file.file_name in str(caught.value)


def test_rows_that_a_vector_marks_are_no_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def deleted_mask(self, first: int, rows: int) -> Any:
            return np.isin(np.arange(first, first + rows), [1, 8])

    monkeypatch.setattr("lsm_core.read.lookup.rows_above.read_vector", lambda *_: Gone())
    store = store_at(tmp_path / "t")
    files = [file_of(store, "INT", list(range(10)), 2), file_of(store, "INT", [1, 5], 4)]
    vectors: Any = {files[0].file_name: object()}
    with RowsAbove(store, EMPTY_ROW, 0, files, pa.schema([]), deletions=vectors, batch_rows=4) as above:
        hits = above.find(asked("INT", [0, 1, 8, 9]))
    assert [(hit.file.level, hit.lookup_rows.tolist(), hit.positions.tolist()) for hit in hits] == [
        (2, [0, 3], [0, 9]),
        (4, [1], [0]),
    ]
