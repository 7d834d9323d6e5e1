"""System table `$dredge_ledger`: one row per maintenance run, oldest first; Paimon has no such table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from lsm_core.maintenance.ledger import LedgerEntry, iterate_ledger
from lsm_core.table.system.view import Selection, Version, View, table_of_columns, table_schema

_AT_ONCE: Final = 500
_NUMBERS: Final = (
    *("files_in", "files_out", "files_deleted", "bytes_in", "bytes_out", "bytes_freed"),
    *("rows_in", "rows_out"),
)
LEDGER: Final = table_schema(
    [
        ("run_id", "STRING NOT NULL"),
        ("action", "STRING NOT NULL"),
        ("outcome", "STRING NOT NULL"),
        ("time", "TIMESTAMP(3) NOT NULL"),
        ("who", "STRING"),
        ("approved_by", "STRING"),
        ("plan_hash", "STRING"),
        ("base_snapshot_id", "BIGINT"),
        ("snapshot_id", "BIGINT"),
        *((name, "BIGINT") for name in _NUMBERS),
        ("rows_dropped", "STRING"),
        ("verification", "STRING"),
        ("predicted_seconds", "DOUBLE"),
        ("seconds", "DOUBLE"),
        ("peak_rss_bytes", "BIGINT"),
        ("report", "STRING"),
        ("error", "STRING"),
    ]
)
"""Times are UTC; ``rows_dropped`` (rows by reason) and ``report`` are JSON; missing numbers are null."""


class Ledger(View):
    """`$dredge_ledger`: one row per maintenance run of the table, oldest first.

    The ledger has one file per run. A run whose file cannot be read has the outcome "unreadable".
    """

    timeless = True
    columns = LEDGER

    def read_parts(self, version: Version, selection: Selection) -> Iterator[pa.Table]:
        """Yield the runs in the ledger, oldest first, in parts of some hundred."""
        runs = iterate_ledger(version.store, heads=True, stalls=True)
        while entries := list(islice(runs, _AT_ONCE)):
            yield table_of_columns(
                LEDGER,
                {
                    "run_id": [entry.run_id for entry in entries],
                    "action": [entry.action for entry in entries],
                    "outcome": [entry.outcome for entry in entries],
                    "time": [entry.time_ms for entry in entries],
                    "who": [entry.who or None for entry in entries],
                    "approved_by": [entry.approved_by for entry in entries],
                    "plan_hash": [entry.plan_hash or None for entry in entries],
                    "base_snapshot_id": [entry.base_snapshot for entry in entries],
                    "snapshot_id": [entry.snapshot_id for entry in entries],
                    **{name: [_whole(entry.report.get(name)) for entry in entries] for name in _NUMBERS},
                    "rows_dropped": [_dropped(entry.report) for entry in entries],
                    "verification": [_verification(entry) for entry in entries],
                    "predicted_seconds": [entry.predicted_seconds for entry in entries],
                    "seconds": [entry.seconds for entry in entries],
                    "peak_rss_bytes": [entry.peak_rss_bytes for entry in entries],
                    "report": [_json(entry.report) for entry in entries],
                    "error": [entry.error for entry in entries],
                },
                version.store.ledger_dir,
            )


def _whole(value: Any) -> int | None:
    """Return a value of a report if it is a whole number, or None, because the ledger files are untrusted input."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _dropped(report: Mapping[str, Any]) -> str | None:
    rows = report.get("rows_dropped")
    return _json(rows) if isinstance(rows, dict) else None


def _verification(entry: LedgerEntry) -> str | None:
    """Return the verification that the output of a run passed, or None if the report of the run names none.

    The text has the highest level passed and the setting `dredge.verification` of the run, such as "V2 (full)".
    """
    verification = entry.report.get("verification")
    if isinstance(verification, dict) and isinstance(verification.get("level"), str):
        return f"{verification['level']} ({verification.get('setting', 'full')})"
    return verification if isinstance(verification, str) else None


def _json(value: Mapping[str, Any]) -> str | None:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False) if value else None
