"""Parquet files made and read as bytes."""

from __future__ import annotations

import pyarrow as pa

from lsm_core.files.formats.parquet_footer import Footer, parse_footer, stored_footer


def footer_of(data: bytes) -> Footer:
    """The footer of a whole file."""
    return parse_footer(stored_footer(pa.BufferReader(data), "x.parquet"), "x.parquet", len(data))
