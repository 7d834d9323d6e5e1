"""One big bucket as several tasks: where its keys are cut, and how the outcomes of the pieces become one again."""

from __future__ import annotations

from lsm_core.compact.pieces.cut import cut_task, pieces_wanted, rewritten_bytes
from lsm_core.compact.pieces.join import join

__all__ = ["cut_task", "join", "pieces_wanted", "rewritten_bytes"]
