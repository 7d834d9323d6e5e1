"""V0 of a merge: every row that goes in comes out or is dropped for a named reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from lsm_core.errors import VerificationFailed

OLDER_VERSION = "older-version"
DELETE_AT_BOTTOM = "delete-at-bottom"
IGNORED_DELETE = "ignored-delete"
EXPIRED = "expired"
KNOWN_ABOVE = "known-above"


@dataclass
class MergeCounters:
    """Rows in, rows out, and rows dropped by reason; add merges up by passing the same object to each.

    ``keys_folded``: keys of which several versions became one new row; ``keys_one_by_one``: those among them for which some
    function went key by key (bitmaps, sketches, decimals near their precision). A key counts once a window that it lies in.
    """

    rows_in: int = 0
    rows_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    keys_folded: int = 0
    keys_one_by_one: int = 0

    def drop(self, reason: str, rows: int) -> None:
        """Count ``rows`` dropped for ``reason``."""
        if rows:
            self.dropped[reason] = self.dropped.get(reason, 0) + rows

    @property
    def rows_dropped(self) -> int:
        """Rows dropped for any reason."""
        return sum(self.dropped.values())

    def check(self) -> None:
        """Raise VerificationFailed (V0) unless rows in = rows out + rows dropped. Call it when a merge is done."""
        if self.rows_in != self.rows_out + self.rows_dropped:
            story = f"{self.rows_in} rows in, {self.rows_out} out, dropped {self.dropped}"
            raise VerificationFailed("V0", (story,))
