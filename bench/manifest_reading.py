"""Decoding of a manifest by DataFusion against fastavro, record by record: the reason for a dependency of 123 MB."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.harness import Result, alternate, ratio
from bench.planning import build
from lsm_core.format.manifest import decode_manifest
from lsm_core.metadata import manifests

ENTRIES = 20_000
TARGET = 0.1


def run(entries: int | None, rounds: int) -> list[Result]:
    """Return the ratio of decoding times of one manifest, of an append table and of one with a primary key.

    Args:
        entries: entries of the manifest, or None for `ENTRIES`.
        rounds: rounds of each decoder.
    """
    count = entries or ENTRIES
    results: list[Result] = []
    for primary_key in (False, True):
        with tempfile.TemporaryDirectory(prefix="dredge-bench-") as folder:
            store = build(Path(folder), primary_key, count, 1)
            files = [path for path in Path(store.root, "manifest").glob("manifest-*") if "list" not in path.name]
            data = max(files, key=lambda path: path.stat().st_size).read_bytes()
        rows = decode_manifest(data, "manifest").num_rows
        fast = manifests.fast_decode(data, "manifest", rows)
        assert fast is not None
        assert fast.equals(decode_manifest(data, "manifest"))
        times = alternate(
            {
                "datafusion": lambda data=data, rows=rows: manifests.fast_decode(data, "manifest", rows),
                "fastavro": lambda data=data: decode_manifest(data, "manifest"),
            },
            rounds,
        )
        name = f"{rows} entries of {'a table with a primary key' if primary_key else 'an append table'}: DataFusion / fastavro"
        results += ratio("manifest-reading", name, times["datafusion"], times["fastavro"], TARGET, rows)
    return results
