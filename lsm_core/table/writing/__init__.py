"""Writers and commits as callers hold them: one batch at a time, or a long-lived stream of numbered commits."""

from __future__ import annotations

from lsm_core.table.writing.batch import BatchCommit, BatchWrite, write_once
from lsm_core.table.writing.streaming import StreamCommit, StreamWrite

__all__ = ["BatchCommit", "BatchWrite", "StreamCommit", "StreamWrite", "write_once"]
