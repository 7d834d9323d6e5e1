"""Which files may change their level by metadata alone, in tables whose compactions look keys up or produce a changelog."""

from __future__ import annotations

from lsm_core.options import TableOptions
from lsm_core.tree.model import DataFile
from lsm_core.tree.task import Upgrade


def upgrade_of(options: TableOptions, file: DataFile, output_level: int, max_level: int) -> Upgrade:
    """What raising ``file`` to ``output_level`` asks for (Java `LookupMergeTreeCompactRewriter`, `FullChangelogMergeTreeCompactRewriter`).

    Where rows are built of several versions a file of level 0 takes up what lies above its output, so that later merges need only the
    lowest level: it stays as it is only on the top level, or where the newest version says everything.
    """
    if options.changelog_producer == "full-compaction":
        return Upgrade.COMPARED if output_level == max_level else Upgrade.PLAIN
    if not options.needs_lookup or file.level != 0:
        return Upgrade.PLAIN
    if options.format_of_level(0) != options.format_of_level(output_level):
        return Upgrade.REWRITES
    if output_level != max_level and not newest_is_all(options):
        return Upgrade.REWRITES
    return Upgrade.COMPARED if options.changelog_producer == "lookup" else Upgrade.PLAIN


def newest_is_all(options: TableOptions) -> bool:
    """Whether the newest version of a key is its row, whatever the others say."""
    return options.merge_engine == "deduplicate" and not options.sequence_field


__all__ = ["newest_is_all", "upgrade_of"]
