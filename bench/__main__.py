"""`python -m bench [NAME ...] [--rows N] [--rounds N] --json FILE`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench import (
    changelog,
    checksums,
    commits,
    compaction,
    dynamic,
    exact,
    exact_reads,
    expectations,
    expiry,
    gathering,
    hashing,
    iceberg,
    inline,
    java_read,
    launcher,
    lookup,
    manifest_reading,
    memory,
    merge,
    object_stores,
    orphans,
    planning,
    platform,
    reading,
    recovery,
    repeating_text,
    rest,
    row_groups,
    scale,
    sensor_ticks,
    sorting,
    spark_compaction,
    spark_reading,
    spark_streams,
    spark_writing,
    vectors,
    wide_columns,
    wide_rows,
    writing,
)
from bench.harness import ROUNDS, Result, table, with_java_version
from lsm_core.options import INLINE_VARIABLE

BENCHES: dict[str, tuple[Callable[[int | None, int], list[Result]], str]] = {
    "compact": (
        compaction.run,
        "full compaction on one and two cores against the copy limit and Java, files of three writers",
    ),
    "compact-large": (compaction.run_large, "the same of 20 M rows in 20 commits, files of Dredge"),
    "one-bucket": (compaction.run_one_bucket, "full compaction of a lone bucket: two cores against one"),
    "exact": (
        exact.run,
        "compactions of ten commits into a large bucket, with files kept by exact keys, without, and by Java",
    ),
    "row-groups": (
        row_groups.run,
        "row groups copied byte for byte, and compared, against decoding and encoding them; reading a wide footer",
    ),
    "gather": (gathering.run, "compaction of small append files, with large row groups copied and with all decoded"),
    "compact-tiny": (compaction.run_tiny, "compaction of 5,000 level-0 files of 200 rows against 2,500"),
    "compact-text": (
        repeating_text.run_compact,
        "full compaction of text that repeats on one core against the copy limit, and Java on its files",
    ),
    "exact-reads": (
        exact_reads.run,
        "merge-on-read of a large bucket under small commits, with parts read as stored and with everything merged",
    ),
    "read": (
        reading.read,
        "merge-on-read against a plain decode, the real Java reader and pypaimon; a cold process beside pypaimon-rust",
    ),
    "read-text": (repeating_text.run_read, "merge-on-read of text that repeats against a plain decode, one core"),
    "lookup": (lookup.run, "rows by key from a bucket of 20 M rows, footers known; --rows is the rows of the bucket"),
    "write": (writing.run, "ten commits against a plain encode into as many files, Java's writer and pypaimon's"),
    "write-shuffled": (
        writing.run_shuffled,
        "ten commits of random 64-bit keys against a plain encode into as many files",
    ),
    "dynamic": (
        dynamic.run,
        "ten commits into dynamic buckets against fixed ones and Java's writer; loading the index of 10 M keys",
    ),
    "changelog": (
        changelog.run,
        "changelog producers: lookup compaction beside Java's, peak RSS; full compaction with and without changelog",
    ),
    "dv": (
        vectors.run,
        "deletion vectors: reads against a plain decode, compaction of level 0 beside Java's, peak RSS",
    ),
    "cross-partition": (
        dynamic.run_cross,
        "peak RSS of writing 1 M rows whose keys may move into a table of 20 M keys; --rows is the keys of the table",
    ),
    "wide-columns": (
        wide_columns.run,
        "CPU time of writing and compacting 100 rows of 1,000, 2,000 and 10,000 columns; --rows is the rows",
    ),
    "wide-rows": (wide_rows.run, "peak RSS of compacting rows of 50 MB against the bytes of the rows"),
    "inline": (
        inline.run,
        "50 commits of 100,000 rows by writers that compact and expire by themselves, beside Java's",
    ),
    "manifest-reading": (
        manifest_reading.run,
        "decoding a manifest by DataFusion against fastavro; --rows is the entries",
    ),
    "checksums": (checksums.run, "writing, compacting and reading with page checksums against the same without"),
    "write-memory": (writing.memory, "peak RSS of writing one commit of 10 M rows and of 2 M rows"),
    "write-spark": (
        spark_writing.run,
        "ten commits through Spark: processor time, and metadata read by a writing task",
    ),
    "read-spark": (
        spark_reading.run,
        (
            "reads through Spark: a compacted table against Spark's own parquet reader, a filter, the format, ten runs "
            "merged"
        ),
    ),
    "stream": (
        spark_streams.run,
        "50 epochs of 2,000 rows from table to table through Spark; --rows is the rows of an epoch",
    ),
    "spark": (
        spark_writing.run_against_floor,
        "ten commits through Spark against a job that only scans their rows and hands them over to Arrow",
    ),
    "spark-scale": (
        spark_compaction.run,
        (
            "compactions on Spark: 1,000 buckets of 1 MB, a bucket of 50 MB, 20 M rows in 64 buckets, a second core; "
            "--rows is the 20 M"
        ),
    ),
    "merge": (merge.run, "merge engines on one core against the copy limit, polars and DuckDB"),
    "sort": (sorting.run, "sort compaction of an append table along each curve against a plain copy, and its peak RSS"),
    "hash": (hashing.run, "bucket hashing of 10 M rows on one core"),
    "plan": (planning.run, "opening a snapshot of 100,000 files in 200 manifests; --rows is the number of files"),
    "scale": (
        scale.run,
        (
            "what a driver plans for 10 TB in 10,000 buckets and a million files, metadata only; --rows is the number of "
            "files"
        ),
    ),
    "orphans": (
        orphans.run,
        "planning the removal of orphans among a million files, and deleting them; --rows is the number of files",
    ),
    "expiry": (
        expiry.run,
        (
            "expiring 1,900 of 2,000 snapshots with 100,000 files, and deleting what that frees; --rows is the number of "
            "files"
        ),
    ),
    "recovery": (
        recovery.run,
        (
            "health and the first pass of recovery of 900,000 level-0 files, and peak RSS beside a tenth of them; --rows "
            "is the number of files"
        ),
    ),
    "commit": (
        commits.run,
        (
            "commits: of 10,000 files in 1,000 buckets, to a table of 5,000 manifests, and the 99th percentile of small "
            "ones"
        ),
    ),
    "platform": (
        platform.run,
        (
            "loading the code location over 1,000 tables of 20 files (and 10,000), ticks over them, what is stored a day, "
            "pages; --rows is the number of tables"
        ),
    ),
    "first-check": (
        platform.run_first_check,
        (
            "from `dagster dev` over a warehouse that lay there before to its first green check; --rows is the number of "
            "tables"
        ),
    ),
    "launcher": (
        launcher.run,
        (
            "runs that compact a tiny table, with Dagster's own launcher and with Dredge's: seconds until they start and "
            "end; --rows is the number of tables"
        ),
    ),
    "sensor-ticks": (
        sensor_ticks.run,
        "`dagster dev` over 500 tables with 50 due: longest tick of each sensor, and its delay; --rows is the tables",
    ),
    "expectations": (
        expectations.run,
        "the job `expectations` over 46 tiny tables of nine kinds, in a process of its own; --rows is the tables",
    ),
    "java-read": (java_read.run, "the real Java reader on our files against its own files of the same rows"),
    "s3": (
        object_stores.run,
        (
            "merge-on-read and compaction in an object store on loopback against a disk, requests per file, obstore "
            "beside pyarrow.fs"
        ),
    ),
    "rest": (
        rest.run,
        "a warehouse behind Paimon's REST catalog server against a folder: commits, listings, load; --rows is the tables",
    ),
    "iceberg": (
        iceberg.run,
        "Iceberg metadata of a commit that changes ten of 100,000 files: time, and memory beside a tenth of the files",
    ),
    "compact-memory": (memory.run, "peak RSS of compacting a bucket of 3 GiB and of 0.6 GiB in 20 runs"),
    "compact-memory-table": (
        memory.run_table,
        "peak RSS of compacting the largest bucket of 20 M rows and of 2 M rows",
    ),
}
BY_NAME_ONLY = {"compact-large", "compact-memory-table", "sensor-ticks", "spark-scale"}
"""Benchmarks of several minutes, which run only if they are named."""


def main(argv: list[str]) -> int:
    """Run the named benchmarks, or all but `BY_NAME_ONLY`; return exit code 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rows", type=int, default=None, help="rows instead of the benchmark's own number")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="alternating rounds after one warm-up")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    parser.add_argument("--list", action="store_true", help="one benchmark a line, its name first")
    arguments = parser.parse_args(argv)
    if arguments.list:
        for name, (_, about) in BENCHES.items():
            print(f"{name}\t{about}")
        return 0
    unknown = [name for name in arguments.names if name not in BENCHES]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; known: {', '.join(BENCHES)}")
    os.environ.setdefault(INLINE_VARIABLE, "never")  # each benchmark says by itself when it compacts
    results: list[Result] = []
    for name in arguments.names or [name for name in BENCHES if name not in BY_NAME_ONLY]:
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        results += BENCHES[name][0](arguments.rows, arguments.rounds)
    results = with_java_version(results)
    print(table(results))
    if arguments.json is not None:
        wanted = ("bench", "name", "value", "unit", "target", "better", "ok", "low", "high", "note")
        arguments.json.write_text(json.dumps([{k: asdict(r)[k] for k in wanted} for r in results], indent=1) + "\n")
    return 1 if any(r.ok is False for r in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
