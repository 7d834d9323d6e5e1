"""tree_is_valid: the invariants of every bucket's tree, from manifest entries alone."""

from __future__ import annotations

from dataclasses import dataclass

from lsm_core.format.partition_path import partition_text
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.checks.outcome import CheckReport, Question
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups, tree_files
from lsm_core.tree import find_violations


@dataclass(frozen=True)
class BrokenInvariant:
    """One broken invariant in words, the bucket's name among them, and the partition's path ("": a table without partitions)."""

    partition: str
    text: str

    def __str__(self) -> str:
        """The words."""
        return self.text


def tree_is_valid(question: Question) -> CheckReport:
    """The verdict over all buckets."""
    buckets, files, broken = inspect_tree(question.store)
    if broken:
        text = f"{len(broken)} broken invariants: {broken[0]}"
        return question.fails(text, [str(one) for one in broken], files=files, buckets=buckets)
    return question.passes(f"{files} files in {buckets} buckets lie as they should", files=files, buckets=buckets)


def inspect_tree(store: TableStore, partition: str | None = None) -> tuple[int, int, list[BrokenInvariant]]:
    """Return how many buckets and files of the newest snapshot were looked at, and every broken invariant.

    ``partition``: Paimon's path of the only one to look at, None: all. Raises CorruptFile.
    """
    latest = snapshots.latest(store)
    if latest is None:
        return 0, 0, []
    buckets = files = 0
    broken: list[BrokenInvariant] = []
    for binary, bucket, _, entries in bucket_groups(manifests.live_entries(store, latest)):
        text = partition_text(store.schema, binary, store.options)
        if partition is not None and text != partition:
            continue
        buckets, files = buckets + 1, files + entries.num_rows
        if store.schema.primary_keys:
            where = bucket_name(text, bucket)
            found = find_violations(tree_files(store, entries))
            broken += [BrokenInvariant(text, f"{where}: {violation.message}") for violation in found]
    return buckets, files, broken


__all__ = ["BrokenInvariant", "inspect_tree", "tree_is_valid"]
