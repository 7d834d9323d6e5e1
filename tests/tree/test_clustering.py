"""Incremental clustering picks runs by their sizes: a file of level 0 is a run, and a higher level is one run."""

from __future__ import annotations

from lsm_core.options import TableOptions
from lsm_core.tree import DataFile, Decline, DeclineReason, Pick, Trigger, cluster_runs, last_level, pick_clustering

OPTIONS = TableOptions({"num-sorted-run.compaction-trigger": "3"})


def files(*levels_and_sizes: tuple[int, int]) -> list[DataFile]:
    return [DataFile(f"f{i}", level, size, b"", b"") for i, (level, size) in enumerate(levels_and_sizes)]


def names(decision: Pick | Decline) -> tuple[int, list[str]]:
    assert isinstance(decision, Pick)
    return decision.unit.output_level, [file.name for file in decision.unit.files]


def test_files_of_one_level_are_one_run_and_files_of_level_0_stay_in_order() -> None:
    runs = cluster_runs(files((3, 9), (0, 5), (3, 7), (0, 1), (1, 2)))
    assert [[file.name for file in run.run.files] for run in runs] == [["f1"], ["f3"], ["f4"], ["f0", "f2"]]
    assert [run.level for run in runs] == [0, 0, 1, 3]
    assert cluster_runs([]) == []


def test_too_few_runs_wait_and_many_files_of_one_level_are_no_reason() -> None:
    waiting = pick_clustering(files((0, 1), *[(3, 1)] * 50), OPTIONS)
    assert isinstance(waiting, Decline) and waiting.reason is DeclineReason.TOO_FEW_RUNS
    assert waiting.facts["sorted_runs"] == 2


def test_new_files_are_sorted_below_a_large_run() -> None:
    assert names(pick_clustering(files((3, 1000), (0, 10), (0, 10), (0, 10)), OPTIONS)) == (2, ["f1", "f2", "f3"])
    decision = pick_clustering(files((3, 10), (0, 10), (0, 10), (0, 10)), OPTIONS)
    assert names(decision) == (3, ["f1", "f2", "f3", "f0"])
    assert isinstance(decision, Pick) and decision.trigger is Trigger.SIZE_AMPLIFICATION


def test_a_full_sort_takes_everything_once() -> None:
    assert names(pick_clustering(files((0, 1)), OPTIONS, full=True)) == (3, ["f0"])
    assert names(pick_clustering(files((2, 1), (2, 1)), OPTIONS, full=True)) == (3, ["f0", "f1"])
    done = pick_clustering(files((3, 1), (3, 1)), OPTIONS, full=True)
    assert isinstance(done, Decline) and done.reason is DeclineReason.ALREADY_COMPACTED
    assert names(pick_clustering(files((3, 1), (3, 1)), OPTIONS, full=True, sort_again=True)) == (3, ["f0", "f1"])
    empty = pick_clustering([], OPTIONS, full=True)
    assert isinstance(empty, Decline) and empty.reason is DeclineReason.EMPTY


def test_a_table_that_had_more_levels_keeps_its_last_level() -> None:
    assert last_level(files((7, 1)), 4) == 7
    done = pick_clustering(files((7, 1)), OPTIONS, full=True)
    assert isinstance(done, Decline) and done.reason is DeclineReason.ALREADY_COMPACTED
