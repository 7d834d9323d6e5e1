"""From a unit to work: what is rewritten, what only changes its level, and whether deletes may go (Java `MergeTreeCompactTask`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest

from lsm_core.tree.interval_partition import interval_partition
from lsm_core.tree.levels import Levels
from lsm_core.tree.model import CompactUnit, DataFile, SortedRun
from lsm_core.tree.universal import UniversalCompaction

Rewrite = tuple[SortedRun, ...]


class Upgrade(Enum):
    """What raising a file to another level asks for beside its metadata (Java `UpgradeStrategy`)."""

    PLAIN = "plain"
    COMPARED = "compared"
    """Its rows are compared with those above for the changelog; its bytes stay."""
    REWRITES = "rewrites"
    """It is rewritten instead."""


UpgradeRule = Callable[[DataFile], Upgrade]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What compacting a unit does.

    ``rewrites``: each is merged into one rolling output; its runs may mix files of several levels, so a row's level and
    age come from its file, not its run. ``upgrades``: files (as they are now) that move to ``output_level`` by metadata
    alone. ``unchanged``: files of the unit that already lie there. ``drop_delete``: delete rows may be dropped. ``compared``: those of
    the ``upgrades`` whose rows are compared with those above, for the changelog.
    """

    output_level: int
    rewrites: tuple[Rewrite, ...]
    upgrades: tuple[DataFile, ...]
    drop_delete: bool
    unchanged: tuple[DataFile, ...] = ()
    compared: tuple[DataFile, ...] = ()

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        """All files that a rewrite reads."""
        return tuple(file for rewrite in self.rewrites for run in rewrite for file in run.files)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.rewrites and not self.upgrades


def plan_task(
    levels: Levels,
    unit: CompactUnit,
    small_below: int,
    *,
    force_rewrite_all: bool = False,
    must_rewrite: Callable[[DataFile], bool] | None = None,
    marks_above: bool = False,
    upgrade_rule: UpgradeRule | None = None,
) -> TaskPlan:
    """Cut ``unit`` into sections and choose for each between rewriting and upgrading.

    Overlapping files are rewritten; a file that overlaps nothing is upgraded unless it is smaller than ``small_below``
    bytes and has a neighbour to be rewritten with. Nothing in between is skipped: output files stay in key order.
    Rewritten alone are files that could be upgraded, or left, but hold deletes (or an unknown number of them) that the
    last level has no use for, those that ``must_rewrite`` names (expired records), those of which ``upgrade_rule`` says so, and all
    under ``force_rewrite_all``. ``marks_above``: what lies above the output is marked as deleted where keys of the unit lie (deletion
    vectors), so that no level has a use for deletes.
    """
    builder = _PlanBuilder(levels, unit, force_rewrite_all, must_rewrite, marks_above, upgrade_rule)
    if unit.by_file:
        for file in unit.files:
            builder.rewrites.append((SortedRun((file,)),))
        return builder.plan()
    candidates: list[list[SortedRun]] = []
    for section in interval_partition(unit.files):
        if len(section) > 1:
            candidates.append(section)
            continue
        for file in section[0].files:
            if file.size < small_below:
                candidates.append([SortedRun((file,))])
            else:
                builder.rewrite(candidates)
                candidates = []
                builder.upgrade(file)
    builder.rewrite(candidates)
    return builder.plan()


def drops_delete(levels: Levels, output_level: int) -> bool:
    """Whether nothing older lies below ``output_level`` anywhere in the tree, so that a delete has nothing left to hide."""
    return output_level != 0 and output_level >= levels.highest_nonempty


class _PlanBuilder:
    """Collects the parts of a plan in key order."""

    def __init__(
        self,
        levels: Levels,
        unit: CompactUnit,
        force_rewrite_all: bool,
        must_rewrite: Callable[[DataFile], bool] | None,
        marks_above: bool,
        upgrade_rule: UpgradeRule | None,
    ) -> None:
        self.levels, self.marks_above = levels, marks_above
        self.output_level = unit.output_level
        self.force_rewrite_all = force_rewrite_all
        self.must_rewrite = must_rewrite
        self.upgrade_rule = upgrade_rule
        self.rewrites: list[Rewrite] = []
        self.upgrades: list[DataFile] = []
        self.unchanged: list[DataFile] = []
        self.compared: list[DataFile] = []

    def upgrade(self, file: DataFile) -> None:
        useless = self.output_level == self.levels.max_level or (self.marks_above and self.output_level > 0)
        deletes_left = useless and file.delete_row_count != 0
        if deletes_left or self.force_rewrite_all or (self.must_rewrite is not None and self.must_rewrite(file)):
            self.rewrites.append((SortedRun((file,)),))
        elif file.level == self.output_level:
            self.unchanged.append(file)
        else:
            upgrade = Upgrade.PLAIN if self.upgrade_rule is None else self.upgrade_rule(file)
            if upgrade is Upgrade.REWRITES:
                self.rewrites.append((SortedRun((file,)),))
                return
            self.upgrades.append(file)
            if upgrade is Upgrade.COMPARED:
                self.compared.append(file)

    def rewrite(self, sections: list[list[SortedRun]]) -> None:
        if len(sections) == 1 and len(sections[0]) == 1:
            for file in sections[0][0].files:
                self.upgrade(file)
        elif sections:
            # sections follow each other in key order, so their n-th runs join into one: no more inputs than the widest section
            joined = ([run for run in runs if run is not None] for runs in zip_longest(*sections))
            self.rewrites.append(tuple(SortedRun(tuple(file for run in runs for file in run.files)) for runs in joined))

    def plan(self) -> TaskPlan:
        return TaskPlan(
            self.output_level,
            tuple(self.rewrites),
            tuple(self.upgrades),
            drops_delete(self.levels, self.output_level) or (self.marks_above and self.output_level > 0),
            tuple(self.unchanged),
            tuple(self.compared),
        )


def close_unit(levels: Levels, unit: CompactUnit) -> CompactUnit:
    """Extend ``unit`` until no older run overlaps its key range (for tables whose answers depend on merge order).

    Everything up to the last overlapping run joins, so that the unit stays a prefix of the runs, newest first.
    """
    runs = levels.runs()
    inside = {file.name for file in unit.files}
    count = max((i + 1 for i, run in enumerate(runs) if any(f.name in inside for f in run.run.files)), default=0)
    start = count
    while count < len(runs):
        taken = [file for run in runs[:count] for file in run.run.files]
        low, high = min(f.min_key for f in taken), max(f.max_key for f in taken)
        reach = max((i + 1 for i, run in enumerate(runs) if i >= count and run.run.overlaps(low, high)), default=count)
        closed = UniversalCompaction.create_unit(runs, levels.max_level, reach) if reach > count else None
        if closed is None:
            break
        taken_names = {file.name for file in closed.files}
        count = sum(any(f.name in taken_names for f in run.run.files) for run in runs)
    return unit if count == start else UniversalCompaction.create_unit(runs, levels.max_level, count)
