"""Big buckets are compacted in pieces by key: any cut gives what no cut gives, nothing is lost between pieces, failures leave nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsm_core.commit import Committer
from lsm_core.compact import BucketResult, BucketTask, run_bucket_task, run_tasks_locally
from lsm_core.compact import pieces as pieces_module
from lsm_core.compact.pieces import count_pieces, cut_task, join, rewritten_sizes
from lsm_core.compact.unit import discard
from lsm_core.compact.verify import _SecondReading
from lsm_core.errors import CorruptFile, VerificationFailed
from lsm_core.files import open_kv
from lsm_core.files.formats import parquet
from lsm_core.format.binary_row import EMPTY_ROW, encode_row
from lsm_core.format.manifest import DataFileMeta
from lsm_core.maintenance.verify import ReferenceJudge
from lsm_core.metadata.store import TableStore
from lsm_core.read import merge_read
from lsm_core.read.key_range import KeyBounds, KeyRange
from tests.support.samples import one_in
from tests.support.stores import (
    data_files_on_disk,
    full_tasks,
    live_files,
    make_store,
    read,
    unit_task,
    write,
)

ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.s.aggregate-function": "listagg",
    },
}
KEYS: dict[str, tuple[dict[str, str], Any]] = {
    "INT": ({"k": "INT NOT NULL"}, lambda n: (n,)),
    "STRING": ({"k": "STRING NOT NULL"}, lambda n: (f"{n % 7}\0{n}",)),
    "DOUBLE": ({"k": "DOUBLE NOT NULL"}, lambda n: (float("nan") if n == 5 else -n / 2,)),
    "DECIMAL": ({"k": "DECIMAL(20, 2) NOT NULL"}, lambda n: (Decimal(n - 20) / 4,)),
    "two columns": ({"k": "BIGINT NOT NULL", "j": "STRING NOT NULL"}, lambda n: (n // 8, f"{n:03}")),
}
CASES = [*product(sorted(ENGINES), sorted(KEYS)), ("orc", "INT"), ("avro", "two columns")]
ENGINES |= {name: {"file.format": name} for name in ("orc", "avro")}
NUMBERS = 60


@dataclass(frozen=True)
class Case:
    """A bucket of several overlapping runs, and what an uncut compaction of it makes."""

    store: TableStore
    task: BucketTask
    keys: list[tuple[Any, ...]]
    whole: pa.Table


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pieces")


@pytest.fixture
def tiny_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups and batches of a few rows: bounds fall into all of them."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 11)
    monkeypatch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", 11)
    monkeypatch.setattr(merge_read, "_MOST_ROWS", 4)
    monkeypatch.setattr(merge_read, "_FEWEST_ROWS", 1)


@cache
def case(root: Path, engine: str, kind: str) -> Case:
    fields, make = KEYS[kind]
    store = make_store(
        root / f"{engine}-{kind}".replace(" ", "-"),
        {**fields, "v": "BIGINT", "s": "STRING"},
        list(fields),
        (),
        {"bucket": "1", "sort-spill-threshold": "3", **ENGINES[engine]},
    )
    random = np.random.default_rng(11)
    for commit in range(5):
        numbers = [int(n) for n in random.choice(NUMBERS, 25, replace=commit == 2)]
        rows = [(*make(n), n * 10 + commit, f"{commit}") for n in numbers]
        kinds = [
            "-D" if engine in ("deduplicate", "partial-update", "orc") and n % 9 == commit else "+I" for n in numbers
        ]
        columns = [
            pa.array(column, store.schema.arrow_schema.field(at).type)
            for at, column in enumerate(zip(*rows, strict=True))
        ]
        write(store, pa.table(columns, schema=store.schema.arrow_schema), kinds)
    (task,) = full_tasks(store)
    result = run_bucket_task(store, task, ReferenceJudge(), pipelined=False)
    whole = stored(store, result.message.compact_after)
    discard(store, task, result.message.own_files())
    return Case(store, task, [make(n) for n in range(NUMBERS)], whole)


def stored(store: TableStore, files: Sequence[DataFileMeta]) -> pa.Table:
    """All rows; floats as their bits, since a NaN does not equal itself."""
    batches = [batch for file in files for batch in open_kv(store, EMPTY_ROW, 0, file)]
    found = pa.Table.from_batches(batches).combine_chunks()
    for at, field in enumerate(found.schema):
        if pa.types.is_floating(field.type):
            found = found.set_column(at, field.name, found.column(at).chunk(0).view(pa.int64()))
    return found


def pieces_at(task: BucketTask, bounds: Sequence[bytes]) -> list[BucketTask]:
    ranges = zip([None, *bounds], [*bounds, None], strict=True)
    return [BucketTask.from_bytes(replace(task, piece=KeyRange(*ends)).to_bytes()) for ends in ranges]


def ordered(store: TableStore, keys: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Keys as BinaryRows, each once, in the order of the table's keys."""
    from lsm_core.format.binary_row import decode_rows
    from lsm_core.merge import key_bytes

    rows = list({encode_row(key, store.schema.trimmed_key_types): None for key in keys})
    sortable = key_bytes(decode_rows(pa.array(rows, pa.binary()), store.schema.trimmed_key_types)).to_pylist()
    return [row for _, row in sorted(zip(sortable, rows, strict=True))]


@pytest.mark.usefixtures("tiny_steps")
@pytest.mark.parametrize(("engine", "kind"), one_in(8, CASES, 1))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cut_gives_what_no_cut_gives(root: Path, engine: str, kind: str, data: st.DataObject) -> None:
    given_case = case(root, engine, kind)
    store, task = given_case.store, given_case.task
    chosen = data.draw(st.lists(st.sampled_from(given_case.keys), max_size=4, unique_by=repr))
    pieces = pieces_at(task, ordered(store, chosen))
    results = [run_bucket_task(store, piece, ReferenceJudge(), pipelined=False, share=2) for piece in pieces]
    result = join(store, pieces, [BucketResult.from_bytes(item.to_bytes()) for item in results])
    try:
        assert stored(store, result.message.compact_after).equals(given_case.whole)
        assert result.report.verification == "V2"
        assert {f.file_name for f in result.message.compact_before} == set(task.unit_names)
        assert result.report.rows_in == sum(file.row_count for file in task.files)
        assert result.report.rows_out == given_case.whole.num_rows
    finally:
        discard(store, task, result.message.own_files())


def test_only_what_is_much_more_than_its_share_is_cut() -> None:
    assert count_pieces([100, 100, 100, 100], 2, 1) == [1, 1, 1, 1]
    assert count_pieces([100], 2, 1) == [2]
    assert count_pieces([100], 8, 1) == [8]
    assert count_pieces([100], 8, 30) == [3]
    assert count_pieces([100], 1, 1) == [1]
    assert count_pieces([90, 5, 5], 2, 1) == [2, 1, 1]
    assert count_pieces([55, 45], 2, 1) == [1, 1]
    assert count_pieces([0, 0], 4, 1) == [1, 1]


def numbered(root: Path, options: dict[str, str], *ranges: tuple[int, int]) -> TableStore:
    store = make_store(
        root / "t", {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}, ["k"], (), {"bucket": "1", **options}
    )
    for number, (low, high) in enumerate(ranges):
        keys = np.arange(low, high)
        write(
            store,
            pa.table({"k": keys, "v": keys * 10 + number, "s": keys.astype(str)}, schema=store.schema.arrow_schema),
        )
    return store


def test_pieces_are_about_equal_and_row_groups_outside_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_core.files.writer.ROW_GROUP_ROWS", 1000)
    monkeypatch.setattr("lsm_core.compact.pieces._OPENING", 1.0)
    store = numbered(tmp_path, {}, (0, 40_000), (20_000, 60_000))
    (task,) = full_tasks(store)
    pieces = cut_task(store, task, 4)
    assert len(pieces) == 4
    results = [run_bucket_task(store, piece) for piece in pieces]
    rows = [result.report.rows_in for result in results]
    assert sum(rows) == 80_000
    assert max(rows) < 25_000
    decoded: list[int] = []
    real = parquet.ParquetSource.batches

    def counting(self: Any, columns: Any, batch_rows: int, row_groups: Any = None, **how: Any) -> Any:
        decoded.append(len(self.group_rows if row_groups is None else row_groups))
        return real(self, columns, batch_rows, row_groups, **how)

    monkeypatch.setattr(parquet.ParquetSource, "batches", counting)
    bounds = KeyBounds(
        store,
        KeyRange(
            encode_row([20_500], store.schema.trimmed_key_types), encode_row([21_500], store.schema.trimmed_key_types)
        ),
    )
    found = [batch for file in task.files for batch in bounds.open(store, EMPTY_ROW, 0, file)]
    assert sum(batch.num_rows for batch in found) == 2_000
    assert decoded == [2, 2]
    for piece, result in zip(pieces, results, strict=True):
        discard(store, piece, result.message.own_files())


def test_only_the_largest_tasks_are_planned_to_know_what_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path, {"k": "INT NOT NULL", "v": "INT"}, ["k"], (), {"bucket": "1"})
    write(store, pa.table({"k": range(9), "v": range(9)}))
    write(store, pa.table({"k": range(4), "v": range(4)}))
    (task,) = full_tasks(store)
    random = np.random.default_rng(3)
    for _ in range(40):
        sizes = random.choice([1_000, 1_100, 9_000, 200_000], random.integers(1, 60), p=[0.6, 0.3, 0.08, 0.02]).tolist()
        tasks = [
            replace(task, files=(replace(task.files[0], file_size=size), replace(task.files[1], file_size=0)))
            for size in sizes
        ]
        workers = int(random.integers(2, 12))
        exact = [size * 9 // 10 for size in sizes]
        planned: list[int] = []

        def rewritten(_: TableStore, chosen: BucketTask, planned: list[int] = planned) -> int:
            planned.append(chosen.files[0].file_size)
            return planned[-1] * 9 // 10

        monkeypatch.setattr(pieces_module, "rewritten_bytes", rewritten)
        counts = count_pieces(rewritten_sizes(store, tasks, workers), workers, 100)
        assert counts == count_pieces(exact, workers, 100)
        assert planned == sorted(sizes, reverse=True)[: len(planned)]
        assert max(counts) == 1 or len(planned) == len(sizes)
    assert rewritten_sizes(store, [], 4) == []


def test_what_gains_nothing_is_not_cut(tmp_path: Path) -> None:
    """One key of many versions, and many tiny files that every piece would open again."""
    store = make_store(
        tmp_path / "one", {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}, ["k"], (), {"bucket": "1"}
    )
    for value in range(3):
        write(store, pa.table({"k": [1], "v": [value], "s": ["x"]}, schema=store.schema.arrow_schema))
    (task,) = full_tasks(store)
    assert cut_task(store, task, 2) == [replace(task, untouched=())]
    tiny = numbered(tmp_path, {}, *[(0, 50)] * 8)
    (task,) = full_tasks(tiny)
    assert cut_task(tiny, task, 2) == [replace(task, untouched=())]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening files costs nothing: small tables are cut too."""
    monkeypatch.setattr("lsm_core.compact.pieces._OPENING", 0.0)


@pytest.mark.usefixtures("eager")
def test_a_lone_bucket_is_compacted_in_pieces_by_threads(tmp_path: Path) -> None:
    store = numbered(tmp_path, {"dredge.compaction.piece-size": "1 kb"}, (0, 2000), (500, 1500), (900, 3000))
    before = read(store).sort_by("k")
    tasks = full_tasks(store)
    (result,) = run_tasks_locally(store, tasks, ReferenceJudge(), threads=3)
    assert 2 <= len(result.message.compact_after) <= 3
    assert (result.report.rows_in, result.report.rows_out, result.report.files_in) == (5100, 3000, 3)
    assert result.report.verification == "V2"
    Committer(store).commit([result.message])
    assert read(store).sort_by("k").equals(before)
    files = live_files(store)[EMPTY_ROW, 0]
    assert {file.level for file in files} == {5}


@pytest.mark.usefixtures("eager")
def test_a_piece_that_fails_takes_all_pieces_outputs_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = numbered(tmp_path, {"dredge.compaction.piece-size": "1 kb"}, (0, 2000), (500, 3000))
    disk, tasks = data_files_on_disk(store), full_tasks(store)
    real = run_bucket_task

    def failing(store: TableStore, task: BucketTask, *how: Any, **more: Any) -> BucketResult:
        done = real(store, task, *how, **more)
        if task.piece is not None and not task.piece.is_first:
            discard(store, task, done.message.own_files())
            raise CorruptFile("data-x.parquet", "made up by the test")
        return done

    monkeypatch.setattr(pieces_module, "run_bucket_task", failing)
    with pytest.raises(CorruptFile, match="made up"):
        list(run_tasks_locally(store, tasks, threads=3))
    assert data_files_on_disk(store) == disk


@pytest.mark.usefixtures("eager")
def test_a_row_that_no_piece_reads_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = numbered(tmp_path, {"dredge.compaction.piece-size": "1 kb"}, (0, 2000), (500, 3000))
    disk, tasks = data_files_on_disk(store), full_tasks(store)
    real = KeyBounds.rows

    def short(self: KeyBounds, batch: pa.RecordBatch) -> tuple[int, int]:
        start, stop = real(self, batch)
        return (start + 1, stop) if 0 < start < stop else (start, stop)

    monkeypatch.setattr(KeyBounds, "rows", short)
    with pytest.raises(VerificationFailed, match=r"V0.*the pieces read \d+ rows of 4500"):
        list(run_tasks_locally(store, tasks, threads=3))
    assert data_files_on_disk(store) == disk


def test_upgrades_stay_with_the_first_piece(tmp_path: Path) -> None:
    store = numbered(tmp_path, {"target-file-size": "1 kb"}, (0, 600), (1000, 1300), (1200, 1600), (3000, 3600))
    (task,) = full_tasks(store)
    bound = encode_row([1250], store.schema.trimmed_key_types)
    pieces = pieces_at(task, [bound])
    results = [run_bucket_task(store, piece) for piece in pieces]
    upgraded = [result.report.files_upgraded for result in results]
    assert upgraded[0] > 0
    assert upgraded[1] == 0
    before = read(store).sort_by("k")
    result = join(store, pieces, results)
    assert result.report.files_upgraded == upgraded[0]
    Committer(store).commit([result.message])
    assert read(store).sort_by("k").equals(before)


def test_a_minor_unit_in_pieces_keeps_deletes(tmp_path: Path) -> None:
    store = numbered(tmp_path, {}, (0, 300), (100, 400))
    write(
        store,
        pa.table({"k": range(150, 350), "v": [0] * 200, "s": [""] * 200}, schema=store.schema.arrow_schema),
        ["-D"] * 200,
    )
    newest = sorted(live_files(store)[EMPTY_ROW, 0], key=lambda f: f.max_sequence_number)[1:]
    task = unit_task(store, EMPTY_ROW, 0, [file.file_name for file in newest], 0)
    before = read(store).sort_by("k")
    bound = encode_row([222], store.schema.trimmed_key_types)
    pieces = pieces_at(task, [bound])
    result = join(store, pieces, [run_bucket_task(store, piece, ReferenceJudge()) for piece in pieces])
    assert sum(file.delete_row_count or 0 for file in result.message.compact_after) == 200
    Committer(store).commit([result.message])
    assert read(store).sort_by("k").equals(before)


def test_bounds_that_are_no_range_are_refused(tmp_path: Path) -> None:
    store = numbered(tmp_path, {}, (0, 10))
    low, high = (encode_row([n], store.schema.trimmed_key_types) for n in (5, 3))
    with pytest.raises(CorruptFile, match="do not ascend"):
        KeyBounds(store, KeyRange(low, high))
    with pytest.raises(CorruptFile):
        KeyBounds(store, KeyRange(b"nonsense", None))


@pytest.mark.usefixtures("eager")
def test_a_lone_bucket_of_two_threads_stays_whole_and_is_re_read_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = numbered(tmp_path, {"dredge.compaction.piece-size": "1 kb"}, (0, 2000), (500, 1500), (900, 3000))
    before, readers = read(store).sort_by("k"), set()
    real = _SecondReading._column

    def column(self: _SecondReading, *place: Any, **options: Any) -> pa.Array:
        readers.add(threading.current_thread().name)
        return real(self, *place, **options)

    monkeypatch.setattr(_SecondReading, "_column", column)
    (result,) = run_tasks_locally(store, full_tasks(store), ReferenceJudge(), threads=2)
    assert len(readers) == 2
    assert len(result.message.compact_after) == 1
    assert (result.report.rows_in, result.report.rows_out, result.report.rows_read_again) == (5100, 3000, 3000)
    Committer(store).commit([result.message])
    assert read(store).sort_by("k").equals(before)
