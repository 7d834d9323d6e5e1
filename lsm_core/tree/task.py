"""Plan of a compaction task: files to rewrite, files that only change their level, and whether deletes may be dropped.

Tables with lookups or changelogs limit the files that may change their level without a rewrite.

Source: ``MergeTreeCompactTask``, ``LookupMergeTreeCompactRewriter``, ``FullChangelogMergeTreeCompactRewriter``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest

from lsm_core.options import TableOptions
from lsm_core.tree.model import CompactUnit, DataFile, Levels, SortedRun, interval_partition
from lsm_core.tree.universal import UniversalCompaction

Rewrite = tuple[SortedRun, ...]


class Upgrade(Enum):
    """Work besides the metadata change when a file moves to a higher level (Java `UpgradeStrategy`)."""

    PLAIN = "plain"
    COMPARED = "compared"
    """The file's rows are compared with those of higher levels for the changelog; the file itself is kept."""
    REWRITES = "rewrites"
    """The file is rewritten, not upgraded."""


UpgradeRule = Callable[[DataFile], Upgrade]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Plan for the compaction of one unit (files that are compacted together).

    Attributes:
        output_level: level of the output.
        rewrites: the sorted runs of each merge; the output of a merge is split into files of about the target size. A
            run may have files of several levels, so the level and age of a row are those of its file, not of its run.
        upgrades: files, as they are before the compaction, that move to ``output_level`` by a change of metadata.
        drop_delete: whether delete rows may be dropped.
        unchanged: files of the unit that are already on the output level.
        compared: files of ``upgrades`` whose rows are compared with those of higher levels, for the changelog.
        keepable: files of ``rewrites`` that could stay as they are, or only move, if no other file had a key in their
            key range.
        untouched: files of ``unchanged`` and ``upgrades`` that are kept for that reason.
    """

    output_level: int
    rewrites: tuple[Rewrite, ...]
    upgrades: tuple[DataFile, ...]
    drop_delete: bool
    unchanged: tuple[DataFile, ...] = ()
    compared: tuple[DataFile, ...] = ()
    keepable: tuple[DataFile, ...] = ()
    untouched: tuple[DataFile, ...] = ()

    @property
    def rewritten_files(self) -> tuple[DataFile, ...]:
        """All files that are read by a rewrite."""
        return tuple(file for rewrite in self.rewrites for run in rewrite for file in run.files)

    @property
    def empty(self) -> bool:
        """Whether the plan has no work."""
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
    untouched: Collection[str] = (),
) -> TaskPlan:
    """Decide which files of a compaction unit are rewritten, and which only change their level (upgrade).

    Overlapping files are rewritten. A file without overlap is upgraded, unless it is small and is rewritten together
    with an adjacent file. Files between rewritten files are rewritten too, so output files stay in key order.

    A file that could be upgraded or kept is rewritten alone in three cases. It has deletes (or an unknown number of
    deletes) that the output level does not need; ``must_rewrite`` or ``upgrade_rule`` requires a rewrite; or
    ``force_rewrite_all`` is set. ``upgrade_rule`` applies only to files that change their level.

    Args:
        levels: the bucket's files by level.
        unit: the files to compact.
        small_below: size below which a file is small (bytes).
        force_rewrite_all: whether to rewrite every file.
        must_rewrite: predicate for files with expired records, or None.
        marks_above: whether older rows of the unit's keys on levels above the output level are marked as deleted by
            deletion vectors, so that the output needs no delete rows for them.
        upgrade_rule: function that returns the work besides the metadata change that an upgrade of a file needs, or
            None if upgrades only change metadata.
        untouched: names of files that overlap others only by their smallest and largest keys: no other file has a key
            in their key range.

    Returns:
        The plan.
    """
    builder = _PlanBuilder(
        levels, unit, force_rewrite_all, must_rewrite, marks_above, upgrade_rule, frozenset(untouched)
    )
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
    """Return whether no level above ``output_level`` has files, so that delete rows have no older rows to delete.

    The result is False for level 0.
    """
    return output_level != 0 and output_level >= levels.highest_nonempty


class _PlanBuilder:
    """Builder of a `TaskPlan`: collects files to rewrite, to upgrade and to keep, in key order."""

    def __init__(
        self,
        levels: Levels,
        unit: CompactUnit,
        force_rewrite_all: bool,
        must_rewrite: Callable[[DataFile], bool] | None,
        marks_above: bool,
        upgrade_rule: UpgradeRule | None,
        untouched: frozenset[str],
    ) -> None:
        self.levels, self.marks_above = levels, marks_above
        self.output_level = unit.output_level
        self.force_rewrite_all = force_rewrite_all
        self.must_rewrite = must_rewrite
        self.upgrade_rule = upgrade_rule
        self.untouched_names = untouched
        self.rewrites: list[Rewrite] = []
        self.upgrades: list[DataFile] = []
        self.unchanged: list[DataFile] = []
        self.compared: list[DataFile] = []
        self.keepable: list[DataFile] = []
        self.untouched: list[DataFile] = []

    def upgrade(self, file: DataFile) -> None:
        work = self.work_of(file)
        if work is Upgrade.REWRITES:
            self.rewrites.append((SortedRun((file,)),))
        elif file.level == self.output_level:
            self.unchanged.append(file)
        else:
            self.upgrades.append(file)
            if work is Upgrade.COMPARED:
                self.compared.append(file)

    def work_of(self, file: DataFile) -> Upgrade:
        useless = self.output_level == self.levels.max_level or (self.marks_above and self.output_level > 0)
        deletes_left = useless and file.delete_row_count != 0
        if deletes_left or self.force_rewrite_all or (self.must_rewrite is not None and self.must_rewrite(file)):
            return Upgrade.REWRITES
        if file.level == self.output_level or self.upgrade_rule is None:
            return Upgrade.PLAIN
        return self.upgrade_rule(file)

    def rewrite(self, sections: list[list[SortedRun]]) -> None:
        if len(sections) == 1 and len(sections[0]) == 1:
            for file in sections[0][0].files:
                self.upgrade(file)
        elif sections:
            # Sections follow each other in key order, so their n-th runs form one run; the widest section has most.
            merged_runs = [[run for run in runs if run is not None] for runs in zip_longest(*sections)]
            kept: set[str] = set()
            for file in (file for runs in merged_runs for run in runs for file in run.files):
                if self.work_of(file) is Upgrade.REWRITES:
                    continue
                if file.name in self.untouched_names:
                    kept.add(file.name)
                    self.untouched.append(file)
                    self.upgrade(file)
                else:
                    self.keepable.append(file)
            runs_left = (tuple(f for run in runs for f in run.files if f.name not in kept) for runs in merged_runs)
            rewrite = tuple(SortedRun(files) for files in runs_left if files)
            if rewrite:
                self.rewrites.append(rewrite)

    def plan(self) -> TaskPlan:
        return TaskPlan(
            self.output_level,
            tuple(self.rewrites),
            tuple(self.upgrades),
            drops_delete(self.levels, self.output_level) or (self.marks_above and self.output_level > 0),
            tuple(self.unchanged),
            tuple(self.compared),
            tuple(self.keepable),
            tuple(self.untouched),
        )


def close_unit(levels: Levels, unit: CompactUnit) -> CompactUnit:
    """Extend a unit until no older run overlaps the unit's key range, for tables whose results depend on merge order.

    The unit includes all runs up to the oldest overlapping run, so it stays a prefix of the runs, newest first.
    """
    runs = levels.runs()
    unit_names = {file.name for file in unit.files}
    count = max((i + 1 for i, run in enumerate(runs) if any(f.name in unit_names for f in run.run.files)), default=0)
    initial_count = count
    while count < len(runs):
        files = [file for run in runs[:count] for file in run.run.files]
        low, high = min(f.min_key for f in files), max(f.max_key for f in files)
        needed_count = max(
            (i + 1 for i, run in enumerate(runs) if i >= count and run.run.overlaps(low, high)), default=count
        )
        extended = (
            UniversalCompaction.create_unit(runs, levels.max_level, needed_count) if needed_count > count else None
        )
        if extended is None:
            break
        extended_names = {file.name for file in extended.files}
        count = sum(any(f.name in extended_names for f in run.run.files) for run in runs)
    return unit if count == initial_count else UniversalCompaction.create_unit(runs, levels.max_level, count)


def upgrade_of(options: TableOptions, level: int, output_level: int, max_level: int) -> Upgrade:
    """Return the work besides the metadata change when a file of ``level`` moves to ``output_level``.

    If compactions look up keys, a level-0 file is merged with the higher levels, so that each key's row on the lowest
    level above 0 is complete. The file can stay unchanged only on the top level, or if the newest version of a key is
    its complete row.

    Args:
        options: the table's options.
        level: level of the file to move.
        output_level: new level of the file.
        max_level: number of the last level.

    Returns:
        The kind of work.
    """
    if options.changelog_producer == "full-compaction":
        return Upgrade.COMPARED if output_level == max_level else Upgrade.PLAIN
    if not options.needs_lookup or level != 0:
        return Upgrade.PLAIN
    if options.format_of_level(0) != options.format_of_level(output_level):
        return Upgrade.REWRITES
    if output_level != max_level and not newest_is_all(options):
        return Upgrade.REWRITES
    return Upgrade.COMPARED if options.changelog_producer == "lookup" else Upgrade.PLAIN


def newest_is_all(options: TableOptions) -> bool:
    """Return whether the newest version of a key is always its complete row, so that older versions are not needed.

    Returns:
        True for merge engine `deduplicate` without a sequence field.
    """
    return options.merge_engine == "deduplicate" and not options.sequence_field
