"""Tables whose data files are replaced by copies of their row groups, several files in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from lsm_core import Table
from lsm_core.commit import CommitMessage, Committer
from lsm_core.compact.exact_keys import sort_keys
from lsm_core.files.row_group_copier import RowGroupCopier, require_copied
from lsm_core.files.row_group_statistics import GroupStatisticsReader, merge_statistics
from lsm_core.files.row_groups import StoredGroups, open_groups
from lsm_core.format.manifest import DataFileMeta, table_to_entries
from lsm_core.format.schema import append_arrow_schema, kv_arrow_schema
from lsm_core.format.stats import key_stats, value_stats
from lsm_core.metadata import snapshots
from lsm_core.metadata.manifests import live_entries
from lsm_core.metadata.store import TableStore

Choice = list[tuple[StoredGroups, int]]
"""Row groups, each with the index in its file."""


def splice(table: Table, random: Random | None = None) -> int:
    """Join the files of every bucket to one file by copying row groups; commit, and return the new files.

    Args:
        table: a table of Parquet files; those of a bucket with a key are of one level.
        random: the source of the order of row groups; only for tables without a key.
    """
    store = table.store
    latest = snapshots.latest(store)
    assert latest is not None
    buckets: dict[tuple[bytes, int, int], list[DataFileMeta]] = {}
    for entry in table_to_entries(live_entries(store, latest)):
        buckets.setdefault((entry.partition, entry.bucket, entry.total_buckets), []).append(entry.file)
    messages = []
    for place, files in buckets.items():
        if store.schema.primary_keys:
            keys = sort_keys(store, [file.min_key for file in files])
            files.sort(key=lambda file: keys.index(file.min_key))
        joined = join(store, *place[:2], files, random)
        messages.append(CommitMessage(*place, compact_before=tuple(files), compact_after=(joined,)))
    Committer(store).commit(messages)
    return len(messages)


def join(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], random: Random | None
) -> DataFileMeta:
    """Copy all row groups of files into a new file, and return its metadata."""
    paths = [store.data_path(partition, bucket, file) for file in files]
    sources = [open_groups(store.file_io, path, size=file.file_size) for path, file in zip(paths, files, strict=True)]
    chosen: Choice = [(groups, number) for groups in sources for number in range(len(groups.group_rows))]
    if random is not None:
        random.shuffle(chosen)
    name = store.new_file_name("data-", "parquet")
    path, _ = store.new_data_file(partition, bucket, name)
    with store.file_io.open_output(path) as output:
        copier = RowGroupCopier(output, path)
        for groups, number in chosen:
            with store.file_io.open_input(groups.path) as source:
                copier.copy(source, groups, [number])
        copier.close()
        output.close()
    require_copied(store.file_io, path, copier.copied)
    keyed = bool(store.schema.primary_keys)
    schema = kv_arrow_schema(store.schema) if keyed else append_arrow_schema(store.schema)
    parts = []
    for groups, number in chosen:
        with GroupStatisticsReader(store.file_io, groups, schema) as reader:
            parts.append(reader.statistics(number))
    merged = merge_statistics(parts)
    values, columns = value_stats(merged.values, store.schema, store.options, level=files[0].level)
    return replace(
        files[0],
        file_name=name,
        file_size=copier.position,
        row_count=merged.rows,
        max_key=files[-1].max_key,
        key_stats=key_stats(merged.values, store.schema) if keyed else files[0].key_stats,
        value_stats=values,
        value_stats_cols=columns,
        min_sequence_number=min(file.min_sequence_number for file in files),
        max_sequence_number=max(file.max_sequence_number for file in files),
    )
