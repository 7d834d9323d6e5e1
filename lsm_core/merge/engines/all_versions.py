"""No merging at all: every version, in merge order. Passes over many runs sort with it what must be folded only once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lsm_core.merge.engines.fold import FoldInput, FoldOutput
from lsm_core.merge.rows import emit
from lsm_core.merge.sort_key import KeySpec


@dataclass(frozen=True)
class AllVersions:
    """Passes every row on. Folding some runs of a key first can change what engines that build rows make of it."""

    name: ClassVar[str] = "all-versions"
    key_spec: KeySpec

    def effective_columns(self, read: Sequence[str]) -> tuple[str, ...]:
        """The columns read, and the user's sequence fields, which decide the order."""
        return (*read, *(column for column in self.key_spec.sequence_columns if column not in read))

    def fold(self, window: FoldInput) -> FoldOutput:
        """All rows in merge order; no key stays open, as windows give the versions of a key in order."""
        return FoldOutput(emit(window.rows, window.groups.order), None)
