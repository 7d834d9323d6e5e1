"""Which files of an append table's bucket are worth concatenating, by the table's options."""

from __future__ import annotations

from collections.abc import Sequence

from lsm_core.metadata.store import TableStore
from lsm_core.tree import DataFile, Decline, pick_full_window, pick_small_files, pick_windows


def choose_bins(store: TableStore, files: Sequence[DataFile], full: bool) -> list[list[DataFile]] | Decline:
    """Bins of ``files`` (one bucket of an append table), each to become one rolling output; or why there is none.

    Without buckets any small files go together (`AppendCompactCoordinator`). With `bucket` > 0 only neighbours by sequence
    number do (`BucketedAppendCompactManager`), because rows of a bucket keep their order; ``full`` then means everything
    from the first small file on, big ones are those that a compaction would not call small.
    """
    options = store.options
    target, small_below = (
        options.target_file_size(has_primary_key=False),
        options.compaction_file_size(has_primary_key=False),
    )
    if options.bucket < 1:
        return pick_small_files(files, target, small_below, options.min_file_num, options.open_file_cost, full)
    if full:
        return pick_full_window(files, small_below, options.force_rewrite_all)
    most = options.get("compaction.max.file-num")
    return pick_windows(files, target, options.min_file_num, None if most is None else int(most))


__all__ = ["choose_bins"]
