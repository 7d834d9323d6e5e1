"""Planning a large table of 100,000 data files in 200 manifests, metadata only: time and memory in its own process."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.harness import Result, in_own_process
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows
from lsm_core.format.manifest import ENTRY_SCHEMA
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

FILES, MANIFESTS, PARTITIONS, BUCKETS = 100_000, 200, 1_000, 4
TARGET_SECONDS, TARGET_MIB = 1.5, 600.0
FIELDS = pa.schema(
    [
        pa.field("dt", pa.string(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        *[pa.field(f"n{i}", pa.int64()) for i in range(4)],
        *[pa.field(f"s{i}", pa.string()) for i in range(2)],
    ]
)
_PROGRAM = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t")
choice = json.loads(sys.argv[2])
if "filter" in choice:
    choice["filter"] = [tuple(test) for test in choice["filter"]]
started = time.perf_counter()
splits = table.plan_scan(**choice)
seconds = time.perf_counter() - started
print(json.dumps([seconds, own_peak(), len(splits)]))
"""


def build(
    warehouse: Path,
    primary_key: bool,
    files: int = FILES,
    manifest_count: int = MANIFESTS,
    *,
    partitions: int = PARTITIONS,
    buckets: int = BUCKETS,
    file_bytes: int = 64 << 20,
) -> TableStore:
    """Create a table with one snapshot of ``files`` data files in ``manifest_count`` manifests; no data file exists.

    Each partition of a table with a primary key has ``buckets`` buckets.
    """
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    keys = ["dt", "k"] if primary_key else []
    options = {"bucket": str(buckets if primary_key else -1)}
    catalog.create_table("bench.t", Schema(FIELDS, primary_keys=keys, partition_keys=["dt"], options=options))
    store = catalog.table("bench.t").store
    metas = []
    for part in np.array_split(np.arange(files), manifest_count):
        entry_table = entries(store, part, files, primary_key, partitions, buckets)
        at = entry_table.schema.get_field_index("file_size")
        sizes = pa.array(np.full(len(part), file_bytes), entry_table.schema.field(at).type)
        metas += manifests.write_manifests(store, entry_table.set_column(at, entry_table.schema.field(at), sizes))
    base, base_size = manifests.write_list(store, metas)
    delta, delta_size = manifests.write_list(store, [])
    snapshot = Snapshot(
        1, store.schema.id, base, delta, "bench", 1, CommitKind.APPEND, 1_700_000_000_000, base_size, delta_size,
        total_record_count=files * 1_000_000, delta_record_count=files * 1_000_000,
    )  # fmt: skip
    store.file_io.mkdirs(store.snapshot_dir)
    assert store.file_io.write_exclusive(store.snapshot_path(1), snapshot.to_json())
    return store


def entries(
    store: TableStore,
    numbers: np.ndarray,
    total: int,
    primary_key: bool,
    partitions: int = PARTITIONS,
    bucket_count: int = BUCKETS,
) -> pa.Table:
    """Return the entries (`ENTRY_SCHEMA`) of files ``numbers`` of ``total``; a fifth is on level 0."""
    count, schema = len(numbers), store.schema
    per_partition = max(1, total // partitions)
    place = numbers % per_partition
    dates = pa.array(np.char.add("2024-", np.char.zfill((numbers // per_partition).astype(str), 4)))
    buckets = place % bucket_count if primary_key else np.zeros(count, np.int64)
    level0 = (place // bucket_count) % 5 == 0
    low = place // bucket_count * 1_000_000
    low, high = np.where(level0, 0, low), np.where(level0, 2**40, low + 999_999)
    texts = pa.array(np.char.add("value ", low.astype(str)))
    bounds = [[dates, pa.array(side), *[pa.array(side)] * 4, texts, texts] for side in (low, high)]
    kinds = [field.type for field in schema.fields]
    nulls = pa.array([[0] * len(kinds)] * count, pa.list_(pa.int64()))
    keys = [encode_rows([pa.array(side)], schema.trimmed_key_types) for side in (low, high)] if primary_key else None
    empty = pa.array([EMPTY_ROW] * count, pa.binary())
    columns = {
        "kind": np.zeros(count, np.int8),
        "partition": encode_rows([dates], schema.partition_types),
        "bucket": buckets,
        "total_buckets": np.full(count, bucket_count if primary_key else -1),
        "file_name": pa.array(
            np.char.add(np.char.add("data-4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab-", numbers.astype(str)), ".parquet")
        ),
        "file_size": np.full(count, 64 << 20),
        "row_count": np.full(count, 1_000_000),
        "min_key": keys[0] if keys else empty,
        "max_key": keys[1] if keys else empty,
        "key_stats_min": keys[0] if keys else empty,
        "key_stats_max": keys[1] if keys else empty,
        "key_stats_nulls": pa.array([[0] if keys else []] * count, pa.list_(pa.int64())),
        "value_stats_min": encode_rows(bounds[0], kinds),
        "value_stats_max": encode_rows(bounds[1], kinds),
        "value_stats_nulls": nulls,
        "min_sequence_number": numbers * 1_000_000,
        "max_sequence_number": numbers * 1_000_000 + 999_999,
        "schema_id": np.zeros(count, np.int64),
        "level": np.where(level0, 0, 5) if primary_key else np.zeros(count, np.int64),
        "extra_files": pa.array([[]] * count, pa.list_(pa.string())),
        "creation_time_ms": 1_700_000_000_000 + numbers,
        "delete_row_count": np.zeros(count, np.int64),
        "file_source": np.zeros(count, np.int8),
    }
    arrays = [
        pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in ENTRY_SCHEMA
    ]
    return pa.table(arrays, schema=ENTRY_SCHEMA)


_HEALTH = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t")
started = time.perf_counter()
buckets = table.health()
seconds = time.perf_counter() - started
print(json.dumps([seconds, own_peak(), len(buckets)]))
"""


def health(warehouse: Path) -> list[float]:
    """Return seconds, peak MiB and number of buckets of one health report, computed in its own process."""
    return [float(value) for value in in_own_process(_HEALTH, str(warehouse))]


def plan(warehouse: Path, **choice: object) -> list[float]:
    """Return seconds, peak MiB and number of splits of one plan, computed in its own process."""
    return [float(value) for value in in_own_process(_PROGRAM, str(warehouse), json.dumps(choice))]


def run(files: int | None, rounds: int) -> list[Result]:
    """Measure plans of whole tables and of one partition, and health, for a primary-key and an append table."""
    total, results = files or FILES, []
    for kind, primary_key in (("primary-key", True), ("append", False)):
        with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
            warehouse = Path(folder)
            build(warehouse, primary_key, total)
            choices: dict[str, dict[str, object]] = {
                "all files": {},
                "one partition": {"filter": [["dt", "=", "2024-0500"]]},
            }
            for scope, choice in choices.items():
                seen = [plan(warehouse, **choice) for _ in range(rounds + 1)][1:]
                results += _results(
                    f"{kind} table, {scope}, plan", seen, f"{total:,} files, {int(seen[0][2]):,} splits"
                )
            seen = [health(warehouse) for _ in range(rounds + 1)][1:]
            results += _results(f"{kind} table, health", seen, f"{total:,} files, {int(seen[0][2]):,} buckets")
    return results


def _results(name: str, seen: list[list[float]], note: str) -> list[Result]:
    """Return time and memory, each with its target."""
    results = []
    for unit, at, target in (("s", 0, TARGET_SECONDS), ("MiB", 1, TARGET_MIB)):
        values = sorted(row[at] for row in seen)
        label, middle = name if unit == "s" else f"{name}, peak RSS", values[len(values) // 2]
        results.append(Result("plan", label, middle, unit, target, low=values[0], high=values[-1], note=note).judged())
    return results
