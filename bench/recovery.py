"""Health report and first recovery pass of a table with 900,000 level-0 files; time and memory in own processes.

The metadata is generated; the data files are tiny, and only those of the first pass exist.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.harness import Result, in_own_process
from lsm_core.files import KeyValueFileWriter
from lsm_core.format.binary_row import EMPTY_ROW, encode_rows
from lsm_core.format.manifest import ADD, ENTRY_SCHEMA, DataFileMeta, ManifestEntry, entries_to_table
from lsm_core.format.schema import kv_arrow_schema
from lsm_core.format.snapshot import CommitKind, Snapshot
from lsm_core.maintenance.actions.recover.recovering import FILES_OF_A_PASS
from lsm_core.metadata import manifests
from lsm_core.metadata.store import TableStore

FILES, BUCKETS, ROWS_OF_A_FILE = 900_000, 9, 20
HEALTH_SECONDS, HEALTH_MIB, PASS_SECONDS, GROWTH = 6.0, 1024.0, 60.0, 1.25
_AT_ONCE = 60_000
_KEYS = 1 << 40
_FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string())])
_HEALTH = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t")
started = time.perf_counter()
buckets = table.health()
seconds = time.perf_counter() - started
print(json.dumps([seconds, own_peak(), time.process_time()]))
"""
_PASS = """
import json, sys, time
from bench.harness import own_peak
from lsm_core import Catalog
table = Catalog(sys.argv[1]).table("bench.t")
started = time.perf_counter()
report = table.recover(passes=1)
seconds = time.perf_counter() - started
(done,) = report.passes
print(json.dumps([seconds, own_peak(), done.files_in, report.level0_after, report.passes_left, report.seconds_left, time.process_time()]))
"""


def build(warehouse: Path, files: int = FILES) -> TableStore:
    """Create a table of ``files`` level-0 files in nine buckets, oldest first; the files of the first pass exist."""
    from lsm_core import Catalog, Schema

    catalog = Catalog(str(warehouse))
    catalog.create_database("bench")
    options = {"bucket": str(BUCKETS), "write-only": "true"}
    catalog.create_table("bench.t", Schema(_FIELDS, primary_keys=["k"], options=options))
    store = catalog.table("bench.t").store
    share, each = FILES_OF_A_PASS // 4, files // BUCKETS
    buckets = range(4 if each > share else BUCKETS)
    written = {number: file for bucket in buckets for number, file in _real(store, bucket, min(share, each))}
    parts = (_entries(store, np.arange(at, min(at + _AT_ONCE, files)), written) for at in range(0, files, _AT_ONCE))
    base = manifests.write_list(store, manifests.write_manifests(store, parts))
    delta = manifests.write_list(store, [])
    rows = files * ROWS_OF_A_FILE
    snapshot = Snapshot(
        1, store.schema.id, base[0], delta[0], "bench", 1, CommitKind.APPEND, 1_700_000_000_000, base[1], delta[1],
        total_record_count=rows, delta_record_count=rows,
    )  # fmt: skip
    store.file_io.mkdirs(store.snapshot_dir)
    assert store.file_io.write_exclusive(store.snapshot_path(1), snapshot.to_json())
    return store


def _real(store: TableStore, bucket: int, count: int) -> list[tuple[int, DataFileMeta]]:
    """Write the ``count`` oldest files of a bucket; return them with their numbers."""
    random, layout = np.random.default_rng(bucket), kv_arrow_schema(store.schema)
    numbered_files = []
    for place in range(count):
        keys = np.sort(random.integers(0, _KEYS, ROWS_OF_A_FILE))
        system = [
            np.arange(place * ROWS_OF_A_FILE, (place + 1) * ROWS_OF_A_FILE),
            np.zeros(ROWS_OF_A_FILE, np.int8),
        ]
        texts = pa.array(np.char.add("text ", keys.astype(str)))
        columns = [keys, *system, keys, np.full(ROWS_OF_A_FILE, place), texts]
        arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, layout, strict=True)]
        writer = KeyValueFileWriter(store, EMPTY_ROW, bucket, BUCKETS, level=0, file_source=0)
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=layout))
        numbered_files += [(place * BUCKETS + bucket, file) for file in writer.close()]
    return numbered_files


def _entries(store: TableStore, numbers: np.ndarray, written: dict[int, DataFileMeta]) -> pa.Table:
    """Return the entries (`ENTRY_SCHEMA`) of files ``numbers``: real if ``written``, else generated."""
    count, kinds = len(numbers), [field.type for field in store.schema.fields]
    random = np.random.default_rng(int(numbers[0]))
    low, high = np.sort(random.integers(0, _KEYS, (2, count)), axis=0)
    place = numbers // BUCKETS
    keys = [encode_rows([pa.array(side)], store.schema.trimmed_key_types) for side in (low, high)]
    values = [
        encode_rows([pa.array(side), pa.array(place), pa.array(np.char.add("text ", side.astype(str)))], kinds)
        for side in (low, high)
    ]
    columns = {
        "kind": np.zeros(count, np.int8),
        "partition": pa.array([EMPTY_ROW] * count, pa.binary()),
        "bucket": numbers % BUCKETS,
        "total_buckets": np.full(count, BUCKETS),
        "file_name": pa.array(
            np.char.add(np.char.add("data-4f5d7a0e-5b1c-4c5f-9d3a-0123456789ab-", numbers.astype(str)), ".parquet")
        ),
        "file_size": np.full(count, 2_500),
        "row_count": np.full(count, ROWS_OF_A_FILE),
        "min_key": keys[0],
        "max_key": keys[1],
        "key_stats_min": keys[0],
        "key_stats_max": keys[1],
        "key_stats_nulls": pa.array([[0]] * count, pa.list_(pa.int64())),
        "value_stats_min": values[0],
        "value_stats_max": values[1],
        "value_stats_nulls": pa.array([[0, 0, 0]] * count, pa.list_(pa.int64())),
        "min_sequence_number": place * ROWS_OF_A_FILE,
        "max_sequence_number": (place + 1) * ROWS_OF_A_FILE - 1,
        "schema_id": np.zeros(count, np.int64),
        "level": np.zeros(count, np.int64),
        "extra_files": pa.array([[]] * count, pa.list_(pa.string())),
        "creation_time_ms": 1_700_000_000_000 + numbers,
        "delete_row_count": np.zeros(count, np.int64),
        "file_source": np.zeros(count, np.int8),
    }
    arrays = [
        pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in ENTRY_SCHEMA
    ]
    made = pa.table(arrays, schema=ENTRY_SCHEMA)
    written_numbers = np.array([number for number in numbers.tolist() if number in written], np.int64)
    if not len(written_numbers):
        return made
    true = entries_to_table(
        [
            ManifestEntry(ADD, EMPTY_ROW, number % BUCKETS, BUCKETS, written[number])
            for number in written_numbers.tolist()
        ]
    )
    rows = np.arange(count)
    rows[written_numbers - numbers[0]] = count + np.arange(len(written_numbers))
    return pa.concat_tables([made, true]).take(pa.array(rows))


def run(files: int | None, rounds: int) -> list[Result]:
    """Measure health and the first pass for the whole backlog and for a tenth of it."""
    total, results, peaks = files or FILES, [], []
    for count in (total // 10, total):
        with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
            build(Path(folder), count)
            whole = count == total
            if whole:
                seen = [in_own_process(_HEALTH, folder) for _ in range(min(rounds, 3))]
                for unit, at, target in (("s", 0, HEALTH_SECONDS), ("MiB", 1, HEALTH_MIB)):
                    values = sorted(row[at] for row in seen)
                    name = f"health of {count:,} level-0 files{', peak RSS' if at else ''}"
                    results.append(
                        Result(
                            "recovery", name, values[len(values) // 2], unit, target, low=values[0], high=values[-1]
                        ).judged()
                    )
            seconds, peak, file_count, after, left, ahead, cpu = in_own_process(_PASS, folder)
            peaks.append(peak)
            note = f"{file_count:,} files; level 0: {after:,} left, about {left} passes, {ahead / 3600:.2f} h"
            name = f"first pass, {count:,} level-0 files"
            target = PASS_SECONDS if whole else None
            results += [
                Result("recovery", name, seconds, "s", target, note=note).judged(),
                Result(
                    "recovery",
                    f"{name}, peak RSS",
                    peak,
                    "MiB",
                    None,
                    note=f"{cpu:.1f} s of processor time, imports included",
                ),
            ]
    grown = Result("recovery", "peak of the large / of a tenth of it", peaks[1] / peaks[0], "x", GROWTH).judged()
    return [*results, grown]
