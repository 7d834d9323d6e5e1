"""Pruning by place: manifests by their partition ranges, then partitions, then buckets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import arrow_array, numpy_array, one_array
from lsm_core.errors import DredgeError
from lsm_core.format.binary_row import decode_rows
from lsm_core.format.hashing import bucket_of
from lsm_core.format.manifest import ManifestFileMeta
from lsm_core.format.schema import TableSchema
from lsm_core.read.predicate import Conjunct, Predicate
from lsm_core.read.prune.column_bounds import Bounds, possible, prunable

_MAX_COMBINATIONS: Final = 1000
_ARITY_BYTES: Final = 4


def manifest_chooser(
    schema: TableSchema, *predicates: Predicate | None
) -> Callable[[list[ManifestFileMeta]], list[ManifestFileMeta]]:
    """Return a function that keeps the manifests whose partition range can satisfy all filters."""
    useful = [p for p in predicates if p is not None and prunable(schema, p, schema.partition_keys)]

    def choose(metas: list[ManifestFileMeta]) -> list[ManifestFileMeta]:
        for predicate in useful:
            keep = possible(schema, _partition_ranges(schema, metas, predicate), len(metas), predicate)
            metas = [meta for meta, kept in zip(metas, keep, strict=True) if kept]
        return metas

    return choose


def _partition_ranges(
    schema: TableSchema, metas: Sequence[ManifestFileMeta], predicate: Predicate
) -> dict[str, Bounds]:
    stats = [meta.partition_stats for meta in metas]
    arity = len(schema.partition_keys).to_bytes(_ARITY_BYTES, "big")
    has_range = [s.min_values[:_ARITY_BYTES] == arity == s.max_values[:_ARITY_BYTES] for s in stats]
    sides = [
        arrow_array(
            [getattr(s, side) if usable else None for s, usable in zip(stats, has_range, strict=True)], pa.binary()
        )
        for side in ("min_values", "max_values")
    ]
    try:
        lows, highs = (decoded_rows(side, schema.partition_types) for side in sides)
    except DredgeError:  # ranges that cannot be read exclude nothing; the entries are pruned later
        return {}
    bounds = {}
    for name in prunable(schema, predicate, schema.partition_keys):
        position = schema.partition_keys.index(name)
        nulls = [
            None if not s.null_counts or position >= len(s.null_counts) else s.null_counts[position] for s in stats
        ]
        bounds[name] = Bounds.of(lows[position], highs[position], nulls)
    return bounds


def decoded_rows(blobs: pa.Array, types: Sequence[Any]) -> list[pa.Array]:
    """Return the columns of serialised rows; null where a blob is null."""
    filled = pc.is_valid(blobs)
    values = decode_rows(blobs.filter(filled), list(types))
    mask = numpy_array(filled)
    slots = arrow_array(np.maximum(np.cumsum(mask) - 1, 0), mask=~mask)
    return [column.take(slots) for column in values]


def prune_partitions(schema: TableSchema, entries: pa.Table, predicate: Predicate | None) -> pa.Table:
    """Return the entries whose partition can hold a matching row (`ENTRY_SCHEMA` in and out)."""
    if predicate is None or not set(predicate.columns) & set(schema.partition_keys) or not entries.num_rows:
        return entries
    codes, bounds = partition_bounds(schema, entries, predicate)
    keep = possible(schema, bounds, len(codes.dictionary), predicate)
    return entries if keep.all() else entries.filter(arrow_array(keep[numpy_array(codes.indices)]))


def partition_bounds(
    schema: TableSchema, entries: pa.Table, predicate: Predicate
) -> tuple[pa.DictionaryArray, dict[str, Bounds]]:
    """Return the partitions of the entries, and the values of each in the columns that the filter uses."""
    codes = pc.dictionary_encode(one_array(entries.column("partition")))
    names = prunable(schema, predicate, schema.partition_keys)
    columns = decoded_rows(codes.dictionary.cast(pa.binary()), schema.partition_types) if names else []
    return codes, {name: Bounds.exactly(columns[schema.partition_keys.index(name)]) for name in names}


def prune_buckets(schema: TableSchema, entries: pa.Table, predicate: Predicate | None, function: str) -> pa.Table:
    """Return the entries of the buckets that equality tests on all bucket keys select; all entries without these tests.

    The sides of an `or` that cannot be true in a partition select no bucket in it.

    Args:
        schema: schema of the table.
        entries: files (`ENTRY_SCHEMA`).
        predicate: the filter; None for no pruning.
        function: bucket function of the table (option `bucket-function.type`).
    """
    if predicate is None or not schema.bucket_keys or not entries.num_rows:
        return entries
    groups = predicate.groups or ()
    if len(groups) < 2 or not prunable(schema, predicate, schema.partition_keys):
        return entries.filter(arrow_array(_in_chosen_buckets(schema, entries, predicate, function)))
    codes, bounds = partition_bounds(schema, entries, predicate)
    satisfiable = np.array(
        [possible(schema, bounds, len(codes.dictionary), replace(predicate, groups=(group,))) for group in groups]
    )
    # Partitions in which the same sides can be true are pruned together.
    patterns, pattern_of_partition = np.unique(satisfiable, axis=1, return_inverse=True)
    pattern_of_entry = pattern_of_partition.reshape(-1)[numpy_array(codes.indices)]
    mask = np.zeros(entries.num_rows, dtype=bool)
    for number, pattern in enumerate(patterns.T):
        remaining = replace(predicate, groups=tuple(itertools.compress(groups, pattern)))
        mask |= (pattern_of_entry == number) & _in_chosen_buckets(schema, entries, remaining, function)
    return entries.filter(arrow_array(mask))


def _in_chosen_buckets(
    schema: TableSchema, entries: pa.Table, predicate: Predicate, function: str
) -> npt.NDArray[np.bool_]:
    wanted = combinations(schema, predicate, schema.bucket_keys)
    if wanted is None:
        return np.ones(entries.num_rows, dtype=bool)
    mask = np.zeros(entries.num_rows, dtype=bool)
    totals = numpy_array(entries.column("total_buckets"))
    buckets = numpy_array(entries.column("bucket"))
    for total in np.unique(totals):
        if total <= 0:
            mask |= totals == total
            continue
        hit = np.unique(bucket_of(wanted, schema.bucket_key_types, int(total), function))
        mask |= (totals == total) & np.isin(buckets, hit)
    return mask


def combinations(schema: TableSchema, predicate: Predicate, keys: Sequence[str]) -> list[pa.Array] | None:
    """Return the columns ``keys`` of all value combinations that equality tests allow.

    None means that a column is not restricted.
    """
    if predicate.groups is None:
        return None
    combination_set: set[tuple[Any, ...]] = set()
    for group in predicate.groups:
        choices = [_choices(group, name, schema.arrow_schema.field(name).type) for name in keys]
        if any(choice is None for choice in choices):
            return None
        pools = [choice for choice in choices if choice is not None]
        if len(combination_set) + int(np.prod([len(pool) for pool in pools], dtype=np.float64)) > _MAX_COMBINATIONS:
            return None
        combination_set.update(itertools.product(*pools))
    ordered = list(combination_set)
    kinds = [schema.arrow_schema.field(name).type for name in keys]
    return [arrow_array([row[i] for row in ordered], kind) for i, kind in enumerate(kinds)]


def _choices(group: Sequence[Conjunct], name: str, kind: pa.DataType) -> list[Any] | None:
    """Return the values that all equality tests of a column allow.

    Returns:
        The values, or None without these tests, or if they contradict each other.
    """
    allowed: list[Any] | None = None
    for test in group:
        if test.column != name or test.value is None or test.value.type != kind or pa.types.is_floating(kind):
            continue
        if test.op in ("=", "=="):
            if not test.value.is_valid:
                return []
            values = [test.value.as_py()]
        elif test.op == "in":
            values = test.value.to_pylist()
        else:
            continue
        allowed = values if allowed is None else [value for value in allowed if value in values]
    # Contradictions are left to the row filter, as in Java's BucketSelector: planning for them saves nothing.
    return allowed or None
