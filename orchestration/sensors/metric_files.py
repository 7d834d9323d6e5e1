"""Metrics that only the platform knows, as files for Prometheus's textfile collector: states of tables, and alerts."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from dredge.orchestration.sensors.table_states import TableEvaluation
from dredge.platform_core import names
from dredge.platform_core.policies.findings import Finding
from dredge.platform_core.policies.table_state import TableState
from lsm_core.maintenance.metrics import Sample, format_metrics

METRICS_VARIABLE: Final = "DREDGE_METRICS_DIR"
_LOG = logging.getLogger(__name__)
_MOST_ALERTS: Final = 1_000
"""Most alerts with a series of their own; all alerts are counted."""


def state_samples(evaluations: Sequence[TableEvaluation], now_ms: int) -> Iterator[Sample]:
    """Yield the number of tables in each state, and the state of each table.

    Args:
        evaluations: result of `evaluate_states`.
        now_ms: time of the evaluation (epoch ms).
    """
    yield Sample("dredge_states_timestamp_seconds", now_ms / 1000)
    counts = Counter(item.status.state for item in evaluations)
    for state in TableState:
        yield Sample("dredge_tables_in_state", counts[state], {"state": state.value})
    for item in evaluations:
        yield Sample("dredge_table_state", 1, {"table": item.name, "state": item.status.state.value})


def alert_samples(findings: Sequence[Finding], now_ms: int) -> Iterator[Sample]:
    """Yield the number of alerts by condition and severity, and the first alerts one by one.

    Args:
        findings: current findings of the sensor `watch`.
        now_ms: time of the findings (epoch ms).
    """
    yield Sample("dredge_alerts_timestamp_seconds", now_ms / 1000)
    counts = Counter((finding.trouble.value, finding.severity.value) for finding in findings)
    for (condition, severity), count in sorted(counts.items()):
        yield Sample("dredge_alerts", count, {"condition": condition, "severity": severity})
    series = {(finding.subject, finding.trouble.value, finding.severity.value) for finding in findings}
    for subject, condition, severity in sorted(series)[:_MOST_ALERTS]:
        yield Sample("dredge_alert", 1, {"subject": subject, "condition": condition, "severity": severity})


def write_metrics(
    warehouse_names: names.WarehouseNames, subject: str, samples: Iterator[Sample], environment: Mapping[str, str]
) -> Path | None:
    """Write samples into the folder ``DREDGE_METRICS_DIR``, as the file ``dredge_<subject>_<warehouse>.prom``.

    A failure is logged: metrics must not stop a sensor or a job.

    Args:
        warehouse_names: names of the warehouse in Dagster.
        subject: subject of the samples, "states" or "alerts".
        samples: metric values with labels.
        environment: environment variables.

    Returns:
        The file, or None if the variable is not set or the file cannot be written.
    """
    folder = environment.get(METRICS_VARIABLE, "").strip()
    if not folder:
        return None
    file = Path(folder).expanduser() / f"dredge_{subject}_{warehouse_names.first}.prom"
    draft = file.with_name(f".{file.name}.{os.getpid()}")  # the collector reads only names that end in .prom
    try:
        draft.write_text(format_metrics(samples), encoding="utf-8")
        draft.chmod(0o644)  # the collector runs as another user
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        _LOG.warning("%s: the metrics of %s cannot be written into %s: %s", METRICS_VARIABLE, subject, file, error)
        return None
    return file
