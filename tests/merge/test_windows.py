"""Windows never change what merging says: any batch size, any repeated keys, any ties, in bounded memory."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import CorruptFile, InvalidData
from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance.reference import Row
from lsm_core.merge import (
    Deduplicate,
    KeySpec,
    MergeCounters,
    RunInput,
    UnsortedInput,
    merge_function,
    merge_runs,
    merge_streams,
    merge_unsorted,
)
from lsm_core.merge.keys import IntKeys
from lsm_core.types import parse
from tests.merge.histories import (
    KEY_TYPES,
    History,
    arrow_schema,
    batches,
    by_age_alone,
    check,
    expected,
    in_key_order,
    random_history,
    to_batch,
)
from tests.support.samples import examples, one_in

SIZES = (1, 2, 3, 7)
TEXTS = [
    "",
    "a",
    "a\x00",
    "a\x00b",
    "a\x01",
    "b",
    "commonprefix",
    "commonprefix-é",
    "commonprefix-\U0001f600",
    "commonprefix-\uffee",
]


@st.composite
def histories(draw: st.DrawFn) -> History:
    kind = draw(st.sampled_from(sorted(KEY_TYPES)))
    keys = {
        "bigint": st.tuples(st.integers(-2, 3) | st.sampled_from([-(2**63), 2**63 - 1])),
        "string": st.tuples(st.sampled_from(TEXTS)),
        "pair": st.tuples(st.sampled_from(TEXTS[:6]), st.sampled_from([-(2**31), -1, 0, 127, 255, 2**31 - 1])),
    }[kind]
    user = draw(st.booleans())
    fields = st.tuples(st.sampled_from([None, 0, 1])) if user else st.just(())
    version = st.tuples(keys, fields, st.integers(0, 2), st.sampled_from([0, 1, 2, 3]))
    ages = draw(st.permutations(range(draw(st.integers(1, 4)))))
    value = 0
    inputs = []
    for age in ages:
        level = draw(st.sampled_from([0, 0, 1, 2]))
        rows = []
        for key, sequence_fields, sequence, row_kind in draw(st.lists(version, max_size=12)):
            rows.append(Row(key, sequence_fields, sequence, row_kind, (value,), level, age))
            value += 1
        inputs.append(tuple(in_key_order(rows)))
    flags = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    return History(tuple(inputs), kind, user, *flags)


@given(histories(), st.sampled_from(SIZES), st.sampled_from([None, 1, 2, 5]))
@settings(max_examples=examples(150), deadline=None)
def test_any_window_gives_the_rows_of_the_row_at_a_time_judge(
    history: History, size: int, batch_rows: int | None
) -> None:
    check(history, size, batch_rows)


@given(histories(), st.sampled_from(SIZES), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_without_sequence_numbers_level_and_age_decide(history: History, size: int, oldest_first: bool) -> None:
    history = by_age_alone(history)
    if oldest_first:
        inputs = sorted((one for one in history.inputs if one), key=lambda one: (-one[0].level, one[0].age))
        history = replace(history, inputs=tuple(inputs))
    check(history, size)


@pytest.mark.parametrize("size", one_in(2, SIZES, 1))
def test_random_histories_merge_like_the_judge(size: int) -> None:
    for seed in range(60):
        try:
            check(random_history(seed), size)
        except AssertionError as error:
            raise AssertionError(
                f"history seed {seed}, batches of {size}: check(random_history({seed}), {size})"
            ) from error


@pytest.mark.parametrize("size", SIZES)
def test_a_key_may_straddle_every_boundary_of_every_input(size: int) -> None:
    # each input repeats every key three times, so that any batch size cuts through keys
    inputs = tuple(
        tuple(
            Row((key,), (), age * 100 + copy, 0, (age * 1000 + key * 10 + copy,), 0, age)
            for key in range(9)
            for copy in range(3)
        )
        for age in range(3)
    )
    check(History(inputs), size)


def test_rows_of_one_file_that_repeats_a_key_out_of_sequence_order_still_merge() -> None:
    rows = tuple(Row((1,), (), sequence, 0, (sequence,), 0, 0) for sequence in (5, 9, 3, 7, 1))
    for size in SIZES:
        check(History((rows, (Row((1,), (), 4, 0, (40,), 0, 1), Row((2,), (), 1, 0, (41,), 0, 1)))), size)


def test_a_chained_input_gives_each_row_the_level_and_age_of_its_file() -> None:
    old = Row((5,), (), 7, 0, (1,), 2, 0)
    new = Row((5,), (), 7, 0, (2,), 0, 3)
    schema = arrow_schema(History(()))
    spec = KeySpec(("k0",))
    chained = RunInput.chain(
        [RunInput(batches([Row((1,), (), 0, 0, (0,))], schema, 1), 0, 1), RunInput(batches([new], schema, 1), 0, 3)]
    )
    plain = RunInput(batches([old], schema, 1), 2, 0)
    for inputs in ([chained, plain],):
        out = pa.Table.from_batches(merge_streams(inputs, Deduplicate(spec)))
        assert out.column("v").to_pylist() == [0, 2]


def test_millions_of_versions_of_one_key_need_no_more_memory_than_a_few_batches() -> None:
    rows, size, runs = 200_000, 1_000, 3
    schema = arrow_schema(History(()))
    payload = "x" * 100
    wide = schema.append(pa.field("payload", pa.string()))
    peak = 0

    def stream(run: int) -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for start in range(0, rows, size):
            peak = max(peak, pa.total_allocated_bytes() - before)
            columns = [
                pa.array([7] * size),
                pa.array(range(start * runs + run, (start + size) * runs + run, runs)),
                pa.array([0] * size, pa.int8()),
            ]
            columns += [pa.nulls(size, pa.int32()), pa.array(range(start, start + size)), pa.array([payload] * size)]
            yield pa.RecordBatch.from_arrays(columns, schema=wide)

    before = pa.total_allocated_bytes()
    counters = MergeCounters()
    out = list(
        merge_streams(
            [RunInput(stream(run), 0, run) for run in range(runs)], Deduplicate(KeySpec(("k0",))), counters=counters
        )
    )
    assert [batch.num_rows for batch in out] == [1]
    assert out[0].column("v").to_pylist() == [rows - 1]
    assert counters.dropped == {"older-version": rows * runs - 1}
    assert peak < 10 * runs * size * 150


def test_windows_keep_to_the_bytes_of_a_batch_where_rows_get_wide() -> None:
    # a reader cut by bytes: a batch of a thousand narrow rows, then single rows as heavy as all of these together
    read = 0

    def stream(first: int) -> Iterator[pa.RecordBatch]:
        nonlocal read
        narrow = list(range(first, first + 2000, 2))
        for keys, text in [(narrow, "x")] + [([3000 + 2 * i + first], "x" * 40_000) for i in range(200)]:
            read += 1
            yield pa.record_batch(
                {"_KEY_id": pa.array(keys, pa.int64()), "_SEQUENCE_NUMBER": keys, "text": [text] * len(keys)}
            )

    ahead = 0
    rows = 0
    for batch in merge_streams([RunInput(stream(0)), RunInput(stream(1), 0, 1)], Deduplicate(KeySpec(("id",)))):
        rows += batch.num_rows
        ahead = max(ahead, read - 2 - max(rows - 2000, 0))
    assert rows == 2400
    assert ahead <= 6


@pytest.mark.parametrize(("at_hand", "most"), [(1, 7), (500, 5)])
def test_a_chain_of_tiny_files_costs_what_one_file_of_their_rows_would(
    at_hand: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # after a pass of a recovery: one large file, and thousands of small ones that lie side by side
    looks = 0
    bisect = IntKeys.bisect

    def counted(keys: IntKeys, key: int | bytes, right: bool) -> int:
        nonlocal looks
        looks += 1
        return bisect(keys, key, right)

    monkeypatch.setattr(IntKeys, "bisect", counted)

    def piece(first: int, rows: int) -> pa.RecordBatch:
        ids = pa.array(range(first, first + rows), pa.int64())
        return pa.record_batch({"_KEY_id": ids, "_SEQUENCE_NUMBER": ids})

    files, rows = 2_000, 5
    chains = []
    for apart in (0, 1):
        parts = [RunInput(iter([piece(2 * rows * n + apart * rows, rows)]), 0, 2 * n + apart + 1) for n in range(files)]
        large = [] if apart else [RunInput(iter([piece(-2_000, 2_000)]), 5, 0)]
        chains.append(RunInput.chain([*large, *parts], at_hand=at_hand))
    out = merge_streams(chains, Deduplicate(KeySpec(("id",))))
    assert sum(batch.num_rows for batch in out) == 2_000 + 2 * files * rows
    assert looks <= most * files


def test_a_window_is_freed_before_its_output_is_used_and_output_batches_are_bounded() -> None:
    rows = 300_000
    batch = pa.record_batch(
        {
            "_KEY_id": pa.array(range(0, 2 * rows, 2)),
            "_SEQUENCE_NUMBER": pa.array(range(rows)),
            "_VALUE_KIND": pa.array([0] * rows, pa.int8()),
        }
    )
    other = batch.set_column(0, "_KEY_id", pa.array(range(1, 2 * rows, 2)))
    out = list(merge_streams([RunInput(iter([batch])), RunInput(iter([other]), 0, 1)], Deduplicate(KeySpec(("id",)))))
    assert sum(item.num_rows for item in out) == 2 * rows
    assert max(item.num_rows for item in out) <= 131_072
    assert pa.Table.from_batches(out).column(0).to_pylist() == list(range(2 * rows))


@pytest.mark.parametrize("seed", range(20))
def test_a_helper_reads_inputs_on_its_thread_and_the_rows_are_the_same(seed: int) -> None:
    history = random_history(seed)
    schema, readers, both_read = arrow_schema(history), set(), threading.Event()

    def recorded(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
        for batch in batches(rows, schema, 2):
            readers.add(threading.get_ident())
            if len(readers) == 2:
                both_read.set()
            both_read.wait(10)  # the other thread has inputs to read too
            yield batch

    def merge(helper: Executor | None) -> list[dict[str, object]]:
        inputs = [RunInput(recorded(rows), rows[0].level, rows[0].age) for rows in history.inputs if rows]
        out = merge_streams(inputs, Deduplicate(history.spec), key_spec=history.spec, helper=helper)
        return pa.Table.from_batches(out, schema=schema).to_pylist()

    both_read.set()
    alone = merge(None)
    assert readers <= {threading.get_ident()}
    readers.clear()
    if sum(map(bool, history.inputs)) > 1:
        both_read.clear()
    with ThreadPoolExecutor(1) as helper:
        assert merge(helper) == alone
    assert len(readers) == 2 or sum(map(bool, history.inputs)) < 2


@pytest.mark.parametrize("broken", [0, 1, 2, 3])
def test_an_error_of_either_thread_is_raised_when_no_thread_reads_any_more(broken: int) -> None:
    reading: list[int] = []
    both_read = threading.Event()

    def rows(number: int) -> Iterator[pa.RecordBatch]:
        reading.append(number)
        if len(reading) == 2:
            both_read.set()
        both_read.wait(10)
        if number == broken:
            raise OSError(f"input {number}")
        reading.append(-number)
        yield pa.record_batch({"_KEY_id": [number], "_SEQUENCE_NUMBER": [number]})

    inputs = [RunInput(rows(number), 0, number) for number in range(4)]
    with ThreadPoolExecutor(1) as helper:
        with pytest.raises(OSError, match=f"input {broken}"):
            list(merge_streams(inputs, Deduplicate(KeySpec(("id",))), helper=helper))
        ended = list(reading)
    assert reading == ended  # the helper has ended
    assert sum(ended) == broken  # every input that was begun, except the broken one, was read to its end


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("key", ["bigint", "string", "pair"])
def test_an_input_that_is_not_sorted_is_named(size: int, key: str) -> None:
    keys = {
        "bigint": [(1,), (3,), (2,)],
        "string": [("a",), ("a\x00b",), ("a\x00",)],
        "pair": [("a", 1), ("a", 2), ("a", -1)],
    }[key]
    rows = [Row(item, (), 0, 0, (i,)) for i, item in enumerate(keys)]
    history = History((), key)
    schema = arrow_schema(history)
    fine = RunInput(batches(rows[:1], schema, size))
    broken = RunInput(batches(rows, schema, size), 0, 1, name="data-1.parquet")
    with pytest.raises(UnsortedInput, match=r"data-1\.parquet") as caught:
        list(merge_streams([fine, broken], Deduplicate(history.spec)))
    assert caught.value.index == 1
    assert isinstance(caught.value, CorruptFile)
    assert pickle.loads(pickle.dumps(caught.value)).index == 1


def test_a_null_key_is_refused_naming_its_column() -> None:
    batch = pa.record_batch({"_KEY_id": pa.array([1, None]), "_SEQUENCE_NUMBER": pa.array([0, 1])})
    with pytest.raises(InvalidData, match="'id'"):
        list(merge_streams([RunInput(iter([batch]))], Deduplicate(KeySpec(("id",), table="db.t"))))


def test_a_missing_key_column_is_refused_naming_it() -> None:
    batch = pa.record_batch({"other": pa.array([1])})
    with pytest.raises(InvalidData, match="'id'"):
        list(merge_streams([RunInput(iter([batch]))], Deduplicate(KeySpec(("id",)))))


def test_nothing_in_gives_nothing_out() -> None:
    function = Deduplicate(KeySpec(("k0",)))
    empty = to_batch([], arrow_schema(History(())))
    assert list(merge_streams([], function)) == []
    assert list(merge_streams([RunInput(iter([])), RunInput(iter([empty]))], function)) == []
    assert merge_runs([empty], function).num_rows == 0


def test_keys_may_come_as_value_columns_and_sequence_and_kind_may_be_left_out() -> None:
    runs = [pa.record_batch({"id": [1, 2, 3], "v": ["a", "b", "c"]}), pa.record_batch({"id": [2, 3], "v": ["B", "C"]})]
    out = merge_runs(runs, Deduplicate(KeySpec(("id",))))
    assert out.to_pydict() == {"id": [1, 2, 3], "v": ["a", "B", "C"]}


@given(histories())
@settings(max_examples=examples(120), deadline=None)
def test_a_write_buffer_merges_rows_in_any_order_like_the_judge(history: History) -> None:
    # a buffer knows no levels or ages, and hands every row its own sequence number
    rows = [row for value in history.inputs for row in value]
    rows = [Row(row.key, row.sequence_fields, i, row.kind, row.values) for i, row in enumerate(reversed(rows))]
    buffer = History((tuple(rows),), history.key, history.user_sequence, history.descending, history.ignore_delete)
    counters = MergeCounters()
    table = pa.Table.from_batches([to_batch(rows, arrow_schema(buffer))])
    found = merge_unsorted(table, Deduplicate(buffer.spec, buffer.ignore_delete), buffer.spec, counters)
    assert found.column("v").to_pylist() == [row.values[0] for row in expected(buffer)]
    counters.check()


def test_dropped_rows_are_counted_by_reason() -> None:
    rows = (Row((1,), (), 0, 0, (0,)), Row((2,), (), 1, 3, (1,)), Row((3,), (), 2, 0, (2,)), Row((3,), (), 3, 3, (3,)))
    counters = MergeCounters()
    history = History((rows,), drop_delete=True)
    list(
        merge_streams(
            [RunInput(batches(rows, arrow_schema(history), 2))],
            Deduplicate(history.spec),
            drop_delete=True,
            counters=counters,
        )
    )
    assert counters == MergeCounters(4, 1, {"older-version": 1, "delete-at-bottom": 2})
    counters = MergeCounters()
    list(
        merge_streams(
            [RunInput(batches(rows[2:], arrow_schema(history), 1))],
            Deduplicate(history.spec, ignore_delete=True),
            counters=counters,
        )
    )
    assert counters == MergeCounters(2, 1, {"older-version": 1})


@pytest.mark.parametrize("batch", [1, 2, 50])
def test_an_input_that_repeats_a_key_out_of_order_is_refused_or_merged_right(batch: int) -> None:
    """Within a window the order is repaired; across windows an accumulator cannot take anything back."""
    numbers = [5, 6, 7, 1, 8]
    rows = pa.record_batch(
        {
            "_KEY_k": [1] * 5,
            "_SEQUENCE_NUMBER": pa.array(numbers),
            "_VALUE_KIND": pa.array([0] * 5, pa.int8()),
            "k": [1] * 5,
            "v": [str(n) for n in numbers],
        }
    )
    fields = (DataField(0, "k", parse("BIGINT NOT NULL")), DataField(1, "v", parse("STRING")))
    schema = TableSchema(0, fields, 1, primary_keys=("k",))
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}
    function = merge_function(schema, options)
    parts = [rows.slice(at, batch) for at in range(0, 5, batch)]
    inputs = [RunInput(iter(parts), 0, 3, "some/file"), RunInput(iter(()), 0, 4)]
    merged = merge_streams(inputs, function, batch_rows=batch)
    if batch < 5:
        with pytest.raises(UnsortedInput, match="some/file: it repeats a key"):
            list(merged)
    else:
        assert [b.column("v").to_pylist() for b in merged] == [["1,5,6,7,8"]]
