"""File formats: one module a format, each with the same two halves, a sink and a source."""

from __future__ import annotations

from lsm_core.files.formats.parquet import ParquetSink, ParquetSource

__all__ = ["ParquetSink", "ParquetSource"]
