"""Check `tree_is_valid`: the invariants of every bucket's tree, from manifest entries alone."""

from __future__ import annotations

from dataclasses import dataclass

from lsm_core.format.partitions import partition_text
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.checks.outcome import CheckReport, Question
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.store import TableStore
from lsm_core.metadata.tree_files import bucket_groups, tree_files
from lsm_core.tree import find_violations


@dataclass(frozen=True)
class BrokenInvariant:
    """Broken invariant of a bucket.

    Attributes:
        partition: path of the partition ("" for a table without partitions).
        text: description, which names the bucket.
    """

    partition: str
    text: str

    def __str__(self) -> str:
        """Return the description."""
        return self.text


def tree_is_valid(question: Question) -> CheckReport:
    """Check the trees of all buckets.

    Args:
        question: store, snapshot and limits of the check.
    """
    buckets, files, broken = inspect_tree(question.store)
    if broken:
        text = f"{len(broken)} broken invariants: {broken[0]}"
        return question.fails(text, [str(invariant) for invariant in broken], files=files, buckets=buckets)
    return question.passes(f"{files} files in {buckets} buckets form a valid tree", files=files, buckets=buckets)


def inspect_tree(store: TableStore, partition: str | None = None) -> tuple[int, int, list[BrokenInvariant]]:
    """Check the trees of the newest snapshot.

    Args:
        store: the table.
        partition: Paimon's path of the only partition to check, None for all.

    Returns:
        Number of checked buckets, number of their files, and every broken invariant.

    Raises:
        CorruptFile: a manifest cannot be read.
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
            violations = find_violations(tree_files(store, entries))
            broken += [BrokenInvariant(text, f"{where}: {violation.message}") for violation in violations]
    return buckets, files, broken
