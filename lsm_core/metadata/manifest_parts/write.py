"""Cutting entries into manifests of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lsm_core.format.manifest import encode_manifest

_FIRST_TRY = 8_192  # entries encoded before the size of one is known
_SLACK = 1.2


def rolled(entries: pa.Table, target: int) -> Iterator[tuple[pa.Table, bytes]]:
    """Yield consecutive slices with their encoded form, each of about ``target`` bytes (order is kept)."""
    at, rows = 0, _FIRST_TRY
    while at < entries.num_rows:
        part = entries.slice(at, rows)
        data = encode_manifest(part)
        fitting = max(1, int(target * part.num_rows / len(data)))
        too_much = len(data) > target * _SLACK and fitting < part.num_rows
        too_little = at == 0 and rows == _FIRST_TRY < min(fitting, entries.num_rows)
        if too_much or too_little:
            rows = fitting
            continue
        yield part, data
        at += part.num_rows
        rows = fitting
