"""Generator of `deploy/grafana/dredge.json`, the Grafana dashboard over the metrics of Dredge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_COLUMNS: Final = 24
"""Width of Grafana's grid."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_OF: Final = '{table=~"$table"}'
_RUNS: Final = '{table=~"$table",action=~"$action"}'


@dataclass(frozen=True)
class Panel:
    """Panel of the dashboard.

    Attributes:
        title: title of the panel.
        description: text of the panel's tooltip: what it shows, and what to do if it is bad.
        queries: (PromQL expression, legend) of each line.
        kind: type of the panel: stat, timeseries, bargauge or table.
        unit: Grafana's unit of the values.
        width: width in columns of 24.
        height: height in rows of the grid.
        steps: (value, colour) from which the value has this colour; the first value is None.
        stacked: whether the lines of a time series are stacked.
    """

    title: str
    description: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    steps: Sequence[tuple[float | None, str]] = ((None, "green"),)
    stacked: bool = False


def _stat(title: str, description: str, query: str, unit: str = "short", bad: float | None = 1) -> Panel:
    """Return a panel with one number, which is red from `bad` on; None for a number that is never bad."""
    steps: tuple[tuple[float | None, str], ...] = ((None, "green"),) if bad is None else ((None, "green"), (bad, "red"))
    return Panel(title, description, ((query, ""),), "stat", unit, 4, 4, steps)


ROWS: Final[Sequence[tuple[str, Sequence[Panel]]]] = (
    (
        "Fleet",
        (
            _stat("Tables", "Tables of the warehouse.", "sum(dredge_tables)", bad=None),
            _stat(
                "Unreadable",
                "Tables that cannot be read; `dredge doctor TABLE` names the cause.",
                f"count(dredge_table_readable{_OF} == 0) or vector(0)",
            ),
            _stat(
                "Compaction due",
                "Tables whose own rules ask for a compaction now.",
                f"count(dredge_table_due_compaction_bytes{_OF} > 0) or vector(0)",
                bad=None,
            ),
            _stat(
                "Overdue for 12 h",
                "Tables with due work whose oldest level-0 file waits for 12 h; see the ticks of sorted_run.",
                f"count(dredge_table_due_compaction_bytes{_OF} > 0 and on(table) "
                f"time() - dredge_table_oldest_level0_timestamp_seconds{_OF} > 12 * 3600) or vector(0)",
            ),
            _stat(
                "Failed runs",
                "Failed maintenance runs of the window (a day); `dredge ledger TABLE` has the errors.",
                'sum(dredge_maintenance_runs{table=~"$table",outcome=~"failed|unknown"}) or vector(0)',
            ),
            _stat(
                "Age of the numbers",
                "Time since the metrics were read. An old number means that the timer or the server stopped.",
                "time() - min(dredge_scrape_timestamp_seconds)",
                "s",
                3600,
            ),
        ),
    ),
    (
        "States and alerts (written by the platform, see DREDGE_METRICS_DIR)",
        (
            Panel(
                "Tables by state",
                "States of the last run of the job warehouse_health; docs/platform.md explains them.",
                (("sum by (state) (dredge_tables_in_state) > 0", "{{state}}"),),
                stacked=True,
            ),
            Panel(
                "Tables that need a person",
                "Tables in a state that lasts until a person acts; their layout pages name the next step.",
                (
                    (
                        (
                            'dredge_table_state{table=~"$table",state=~"corrupt|unreadable|blocked|suspended|failing|'
                            'waiting for approval|needs a person|not loaded"}'
                        ),
                        "{{table}}: {{state}}",
                    ),
                ),
                "bargauge",
            ),
            Panel(
                "Alerts by condition",
                "Current alerts of the sensor watch.",
                (("sum by (condition, severity) (dredge_alerts)", "{{condition}} ({{severity}})"),),
                stacked=True,
            ),
            Panel(
                "Age of states and alerts",
                "Time since the platform wrote them. If it grows, the hourly job or the sensor watch has stopped.",
                (
                    ("time() - max(dredge_states_timestamp_seconds)", "states"),
                    ("time() - max(dredge_alerts_timestamp_seconds)", "alerts"),
                ),
                unit="s",
            ),
        ),
    ),
    (
        "Backlog",
        (
            Panel(
                "Sorted runs of the worst bucket",
                "Reads merge this many sorted runs. The line should stay near num-sorted-run.compaction-trigger.",
                ((f"topk(15, dredge_table_sorted_runs{_OF})", "{{table}}"),),
            ),
            Panel(
                "Level-0 files of the worst bucket",
                "A growing line means that nothing compacts the table. The alert limits are 1,000, 10,000 and 100,000.",
                ((f"topk(15, dredge_table_level0_files{_OF})", "{{table}}"),),
            ),
            Panel(
                "Bytes that wait for compaction",
                "Bytes that the compactions read that the tables' own rules ask for now.",
                ((f"topk(15, dredge_table_due_compaction_bytes{_OF})", "{{table}}"),),
                unit="bytes",
            ),
            Panel(
                "Oldest uncompacted data",
                "Age of the oldest level-0 file.",
                ((f"topk(15, time() - dredge_table_oldest_level0_timestamp_seconds{_OF})", "{{table}}"),),
                unit="s",
            ),
            Panel(
                "Need of maintenance",
                "Score from 0 (healthy) to 100 (act); `dredge status TABLE` gives the reasons.",
                ((f"topk(15, dredge_table_score{_OF})", "{{table}}"),),
            ),
            Panel(
                "Small files of append tables",
                "Small files of the partition that has most. The alert limits are 1,000 and 10,000.",
                ((f"topk(15, dredge_table_small_files{_OF})", "{{table}}"),),
            ),
        ),
    ),
    (
        "Runs and their bytes (of the window of `dredge metrics`, a day)",
        (
            Panel(
                "Runs by action and outcome",
                "Maintenance runs in the ledgers, also those of writers and of people.",
                ((f"sum by (action, outcome) (dredge_maintenance_runs{_RUNS})", "{{action}}: {{outcome}}"),),
                stacked=True,
            ),
            Panel(
                "Seconds by action",
                "Wall-clock seconds of the runs.",
                ((f"sum by (action) (dredge_maintenance_run_seconds{_RUNS})", "{{action}}"),),
                unit="s",
                stacked=True,
            ),
            Panel(
                "Bytes read and written by action",
                "Bytes of data files and manifests.",
                (
                    (f"sum by (action) (dredge_maintenance_read_bytes{_RUNS})", "{{action}}: read"),
                    (f"sum by (action) (dredge_maintenance_written_bytes{_RUNS})", "{{action}}: written"),
                ),
                unit="bytes",
            ),
            Panel(
                "Bytes freed by action",
                "Bytes of files that retention, the trash and orphan removal deleted.",
                ((f"sum by (action) (dredge_maintenance_freed_bytes{_RUNS})", "{{action}}"),),
                unit="bytes",
            ),
            Panel(
                "Prediction error: measured seconds per predicted second",
                "1 is exact. Runs that are done and have a prediction count. A line far from 1 means that budgets "
                "and windows are filled with wrong figures.",
                (
                    (
                        (
                            f"sum by (action) (dredge_maintenance_predicted_run_seconds{_RUNS}) / "
                            f"sum by (action) (dredge_maintenance_predicted_seconds{_RUNS})"
                        ),
                        "{{action}}",
                    ),
                ),
            ),
            Panel(
                "Waits of writers",
                "Seconds that writers waited for their compactions (num-sorted-run.stop-trigger).",
                (
                    (f"topk(15, dredge_write_stall_seconds{_OF} > 0)", "{{table}}: seconds"),
                    (f"topk(15, dredge_write_stalls{_OF} > 0)", "{{table}}: waits"),
                ),
            ),
        ),
    ),
    (
        "Promises (slo in the policy file)",
        (
            Panel(
                "Promises kept now",
                "1 if the table keeps its promise, 0 if it does not.",
                ((f"dredge_promise_met{_OF}", "{{table}}: {{promise}}"),),
            ),
            Panel(
                "Share of the week within the promise, by Prometheus's own samples",
                "Covers the whole week, also the part whose snapshots have expired, if the metrics were scraped.",
                ((f"avg_over_time(dredge_promise_met{_OF}[7d])", "{{table}}: {{promise}}"),),
                "bargauge",
                "percentunit",
            ),
            Panel(
                "Share of the known time within the promise",
                "From the snapshots that still exist. The lowest target of all tables is a line of its own.",
                (
                    (f"dredge_promise_within_ratio{_OF}", "{{table}}: {{promise}}"),
                    (f"min by (promise) (dredge_promise_target_ratio{_OF})", "target: {{promise}}"),
                ),
                unit="percentunit",
            ),
            Panel(
                "Known share of the week",
                "Share of the week for which snapshots still exist. A low share means that only the panel before "
                "covers the week.",
                ((f"dredge_promise_known_ratio{_OF}", "{{table}}: {{promise}}"),),
                unit="percentunit",
            ),
        ),
    ),
    (
        "Cost (prices in the policy file)",
        (
            Panel(
                "Price of the runs of the window, by owner",
                "In the currency of the policy; the window is that of `dredge metrics`, a day.",
                ((f"sum by (owner, currency) (dredge_cost_runs{_OF})", "{{owner}} ({{currency}})"),),
                stacked=True,
            ),
            Panel(
                "Most expensive tables",
                "Price of the runs of the window against the price of the reads that compactions saved.",
                (
                    (f"topk(10, dredge_cost_runs{_OF})", "{{table}}: runs ({{currency}})"),
                    (f"topk(10, dredge_cost_saved_reads{_OF})", "{{table}}: saved reads ({{currency}})"),
                ),
                "bargauge",
            ),
            Panel(
                "Price of storage for 30 days, by owner",
                "Bytes of all holders (`dredge metrics --holds`) times cost.gb_month.",
                (
                    (
                        (
                            f"sum by (owner, currency) (dredge_storage_price{_OF} * on (table) group_left () "
                            'sum by (table) (dredge_table_held_bytes{table=~"$table",kind!="consumer"}) / 1e9)'
                        ),
                        "{{owner}} ({{currency}})",
                    ),
                ),
                stacked=True,
            ),
        ),
    ),
    (
        "Storage and history",
        (
            Panel(
                "Storage by holder",
                "Bytes that only holders of one kind keep; written by `dredge metrics --holds`. See `dredge holds TABLE`. "
                "Consumers hold files through snapshots, which count them already.",
                (('sum by (kind) (dredge_table_held_bytes{table=~"$table",kind!="consumer"})', "{{kind}}"),),
                unit="bytes",
                stacked=True,
            ),
            Panel(
                "Tables that hold most old data",
                "Bytes that are not live, by table and kind of holder.",
                (
                    (
                        'topk(15, sum by (table, kind) (dredge_table_held_bytes{table=~"$table",kind!="live"}))',
                        "{{table}}: {{kind}}",
                    ),
                ),
                "bargauge",
                "bytes",
            ),
            Panel(
                "Live bytes",
                "Bytes of live data files.",
                ((f"topk(15, dredge_table_bytes{_OF})", "{{table}}"),),
                unit="bytes",
            ),
            Panel(
                "Overdue snapshots, tags and consumers",
                "Snapshots and tags that retention released a day ago or longer, and snapshots that a consumer has "
                "yet to read.",
                (
                    (f"topk(10, dredge_table_overdue_snapshots{_OF} > 0)", "{{table}}: overdue snapshots"),
                    (f"topk(10, dredge_table_overdue_tags{_OF} > 0)", "{{table}}: overdue tags"),
                    (f"topk(10, dredge_table_consumer_lag_snapshots{_OF} > 0)", "{{table}}: consumer lag"),
                ),
            ),
        ),
    ),
)
"""Rows of the dashboard: title and panels."""


def dashboard_text() -> str:
    """Return the dashboard as JSON, the content of `deploy/grafana/dredge.json`."""
    dashboard = {
        "uid": "dredge",
        "title": "Dredge: maintenance of Paimon tables",
        "description": "Metrics of `dredge metrics`; their names and labels are in docs/operations.md.",
        "tags": ["dredge", "paimon"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-7d", "to": "now"},
        "timezone": "utc",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": _panels(),
    }
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}},
        _label_variable("table", "Table", "dredge_table_readable"),
        _label_variable("action", "Action", "dredge_maintenance_runs"),
    ]


def _label_variable(label: str, title: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {label})"
    return {
        "name": label,
        "label": title,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": place, "collapsed": False})
        x, y, height = 0, y + 1, 0
        for panel in row:
            if x + panel.width > _COLUMNS:
                x, y, height = 0, y + height, 0
            height = max(height, panel.height)
            panels.append(_panel(panel, len(panels) + 1, x, y))
            x += panel.width
        y += height
    return panels


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {"fillOpacity": 0}
    thresholds = {
        "mode": "absolute",
        "steps": [{"value": value, "color": colour} for value, colour in panel.steps],
    }
    is_instant = panel.kind != "timeseries"
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": thresholds,
                **({} if is_instant else {"custom": custom}),
            },
            "overrides": [],
        },
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if is_instant else {"tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
                **({"instant": True} if is_instant else {"range": True}),
            }
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }
