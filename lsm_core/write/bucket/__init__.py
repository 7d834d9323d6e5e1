"""Which bucket a row belongs to: one module per bucket mode."""

from __future__ import annotations

from lsm_core.write.bucket.fixed import route

__all__ = ["route"]
