"""Whole lives of a tree: files arrive, strategies decide under any options, tasks are carried out; what a key says never changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.options import TableOptions
from lsm_core.tree import (
    CompactUnit,
    DataFile,
    Decline,
    Levels,
    Pick,
    State,
    close_unit,
    decide_bucket,
    plan_task,
    post_filter,
)
from tests.support.samples import examples

HOUR = 3_600_000
ROWS_PER_FILE = 4
Row = tuple[int, int | None]
"""A value and whose it is: (number of the write, value); a value of None deletes."""


@st.composite
def options(draw: st.DrawFn) -> TableOptions:
    """Any options that picking reads."""
    given: dict[str, str] = {"num-sorted-run.compaction-trigger": str(draw(st.integers(1, 5)))}
    choices: Mapping[str, list[str]] = {
        "num-levels": ["2", "3", "6"],
        "compaction.max-size-amplification-percent": ["0", "50", "200", "1000"],
        "compaction.size-ratio": ["0", "1", "50"],
        "compaction.optimization-interval": ["1 h", "10 h"],
        "compaction.total-size-threshold": ["20 b", "200 b"],
        "compaction.incremental-size-threshold": ["20 b", "200 b"],
        "compaction.force-up-level-0": ["true"],
        "changelog-producer": ["lookup"],
        "lookup-compact": ["gentle"],
        "lookup-compact.max-interval": ["2", "6"],
        "compaction.force-rewrite-all-files": ["true"],
        "compaction.offpeak.start.hour": ["0", "22"],
        "compaction.offpeak.end.hour": ["0", "5"],
        "compaction.offpeak-ratio": ["100"],
    }
    for key, values in choices.items():
        if draw(st.integers(0, 2)) == 0:
            given[key] = draw(st.sampled_from(values))
    return TableOptions(given, "db.t")


FILE = st.tuples(st.integers(0, 40), st.lists(st.sampled_from([1, 2, 3, None]), min_size=1, max_size=12), st.booleans())
STEP = st.one_of(FILE, FILE, st.sampled_from(["minor", "closed", "full"]))


@dataclass
class Tree:
    """Files with their rows. Age alone decides between two versions of a key, so a row that skips an older one is seen."""

    options: TableOptions
    files: tuple[DataFile, ...] = ()
    rows: dict[str, dict[int, Row]] = field(default_factory=dict)
    writes: int = 0
    names: int = 0
    now_ms: int = 0

    @property
    def levels(self) -> Levels:
        return Levels(self.files, self.options.num_levels)

    def write(self, low: int, values: list[int | None], deletes_known: bool) -> None:
        self.writes += 1
        self.now_ms += HOUR // 2
        rows = {low + i: (self.writes, value) for i, value in enumerate(values)}
        self._add(rows, 0, deletes_known)

    def content(self, files: tuple[DataFile, ...] | None = None) -> dict[int, Row]:
        """What the newest version of each key says, as a reader finds it: run by run, the newest first."""
        found: dict[int, Row] = {}
        for run in Levels(self.files if files is None else files, self.options.num_levels).runs():
            for file in run.run.files:
                for key, row in self.rows[file.name].items():
                    found.setdefault(key, row)
        return {key: row for key, row in found.items() if row[1] is not None}

    def carry_out(self, unit: CompactUnit) -> None:
        plan = plan_task(self.levels, unit, 3, force_rewrite_all=self.options.force_rewrite_all)
        before = self.levels
        after = [file.upgrade(plan.output_level) for file in plan.upgrades]
        for rewrite in plan.rewrites:
            files = tuple(file for run in rewrite for file in run.files)
            merged: dict[int, Row] = {}
            for run in Levels(files, before.num_levels).runs():
                for file in run.run.files:
                    for key, row in self.rows[file.name].items():
                        merged.setdefault(key, row)
            kept = {key: row for key, row in merged.items() if not (plan.drop_delete and row[1] is None)}
            keys = sorted(kept)
            for start in range(0, len(keys), ROWS_PER_FILE):
                part = {key: kept[key] for key in keys[start : start + ROWS_PER_FILE]}
                after.append(self._file(part, plan.output_level, deletes_known=True))
        self.files = before.replaced((*plan.rewritten_files, *plan.upgrades), after).files

    def _add(self, rows: dict[int, Row], level: int, deletes_known: bool) -> None:
        self.files = (*self.files, self._file(rows, level, deletes_known))

    def _file(self, rows: dict[int, Row], level: int, deletes_known: bool) -> DataFile:
        self.names += 1
        name = f"f{self.names}"
        self.rows[name] = rows
        deletes = sum(value is None for _, value in rows.values())
        sequences = [write for write, _ in rows.values()]
        return DataFile(
            name,
            level,
            len(rows),
            min(rows),
            max(rows),
            len(rows),
            min(sequences),
            max(sequences),
            self.now_ms,
            deletes if deletes_known else None,
        )


def check_unit(levels: Levels, unit: CompactUnit) -> None:
    """Whole runs from the newest on, moved below nothing that is older."""
    assert len({file.name for file in unit.files}) == len(unit.files) > 0
    assert 0 < unit.output_level <= levels.max_level
    runs = levels.runs()
    if unit.by_file:
        assert len(runs) == 1
        assert set(unit.files) <= set(runs[0].run.files)
        return
    count, names = 0, [file.name for file in unit.files]
    while names[: len(runs[count].run.files)]:
        here = [file.name for file in runs[count].run.files]
        assert names[: len(here)] == here
        names = names[len(here) :]
        count += 1
        if count == len(runs):
            break
    assert not names
    assert unit.full == (count == len(runs))
    assert all(run.level <= unit.output_level for run in runs[:count])
    assert all(run.level > unit.output_level for run in runs[count:])
    if unit.full:
        assert unit.output_level == levels.max_level


def check_numbers(found: Decline | Pick) -> None:
    """Every decision shows what it weighed."""
    assert found.facts
    assert all(value is None or isinstance(value, (int, float)) for value in found.facts.values())


def decided(tree: Tree, how: str) -> Iterator[CompactUnit]:
    """The units that are picked until nothing is left to do; each is for the tree as it is then."""
    for _ in range(20):
        found = decide_bucket(tree.levels, tree.options, tree.now_ms, full=how == "full")
        check_numbers(found)
        if isinstance(found, Pick) and how == "closed":
            check_unit(tree.levels, found.unit)
            found = post_filter(Pick(close_unit(tree.levels, found.unit), found.trigger, found.facts))
        if isinstance(found, Decline):
            return
        yield found.unit
        if found.unit.by_file:
            return  # a forced rewriting of everything would go on for ever
    raise AssertionError(f"no end to it: {tree.levels.runs()}")


@settings(max_examples=examples(150), deadline=None)
@given(chosen=options(), life=st.lists(STEP, min_size=1, max_size=12))
def test_no_decision_changes_what_a_key_says_or_breaks_the_tree(chosen: TableOptions, life: list[Any]) -> None:
    tree = Tree(chosen)
    for step in life:
        if not isinstance(step, str):
            tree.write(*step)
            continue
        for unit in decided(tree, step):
            levels, before = tree.levels, tree.content()
            check_unit(levels, unit)
            if step == "closed" and not unit.by_file:
                low, high = min(f.min_key for f in unit.files), max(f.max_key for f in unit.files)
                rest = [f for f in levels.files if f not in unit.files]
                assert not any(f.min_key <= high and low <= f.max_key for f in rest)
            tree.carry_out(unit)
            tree.levels.validate()
            assert tree.content() == before
            assert tree.levels.highest_nonempty <= levels.max_level
        if step == "full":
            assert all(file.level == tree.levels.max_level for file in tree.files)


@given(life=st.lists(FILE, min_size=1, max_size=8), every=st.integers(1, 8))
def test_gentle_lookup_compaction_is_derived_from_the_files_of_level_zero(life: list[Any], every: int) -> None:
    """A new process decides as one that saw every commit: nothing is remembered but the table."""
    chosen = TableOptions(
        {
            "changelog-producer": "lookup",
            "lookup-compact": "gentle",
            "num-sorted-run.compaction-trigger": "5",
            "lookup-compact.max-interval": str(every),
            "compaction.max-size-amplification-percent": "100000",
            "compaction.size-ratio": "0",
        },
        "db.t",
    )
    tree = Tree(chosen)
    tree.write(0, [1] * 500, deletes_known=True)
    for unit in decided(tree, "full"):
        tree.carry_out(unit)
    since = 0
    for low, values, known in life:
        tree.write(low, values, known)
        since += 1
        state = State.of(tree.levels)
        found = decide_bucket(tree.levels, chosen, tree.now_ms, state)
        assert state.skipped_forces == since - 1
        if isinstance(found, Pick):
            tree.carry_out(found.unit)
            since = len(tree.levels.level0)
        else:
            assert since < max(every, 5)
