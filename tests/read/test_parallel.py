"""Reading several splits at once: the same rows in the same order, bounded waiting, errors at their place, no thread left."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lsm_core.errors import CorruptFile, InvalidOption
from lsm_core.read import plan_scan, scan, to_arrow, to_batches
from lsm_core.read.scan import in_order
from tests.support.stores import make_store, write

Batches = Generator[pa.RecordBatch, None, None]


def batch(value: int, rows: int = 10) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array([value] * rows, pa.int64())})


def job(first: int, count: int, log: list[int] | None = None) -> Batches:
    for value in range(first, first + count):
        if log is not None:
            log.append(value)
        yield batch(value)


def firsts(batches: Batches) -> list[int]:
    return [item.column(0)[0].as_py() for item in batches]


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dredge-read")]


@pytest.mark.parametrize("workers", [1, 2, 3, 50])
@pytest.mark.parametrize("most", [1, 200, None])
def test_rows_come_in_the_order_of_the_jobs(workers: int, most: int | None) -> None:
    jobs = [partial(job, n * 10, n % 4) for n in range(30)]
    assert firsts(in_order(jobs, workers, most)) == [n * 10 + i for n in range(30) for i in range(n % 4)]
    assert running() == []


def test_jobs_run_at_the_same_time() -> None:
    """The second job gives nothing before the first began, and the first nothing before the second did."""
    both = threading.Barrier(2, timeout=30)

    def waiting(value: int) -> Batches:
        both.wait()
        yield batch(value)

    assert firsts(in_order([lambda: waiting(1), lambda: waiting(2)], 2, None)) == [1, 2]


def test_what_waits_is_bounded() -> None:
    log: list[int] = []
    size = batch(0).nbytes
    batches = in_order([partial(job, n * 1000, 100, log) for n in range(6)], 3, 5 * size)
    next(batches)
    for _ in range(200):  # until nothing moves any more
        before = len(log)
        time.sleep(0.01)
        if len(log) == before:
            break
    assert len(log) <= 1 + 5 + 1 + 3, "handed out, waiting, one of the job whose turn it is, and one a worker"
    assert len(firsts(batches)) == 599


def test_an_error_comes_at_its_place_and_ends_all_workers() -> None:
    def broken() -> Batches:
        yield batch(10)
        raise CorruptFile("some/file", "torn")

    batches = in_order([lambda: job(0, 2), broken, lambda: job(20, 100_000)], 2, 100)
    found = []
    with pytest.raises(CorruptFile, match="some/file"):
        for item in batches:
            found.append(item.column(0)[0].as_py())
    assert found == [0, 1, 10]
    assert running() == []


def test_leaving_early_closes_the_jobs() -> None:
    started: list[int] = []
    closed: list[int] = []

    def watched(number: int) -> Batches:
        started.append(number)
        try:
            yield from job(number, 1000)
        finally:
            closed.append(number)

    batches = in_order([partial(watched, n) for n in range(5)], 2, 100)
    next(batches)
    batches.close()
    assert sorted(closed) == sorted(started)
    assert {0} <= set(started) <= {0, 1}  # the second worker may not have begun
    assert running() == []


def test_a_table_is_read_the_same_with_any_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"k": "INT NOT NULL", "v": "BIGINT", "s": "STRING"}
    store = make_store(tmp_path / "t", fields, ["k"], (), {"bucket": "5"})
    random = np.random.default_rng(1)
    for number in range(3):
        keys = np.unique(random.integers(0, 3000, 1000))
        write(store, pa.table({"k": keys, "v": keys + number, "s": [f"x{key}" for key in keys]}))
    alone = store.copy({"dredge.read.threads": "1"})
    expected = to_arrow(alone, plan_scan(alone))
    budgets: list[int | None] = []
    real = scan.read_split

    def watched(*given: object, budget: int | None = None, **how: bool) -> Batches:
        budgets.append(budget)
        return real(*given, budget=budget, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(scan, "read_split", watched)
    for threads in ("2", "8"):
        several = store.copy({"dredge.read.threads": threads})
        plan = plan_scan(several)
        assert to_arrow(several, plan).equals(expected)
        assert pa.Table.from_batches(to_batches(several, plan), plan.arrow_schema).equals(expected)
        assert to_arrow(several, plan, limit=700).equals(expected.slice(0, 700))
    whole = 256 << 20
    assert set(budgets) == {whole // 2, whole // 5, None}, "together they take what one may"
    assert running() == []


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_wrong_number_of_threads_is_refused(tmp_path: Path, value: str) -> None:
    store = make_store(tmp_path / "t", {"k": "INT NOT NULL"}, ["k"], (), {"bucket": "1", "dredge.read.threads": value})
    with pytest.raises(InvalidOption, match=r"dredge\.read\.threads"):
        to_batches(store, plan_scan(store))
