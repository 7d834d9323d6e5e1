"""Checks of metadata only: `tree_is_valid` for the LSM trees of all buckets, `deletion_vectors_valid` for a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile
from lsm_core.format.partitions import partition_text
from lsm_core.format.snapshot import Snapshot
from lsm_core.maintenance.action import bucket_name
from lsm_core.maintenance.checks.outcome import CheckInput, CheckReport
from lsm_core.maintenance.file_remedies import Remedy, find_tree_remedies
from lsm_core.metadata import manifests, snapshots
from lsm_core.metadata.indexes import deletion_vectors, read_vector, require_in_place
from lsm_core.metadata.live_files import TREE_COLUMNS, BucketGroup, bucket_groups, tree_files
from lsm_core.metadata.store import TableStore
from lsm_core.tree import find_violations

_FILES_TOGETHER: Final = 4_096
"""Files from which no further buckets are added to a batch."""


@dataclass(frozen=True)
class BrokenInvariant:
    """Violation of an invariant of the LSM tree in one bucket.

    Attributes:
        partition: path of the partition ("" for a table without partitions).
        text: description of the violation, with the name of the bucket.
    """

    partition: str
    text: str

    def __str__(self) -> str:
        """Return the description of the violated invariant."""
        return self.text


def tree_is_valid(check_input: CheckInput) -> CheckReport:
    """Check the LSM trees of all buckets: key ranges of levels and files, from manifests only.

    Args:
        check_input: store, snapshot and limits of the check.
    """
    buckets, files, broken = inspect_tree(check_input.store)
    if broken:
        remedies, reason = tree_remedies(check_input.store)
        text = f"{len(broken)} broken invariants: {broken[0]}; {reason}"
        report = check_input.fails(text, [str(invariant) for invariant in broken], files=files, buckets=buckets)
        return replace(report, remedies=remedies)
    return check_input.passes(f"{files} files in {buckets} buckets form a valid tree", files=files, buckets=buckets)


def tree_remedies(store: TableStore) -> tuple[tuple[Remedy, ...], str]:
    """Return the remedies for the broken tree of the newest snapshot, and the commit that broke it.

    Args:
        store: the table.

    Returns:
        At most one remedy, and a text on the commit that broke the tree, or on why there is no remedy.
    """
    newest = snapshots.latest(store)
    if newest is None:
        return (), "nothing was committed yet"
    return find_tree_remedies(store, newest, lambda snapshot: not inspect_tree(store, snapshot=snapshot)[2])


def inspect_tree(
    store: TableStore, partition: str | None = None, snapshot: Snapshot | None = None
) -> tuple[int, int, list[BrokenInvariant]]:
    """Check the LSM trees of a snapshot.

    Args:
        store: the table.
        partition: Paimon's path of the only partition to check, None for all.
        snapshot: snapshot to check, None for the newest one.

    Returns:
        Number of checked buckets, number of their files, and every broken invariant.

    Raises:
        CorruptFile: a manifest cannot be read.
    """
    latest = snapshot or snapshots.latest(store)
    if latest is None:
        return 0, 0, []
    buckets = files = 0
    broken: list[BrokenInvariant] = []
    has_levels = store.schema.primary_keys and not store.options.clusters_keys  # else files of a level overlap
    texts: dict[bytes, str] = {}
    for groups in _batches(bucket_groups(manifests.live_entries(store, latest, columns=TREE_COLUMNS))):
        texts |= {
            binary: partition_text(store.schema, binary, store.options)
            for binary in {binary for binary, *_ in groups} - texts.keys()
        }
        groups = [group for group in groups if partition is None or texts[group[0]] == partition]
        buckets, files = buckets + len(groups), files + sum(entries.num_rows for *_, entries in groups)
        if not groups or not has_levels:
            continue
        trees = iter(tree_files(store, pa.concat_tables([entries for *_, entries in groups])))
        for binary, bucket, _, entries in groups:
            where = bucket_name(texts[binary], bucket)
            violations = find_violations(list(islice(trees, entries.num_rows)))
            broken += [BrokenInvariant(texts[binary], f"{where}: {violation.message}") for violation in violations]
    return buckets, files, broken


def _batches(groups: Sequence[BucketGroup]) -> Iterator[list[BucketGroup]]:
    """Yield buckets in order, together until they have thousands of files, because each decoding of keys has a cost."""
    batch: list[BucketGroup] = []
    rows = 0
    for group in groups:
        batch.append(group)
        rows += group[-1].num_rows
        if rows >= _FILES_TOGETHER:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def deletion_vectors_valid(check_input: CheckInput) -> CheckReport:
    """Check that every deletion vector is in its data file's bucket, and that sampled vectors have valid positions.

    A vector whose data file is no longer live is counted but is not a failure, because Java leaves such vectors behind
    and no reader opens them.

    For sampled vectors, the recorded number of deleted rows is compared with the actual number too.

    Args:
        check_input: store, snapshot and limits; `limits.vectors` bounds the sample.
    """
    store, snapshot = check_input.store, check_input.snapshot
    columns = ["partition", "bucket", "file_name", "row_count"]
    vectors = deletion_vectors(store, snapshot)
    places = [(place, name, vector) for place, files in vectors.items() for name, vector in files.items()]
    names = pa.array([name for _, name, _ in places], pa.string())
    parts = [
        part.filter(pc.is_in(part.column("file_name"), names)).select(columns)
        for part in manifests.iter_live(store, snapshot)
    ]
    live = pa.concat_tables([manifests.NO_ENTRIES.select(columns), *parts])
    problems: list[str] = []
    damaged: dict[str, None] = {}
    try:
        require_in_place(store, snapshot, live)
    except CorruptFile as error:
        problems.append(error.finding)
        damaged[PurePosixPath(error.path).name] = None
    rows = dict(zip(*(live.column(name).to_pylist() for name in ("file_name", "row_count")), strict=True))
    stale = sum(name not in rows for _, name, _ in places)
    chosen = sorted(
        (place for place in places if place[1] in rows),
        key=lambda place: hashlib.sha256(f"{check_input.seed} {place[1]}".encode()).digest(),
    )[: check_input.limits.vectors]
    marked = 0
    for (partition, bucket), name, vector in chosen:
        try:
            marked += read_vector(store, vector, rows[name]).cardinality
        except CorruptFile as error:
            where = bucket_name(partition_text(store.schema, partition, store.options), bucket)
            problems.append(f"{where}: vector of {name}: {error.finding}")
            damaged[vector.index_file] = None
    numbers = {
        "vectors_read": len(chosen),
        "vectors": len(places),
        "rows_marked": marked,
        "vectors_of_files_gone": stale,
    }
    if problems:
        text = f"{len(problems)} of {len(chosen)} vectors are wrong: {problems[0]}"
        return check_input.fails(text, problems, **numbers).with_damage(list(damaged))
    text = f"{len(chosen)} of {len(places)} deletion vectors mark {marked:,} rows, all of live files"
    return check_input.passes(text, **numbers)
