"""Choice of files that may change their level without a rewrite, in tables with lookups or changelogs.

Source: ``LookupMergeTreeCompactRewriter``, ``FullChangelogMergeTreeCompactRewriter``.
"""

from __future__ import annotations

from lsm_core.options import TableOptions
from lsm_core.tree.model import DataFile
from lsm_core.tree.task import Upgrade


def upgrade_of(options: TableOptions, file: DataFile, output_level: int, max_level: int) -> Upgrade:
    """Return the work that raising a file to ``output_level`` needs.

    If rows are built from several versions, a level-0 file is merged with the higher levels, so that later merges need
    only the lowest level. It can stay unchanged only on the top level, or if the newest version is the complete row.

    Args:
        options: the table's options.
        file: the file to raise.
        output_level: its new level.
        max_level: number of the last level.

    Returns:
        The kind of work.
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
    """Return whether the newest version of a key is its complete row.

    Returns:
        True for merge engine `deduplicate` without a sequence field.
    """
    return options.merge_engine == "deduplicate" and not options.sequence_field
