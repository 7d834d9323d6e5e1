"""The pieces behind `metadata.manifests`: decoding at speed, pruning, and writing in files of bounded size."""

from __future__ import annotations

from lsm_core.metadata.manifest_parts.decode import fast_decode
from lsm_core.metadata.manifest_parts.prune import keep_rows, prune
from lsm_core.metadata.manifest_parts.write import rolled

__all__ = ["fast_decode", "keep_rows", "prune", "rolled"]
