"""A compaction that would change an answer is stopped before it is published: a row lost, a deleted row back, values swapped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lsm_core import Table
from lsm_core.compact import run_bucket_task
from lsm_core.errors import VerificationFailed
from lsm_core.files import KeyValueFileWriter
from lsm_core.format.manifest import EMPTY_ROW
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.read import merge_read
from lsm_core.read.lookup import RowsAbove
from lsm_core.read.lookup.rows_above import Hits
from tests.support.stores import data_files_on_disk, full_tasks, live_files, make_store, unit_task, write

FIELDS = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}
Sabotage = Callable[[pa.RecordBatch], pa.RecordBatch]


def rows(keys: list[int], value: int) -> pa.Table:
    return pa.table({"k": keys, "v": [value + k for k in keys], "s": [f"{value}/{k}" for k in keys]})


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    made = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    write(made, rows(list(range(200)), 0))
    write(made, rows(list(range(100, 300)), 1000))
    write(made, rows(list(range(0, 300, 7)), 0), ["-D"] * 43)
    return made


def replaced(batch: pa.RecordBatch, name: str, values: Any) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(place), pa.array(values, batch.schema.field(place).type))


def drop_a_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pa.array(np.arange(batch.num_rows) != 20))


def swap_two_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch.column("v").to_pylist()
    values[5], values[6] = values[6], values[5]
    return replaced(batch, "v", values)


def one_text_changed(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = batch.column("s").to_pylist()
    values[9] += " "
    return replaced(batch, "s", values)


def deleted_row_back(batch: pa.RecordBatch) -> pa.RecordBatch:
    return replaced(batch, "_VALUE_KIND", pc.multiply(batch.column("_VALUE_KIND"), 0).cast(pa.int8()))


def key_moved(batch: pa.RecordBatch) -> pa.RecordBatch:
    keys = batch.column("_KEY_k").to_pylist()
    keys[7], keys[8] = keys[8], keys[7]
    return replaced(batch, "_KEY_k", keys)


MINOR = {deleted_row_back}


def task_for(store: TableStore, sabotage: Sabotage) -> Any:
    if sabotage not in MINOR:
        return full_tasks(store)[0]
    newest = sorted(live_files(store)[EMPTY_ROW, 0], key=lambda f: f.max_sequence_number)[1:]
    return unit_task(store, EMPTY_ROW, 0, [file.file_name for file in newest], 0)


@pytest.mark.parametrize("sabotage", [drop_a_row, swap_two_values, one_text_changed, deleted_row_back, key_moved])
def test_v1_stops_what_changes_on_the_way_to_the_file(
    store: TableStore, monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage
) -> None:
    """The writer is handed the right rows and stores others: counters or the second reading see it."""
    task, disk = task_for(store, sabotage), data_files_on_disk(store)
    real = KeyValueFileWriter.write
    monkeypatch.setattr(KeyValueFileWriter, "write", lambda self, batch: real(self, sabotage(batch)))
    with pytest.raises(VerificationFailed) as caught:
        run_bucket_task(store, task)
    assert caught.value.level in ("V0", "V1")
    assert data_files_on_disk(store) == disk


@pytest.mark.parametrize("changes", [False, True])
def test_v1_compares_repeating_texts_as_dictionaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1"})
    for start in (0, 500):
        keys = list(range(start, start + 1000))
        write(store, pa.table({"k": keys, "v": keys, "s": ["only", "two"] * 500}))
    real, kinds = KeyValueFileWriter.write, []

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        kinds.append(pa.types.is_dictionary(batch.column("s").type))
        if not changes:
            return batch
        codes = batch.column("s").indices.to_numpy().copy()
        codes[9] = 1 - codes[9]
        texts = pa.DictionaryArray.from_arrays(pa.array(codes), batch.column("s").dictionary)
        return batch.set_column(batch.schema.get_field_index("s"), "s", texts)

    monkeypatch.setattr(KeyValueFileWriter, "write", lambda self, batch: real(self, change(batch)))
    (task,) = full_tasks(store)
    if changes:
        with pytest.raises(VerificationFailed, match=r"V1.*'s'"):
            run_bucket_task(store, task, ReferenceJudge())
    else:
        assert run_bucket_task(store, task, ReferenceJudge()).report.verification == "V2"
    assert all(kinds)


def test_v1_names_the_column_that_changed(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = KeyValueFileWriter.write
    monkeypatch.setattr(KeyValueFileWriter, "write", lambda self, batch: real(self, swap_two_values(batch)))
    with pytest.raises(VerificationFailed, match=r"V1.* in 'v': data-.*\.parquet"):
        run_bucket_task(store, full_tasks(store)[0])


@pytest.mark.parametrize("sabotage", [drop_a_row, swap_two_values, one_text_changed, deleted_row_back])
def test_v2_stops_a_wrong_merge(store: TableStore, monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage) -> None:
    """The merge itself is wrong, so counters and digests agree with it: only the scalar reference can tell."""
    task, disk = task_for(store, sabotage), data_files_on_disk(store)
    real = merge_read.merge_streams

    def wrong(*inputs: Any, counters: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(*inputs, counters=counters, **how):
            changed = sabotage(batch)
            counters.drop("older-version", batch.num_rows - changed.num_rows)
            yield changed

    monkeypatch.setattr(merge_read, "merge_streams", wrong)
    run_bucket_task(store, task, None)  # without the judge nobody sees it
    for name in data_files_on_disk(store) - disk:
        next(Path(store.root).rglob(name)).unlink()
    with pytest.raises(VerificationFailed) as caught:
        run_bucket_task(store, task, ReferenceJudge())
    assert caught.value.level == "V2"
    assert data_files_on_disk(store) == disk


def test_v0_sees_a_row_that_vanishes_without_a_reason(store: TableStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = merge_read.merge_streams
    monkeypatch.setattr(merge_read, "merge_streams", lambda *a, **k: (drop_a_row(batch) for batch in real(*a, **k)))
    with pytest.raises(VerificationFailed, match="V0"):
        run_bucket_task(store, full_tasks(store)[0])


def test_a_right_compaction_passes_all_levels(store: TableStore) -> None:
    result = run_bucket_task(store, full_tasks(store)[0], ReferenceJudge())
    assert result.report.verification == "V2"
    assert result.report.keys_checked == 300


def test_a_file_that_changed_between_writing_and_publishing_is_seen(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = KeyValueFileWriter.close

    def close(self: KeyValueFileWriter) -> Any:
        files = real(self)
        path = Path(store.data_path(EMPTY_ROW, 0, files[0]))
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 0xFF
        path.write_bytes(bytes(content))
        return files

    monkeypatch.setattr(KeyValueFileWriter, "close", close)
    disk = data_files_on_disk(store)
    from lsm_core.errors import CorruptFile

    with pytest.raises((CorruptFile, VerificationFailed)):
        run_bucket_task(store, full_tasks(store)[0])
    assert data_files_on_disk(store) == disk


# -- what is looked up above the output --------------------------------------------------------------------------------


def _one_hit_lost(hits: Hits) -> Hits:
    return replace(hits, lookup_rows=hits.lookup_rows[1:], positions=hits.positions[1:], rows=hits.rows.slice(1))


def _the_next_row(hits: Hits) -> Hits:
    positions = hits.positions.copy()
    positions[0] += 1
    return replace(hits, positions=positions)


def _another_value(hits: Hits) -> Hits:
    if "v" not in hits.rows.schema.names:
        return hits
    values = hits.rows.column("v").to_pylist()
    values[0] += 1
    return replace(hits, rows=replaced(hits.rows, "v", values))


LOOKING = {
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors and changelog": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
    "vectors, sums": {
        "deletion-vectors.enabled": "true",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.aggregate-function": "last_value",
    },
    "changelog": {"changelog-producer": "lookup"},
}


# Vectors are made of positions, changelogs and sums of values.
HARMS = [
    *((kind, _one_hit_lost) for kind in LOOKING),
    *((kind, _the_next_row) for kind in LOOKING if "vectors" in kind),
    *((kind, _another_value) for kind in LOOKING if kind != "vectors"),
]


@pytest.mark.parametrize(("kind", "sabotage"), HARMS)
def test_v2_reads_for_itself_what_a_look_up_should_have_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sabotage: Callable[[Hits], Hits]
) -> None:
    store = make_store(tmp_path / "t", FIELDS, ["k"], (), {"bucket": "1", **LOOKING[kind]})
    write(store, rows(list(range(6000)), 0))
    table = Table(store)
    table.compact(full=True)
    for first in (100, 110):  # two files that meet are rewritten; one alone would only move
        write(store, rows([*range(first, 3000, 20), 5000], 50_000))
    before, latest = data_files_on_disk(store), table.latest_snapshot()
    find = RowsAbove.find
    with monkeypatch.context() as patched:
        patched.setattr(RowsAbove, "find", lambda self, wanted: [sabotage(hits) for hits in find(self, wanted)])
        with pytest.raises(VerificationFailed, match=r"V2.*(key|row)"):
            Table(store).compact()
    assert data_files_on_disk(store) == before
    assert table.latest_snapshot() == latest
    table.compact()
    assert table.health()[0].level0_files == 0
