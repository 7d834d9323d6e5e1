"""What ops hand to each other: JSON text of the engine's own reports, and the facts of the run they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from lsm_core.maintenance import CompactionReport, Declined, Verification


@dataclass(frozen=True)
class Verdict:
    """What the verify op found: ``ok``, the ``level`` of the comparison, and one sentence."""

    ok: bool
    level: str
    text: str

    def to_json(self) -> str:
        """Return the verdict as JSON."""
        return json.dumps({"ok": self.ok, "level": self.level, "text": self.text})

    @staticmethod
    def from_json(text: str) -> Verdict:
        """Read back what :meth:`to_json` wrote."""
        return Verdict(**json.loads(text))


def report_to_json(report: CompactionReport) -> str:
    """Return a compaction report as JSON."""
    return json.dumps(report.to_object())


def report_from_json(text: str) -> CompactionReport:
    """Read back what :func:`report_to_json` wrote."""
    value: dict[str, Any] = json.loads(text)
    value["verification"] = Verification(**value["verification"])
    value["declined"] = tuple(Declined(**item) for item in value["declined"])
    return CompactionReport(**value)


def partition_of(context: dg.OpExecutionContext | dg.AssetCheckExecutionContext) -> str | None:
    """Return the run's partition, None for tables without partitions."""
    return context.partition_key if context.has_partition_key else None


def settings_of(context: dg.OpExecutionContext) -> Mapping[str, Any]:
    """Return the op's configuration: names and hashes only."""
    config: Mapping[str, Any] = context.op_config or {}
    return config


def say(context: dg.OpExecutionContext, text: str) -> None:
    """Put a line into the run's log."""
    context.log.info(text)
