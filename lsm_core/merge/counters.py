"""Check V0 of a merge: each input row is either returned or dropped for a named reason."""

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
    """Row counts of a merge; pass the same object to several merges to add them up.

    A key counts once for each window that contains it.

    Attributes:
        rows_in: input rows.
        rows_out: result rows.
        dropped: dropped rows by reason.
        keys_folded: keys of which several versions became one new row.
        keys_one_by_one: those keys for which a function worked key by key (bitmaps, sketches, decimals near their
            precision).
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
        """Check that rows in = rows out + rows dropped; call it after a merge.

        Raises:
            VerificationFailed: the counts differ (V0).
        """
        if self.rows_in != self.rows_out + self.rows_dropped:
            detail = f"{self.rows_in} rows in, {self.rows_out} out, dropped {self.dropped}"
            raise VerificationFailed("V0", (detail,))
