"""Overwrites: the scope (some partitions or the whole table), and the files in the scope that each attempt replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.commit.message import deletions_of
from lsm_core.errors import ColumnNotFound, InvalidData, InvalidOption
from lsm_core.format.manifest import ENTRY_SCHEMA, partitions_of
from lsm_core.format.partitions import partition_specs, partition_values
from lsm_core.format.snapshot import Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.live_files import bucket_groups, tree_files
from lsm_core.metadata.manifests import NO_ENTRIES
from lsm_core.metadata.store import POSTPONE_BUCKET, BucketMode, TableStore
from lsm_core.tree import DataFile
from lsm_core.types import to_arrow

Values = Mapping[str, Any]
_NAMED = 5
"""Largest number of partitions that a text names."""


@dataclass(frozen=True)
class Scope:
    """Partitions that an overwrite replaces.

    Attributes:
        partitions: BinaryRows of the partitions; None for the partitions that match one of ``specs``.
        specs: mappings of partition column to value; if empty and ``partitions`` is None, the scope is the whole table.
    """

    partitions: tuple[bytes, ...] | None
    specs: tuple[Values, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the scope has no partition, as for a dynamic overwrite without new files, which changes nothing."""
        return self.partitions is not None and not self.partitions

    def matcher(self, store: TableStore) -> Callable[[bytes], bool]:
        """Return a predicate that is True for partitions (BinaryRow) in the scope."""
        if self.partitions is not None:
            return frozenset(self.partitions).__contains__
        return _matcher(store, self.specs) if self.specs else lambda _: True


def asked_scope(store: TableStore, spec: Values | None) -> Values | None:
    """Return the partitions that an overwrite by a user replaces, as argument ``partition_spec`` of :func:`scope_of`.

    If the user named no partition (``spec`` is None or ``{}``), option `dynamic-partition-overwrite` decides. By
    default only the partitions that get new files are replaced (result None), so that no other partition is emptied.
    If the option is off, the whole table is replaced (result ``{}``).

    Source: Paimon `FileStoreCommitImpl.overwritePartition`.
    """
    if spec:
        return dict(spec)
    return None if store.options.get("dynamic-partition-overwrite") else {}


def scope_of(store: TableStore, added: pa.Table, partition_spec: Values | Sequence[Values] | None) -> Scope:
    """Return the scope of an overwrite: the partitions, or the whole table, whose files are replaced.

    Args:
        store: the table.
        added: entries of the new files.
        partition_spec: None for the partitions that get new files (the whole table if it has no partitions). ``{}`` for
            the whole table; ``{column: value}`` for the partitions with these values. A list of such mappings for the
            partitions that match at least one mapping; an empty list for no partition.

    Raises:
        ColumnNotFound: a column is not a partition column.
        InvalidData: a value does not fit its partition column, or a new file is outside the scope.
    """
    if partition_spec is None:
        return Scope(tuple(partitions_of(added))) if store.schema.partition_keys else Scope(None)
    if not isinstance(partition_spec, Mapping):
        specs = _typed_specs(store, partition_spec) if partition_spec else ()
    elif partition_spec:
        specs = (_typed_spec(store, partition_spec),)
    else:
        return Scope(None)
    matches = _matcher(store, specs)
    for partition in partitions_of(added):
        if not matches(partition):
            values = partition_values(store.schema, partition)
            named = specs[0] if len(specs) == 1 else f"the {len(specs)} partitions to replace"
            raise InvalidData(
                store.name,
                ", ".join(store.schema.partition_keys),
                f"new rows of partition {values} lie outside {named}",
            )
    return Scope(None, specs) if specs else Scope(())


def scope_of_drop(store: TableStore, specs: Sequence[Values]) -> Scope:
    """Return the scope of partitions that match one of ``specs``; columns that are left out match every value.

    Raises:
        InvalidOption: ``specs`` is empty, or contains an empty mapping, which would match the whole table.
        DredgeError: the errors of :func:`scope_of`.
    """
    return Scope(None, _typed_specs(store, specs))


def partition_matcher(store: TableStore, specs: Sequence[Values]) -> Callable[[bytes], bool]:
    """Return a predicate that is True for partitions (BinaryRow) that match one of ``specs``.

    Raises the errors of :func:`scope_of_drop`.
    """
    return _matcher(store, _typed_specs(store, specs))


def _typed_specs(store: TableStore, specs: Sequence[Values]) -> tuple[Values, ...]:
    if isinstance(specs, Mapping) or not specs or not all(spec and isinstance(spec, Mapping) for spec in specs):
        accepted = "a list of mappings with at least one partition column each (truncate() empties a table)"
        raise InvalidOption("partitions", str(specs), accepted, store.name)
    return tuple(_typed_spec(store, spec) for spec in specs)


def _typed_spec(store: TableStore, spec: Values) -> Values:
    """Return a spec with values of the partition columns' types, so that "2024-01-01" means a DATE in a DATE column."""
    for name in spec:
        if name not in store.schema.partition_keys:
            raise ColumnNotFound(store.name, name, store.schema.partition_keys)
    typed_spec: dict[str, Any] = {}
    for name, value in spec.items():
        if value is None:
            typed_spec[name] = None
            continue
        kind = to_arrow(store.schema.field(name).type)
        try:
            scalar = pa.scalar(value)
            typed_spec[name] = scalar.as_py() if scalar.type.equals(kind) else scalar.cast(kind).as_py()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidData(
                store.name, name, f"{value!r} cannot be a value of this partition column: {error}"
            ) from error
    return typed_spec


def overwrite_entries(
    store: TableStore, latest: Snapshot | None, added: pa.Table, scope: Scope
) -> tuple[pa.Table, pa.Table]:
    """Return (live entries of a scope, entries of the change: deletions of all live entries, then ``added``).

    Files of postponed rows are removed only if the table is in postpone bucket mode; writers of real buckets keep them.

    Source: Paimon `FileStoreCommitImpl`.
    """
    if latest is None:
        return NO_ENTRIES, added
    partitions = None if scope.partitions is None else list(scope.partitions)
    live = manifests.live_entries(store, latest, partitions=partitions)
    if store.options.bucket != POSTPONE_BUCKET:
        live = live.filter(pc.greater_equal(live.column("bucket"), 0))
    if scope.specs:
        matches = _matcher(store, scope.specs)
        chosen = [partition for partition in partitions_of(live) if matches(partition)]
        live = live.filter(pc.is_in(live.column("partition"), pa.array(chosen, pa.binary())))
    return live, pa.concat_tables([deletions_of(live), added])


def upgraded(store: TableStore, added: pa.Table, scope: Scope) -> pa.Table:
    """Move the new files of an overwrite to the top level, in buckets whose new files do not overlap.

    After the overwrite, the buckets of ``scope`` (the replaced partitions) contain only the new files, so no merge is
    needed. New files outside the scope keep their level. The option is `overwrite-upgrade`. Files with deletes stay on
    level 0, although Java moves them, too.

    Source: Paimon `tryUpgrade`.
    """
    options = store.options
    if not store.schema.primary_keys or not options.get("overwrite-upgrade") or not added.num_rows:
        return added
    parts, level, replaced = [], ENTRY_SCHEMA.field("level"), scope.matcher(store)
    if options.clusters_keys:  # files above level 0 are sorted by other columns
        return added
    if moves_hidden_keys(store) and not all(map(replaced, partitions_of(added))):
        return added  # readers would see a key twice until a compaction hides the key's old row
    for partition, bucket, _, group in bucket_groups(added):
        settled = pc.any(pc.greater(group.column("level"), 0)).as_py()  # moved by its writer
        if bucket >= 0 and replaced(partition) and not settled and can_be_raised(tree_files(store, group)):
            levels = pa.repeat(pa.scalar(options.num_levels - 1, level.type), group.num_rows)
            group = group.set_column(group.schema.get_field_index("level"), level, levels)
        parts.append(group)
    return pa.concat_tables(parts)


def moves_hidden_keys(store: TableStore) -> bool:
    """Return whether keys may move between partitions and readers see a move only after a compaction."""
    return store.bucket_mode is BucketMode.CROSS_PARTITION and store.options.batch_scan_skips_level0


def can_be_raised(files: Sequence[DataFile]) -> bool:
    """Return whether all files of a bucket may be moved to one level unchanged.

    This is possible if no key is in two files, and no file has deletes.
    """
    ordered = sorted(files, key=lambda file: (file.min_key, file.max_key))
    apart = all(file.max_key < following.min_key for file, following in pairwise(ordered))
    return apart and all(file.delete_row_count == 0 for file in ordered)


def loses_partitions(store: TableStore, scope: Scope, live: pa.Table, added: pa.Table) -> bool:
    """Return whether ``scope`` is a whole partitioned table, and a live partition gets no new file."""
    whole = scope.partitions is None and not scope.specs and bool(store.schema.partition_keys)
    return whole and not set(partitions_of(live)) <= set(partitions_of(added))


def replaced_text(store: TableStore, scope: Scope, live: pa.Table) -> str:
    """Return a text for users about the content that an overwrite replaced.

    Args:
        store: the table.
        scope: the replaced partitions.
        live: entries of the files that the overwrite deleted.

    Returns:
        A text like "the whole table: 3 files, 10 rows", or with up to five partition names for a smaller scope.
    """
    named = partitions_of(live) if scope.partitions is None else scope.partitions
    if (scope.partitions is None and not scope.specs) or not store.schema.partition_keys:
        content = "the whole table"
    else:
        names = partition_specs(store.schema, named[:_NAMED], store.options)
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        content = f"partitions {', '.join(names)}{more}" if names else "no partition"
    rows = pc.sum(live.column("row_count")).as_py() or 0
    return f"{content}: {live.num_rows} files, {rows} rows"


def _matcher(store: TableStore, specs: Sequence[Values]) -> Callable[[bytes], bool]:
    def matches(partition: bytes) -> bool:
        values = partition_values(store.schema, partition)
        return any(all(_same(values[name], value) for name, value in spec.items()) for spec in specs)

    return matches


def _same(left: object, right: object) -> bool:
    return left == right or (left != left and right != right)  # noqa: PLR0124 - NaN is one partition


def entries_source(
    store: TableStore, added: pa.Table, scope: Scope
) -> Callable[[Snapshot | None], tuple[pa.Table, pa.Table]]:
    """Return a function that computes the overwrite's change; it is called at every attempt.

    Returns:
        A function that takes the latest snapshot (or None). It returns two tables: the live entries of ``scope`` (the
        replaced partitions), and the entries of the change, which delete all live entries and then add ``added``.
    """
    return lambda latest: overwrite_entries(store, latest, added, scope)
