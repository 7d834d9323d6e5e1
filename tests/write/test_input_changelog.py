"""`changelog-producer` = input: every row as it came, in key order and then in merge order, in files beside the flush."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.commit import CommitMessage, Committer
from lsm_core.errors import StorageFull
from lsm_core.files import open_kv
from lsm_core.format.binary_row import EMPTY_ROW
from lsm_core.metadata.store import TableStore
from lsm_core.types import kinds_from_text
from lsm_core.write import TableWrite
from tests.support.samples import examples
from tests.support.stores import data_files_on_disk, live_files, make_store, read

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}
INPUT = {"bucket": "1", "changelog-producer": "input"}
KINDS = ["+I", "-U", "+U", "-D"]


def rows_of(store: TableStore, message: CommitMessage) -> list[tuple[Any, ...]]:
    """(key, value, kind, sequence number) of the changelog, in file order."""
    found = []
    for file in message.changelog_files:
        for batch in open_kv(store, EMPTY_ROW, 0, file):
            columns = [batch.column(name).to_pylist() for name in ("k", "v", "_VALUE_KIND", "_SEQUENCE_NUMBER")]
            found += list(zip(*columns, strict=True))
    return found


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.sampled_from(KINDS)), min_size=1, max_size=60),
    sequence=st.booleans(),
    tight=st.booleans(),
    aggregates=st.booleans(),
)
def test_all_rows_are_told_in_key_order_and_then_in_merge_order(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, str]],
    sequence: bool,
    tight: bool,
    aggregates: bool,
) -> None:
    options = dict(INPUT)
    if sequence:
        options["sequence.field"] = "v"
    if tight:  # spilled runs of a few rows each, merged in passes
        options |= {
            "write-buffer-size": "1 kb",
            "local-sort.max-num-file-handles": "2",
            "write-buffer-spillable": "true",
        }
    if aggregates:
        options |= {"merge-engine": "aggregation", "fields.s.aggregate-function": "last_value"}
    root = tmp_path_factory.mktemp("t")
    store = make_store(root / "t", FIELDS, ["k"], (), options)
    plain = make_store(root / "p", FIELDS, ["k"], (), {**options, "changelog-producer": "none"})
    found = []
    for target in (store, plain):
        with TableWrite(target) as writer:
            for start in range(0, len(rows), 7):
                part = rows[start : start + 7]
                data = pa.table(
                    {"k": [k for k, _, _ in part], "v": [v for _, v, _ in part], "s": ["x" * 40] * len(part)}
                )
                writer.write(data, pa.array([kind for _, _, kind in part]))
            messages = writer.prepare_commit()
        Committer(target).commit(messages)
        found.append(messages)
    (message,) = found[0]
    assert not any(table.changelog_files for table in found[1])
    numbers = kinds_from_text(pa.array([kind for _, _, kind in rows])).to_pylist()
    arrived = [(k, v, kind, number) for number, ((k, v, _), kind) in enumerate(zip(rows, numbers, strict=True))]
    assert rows_of(store, message) == sorted(arrived, key=lambda row: (row[0], row[1] if sequence else 0, row[3]))
    assert read(store).to_pylist() == read(plain).to_pylist()
    files, plain_files = (live_files(table)[EMPTY_ROW, 0] for table in (store, plain))
    assert [f.row_count for f in files] == [f.row_count for f in plain_files]
    assert sum(f.row_count for f in message.changelog_files) == len(rows)
    assert {(f.level, f.file_source) for f in message.changelog_files} == {(0, 0)}


def test_changelog_files_have_options_of_their_own(tmp_path: Path) -> None:
    options = {
        "changelog-file.format": "avro",
        "changelog-file.prefix": "told-",
        "changelog-file.stats-mode": "none",
        "file.format.per.level": "0:orc",
    }
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {**INPUT, **options})
    with TableWrite(store) as writer:
        writer.write(pa.table({"k": [1], "v": [2], "s": ["a"]}))
        (message,) = writer.prepare_commit()
    (changes,), (data,) = message.changelog_files, message.new_files
    assert (changes.file_name.startswith("told-"), changes.file_name.endswith(".avro")) == (True, True)
    assert (data.file_name.startswith("data-"), data.file_name.endswith(".orc")) == (True, True)
    assert changes.value_stats_cols == ()
    assert data.value_stats_cols is None
    assert [row[:3] for row in rows_of(store, message)] == [(1, 2, 0)]


def test_an_overwrite_writes_no_changelog_and_an_abort_deletes_it(tmp_path: Path) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), INPUT)
    data = pa.table({"k": [1], "v": [2], "s": ["a"]})
    with TableWrite(store, overwrite=True) as writer:
        writer.write(data)
        assert [message.changelog_files for message in writer.prepare_commit()] == [()]
    before = data_files_on_disk(store)
    writer = TableWrite(store)
    writer.write(data)
    writer._bucket(EMPTY_ROW, 0).flush()
    assert len(data_files_on_disk(store) - before) == 2
    writer.abort()
    assert data_files_on_disk(store) == before


@pytest.mark.parametrize("prefix", ["changelog-", "data-"])
def test_a_disk_that_fills_up_leaves_neither_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), INPUT)
    real = store.file_io.open_output

    def full(path: str) -> Any:
        if path.rpartition("/")[2].startswith(prefix):
            raise StorageFull(path)
        return real(path)

    monkeypatch.setattr(store.file_io, "open_output", full)
    writer = TableWrite(store)
    writer.write(pa.table({"k": [1], "v": [2], "s": ["a"]}))
    with pytest.raises(StorageFull):
        writer.prepare_commit()
    writer.abort()
    assert data_files_on_disk(store) == set()
