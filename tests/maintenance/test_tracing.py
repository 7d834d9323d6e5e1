"""Spans of OpenTelemetry: planning, application and verification, with errors and without secrets, at no cost if absent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lsm_core.errors import PlanStale
from lsm_core.maintenance import apply_plan, plan_maintenance, verify_snapshots
from lsm_core.tracing import hide_secrets, in_current_span, record_span
from tests.maintenance.tables import keyed, rows

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Exporter of all spans; the provider is given to this library only."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", lambda name: provider.get_tracer(name))
    yield exporter
    provider.shutdown()


def _named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def _values(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("dredge."): value for name, value in (span.attributes or {}).items()}


def test_a_compaction_has_spans_with_table_action_plan_bytes_and_files(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    table = keyed(tmp_path, bucket="2", write_only="true")
    for number in range(3):
        table.write(rows(range(40), v=number))
    plan = plan_maintenance(table.store, "compact", full=True)
    report = apply_plan(table.store, plan)
    verify_snapshots(table.store, 3, 4)
    (planned,) = _named(spans, "dredge.plan")  # planning inside of planning is the same
    (applied,) = _named(spans, "dredge.apply")
    numbers = _values(planned)
    assert (numbers["table"], numbers["action"], numbers["plan_hash"]) == ("db.t", "compact", plan.hash)
    assert (numbers["files_in"], numbers["bytes_in"]) == (plan.estimate.files_in, plan.estimate.bytes_in) > (0, 0)
    numbers = _values(applied)
    assert (numbers["plan_hash"], numbers["snapshot_id"], numbers["run_id"]) == (plan.hash, 4, report.run_id)
    assert (numbers["files_out"], numbers["bytes_out"]) == (report.files_out, report.bytes_out)  # type: ignore[attr-defined]
    buckets = [span for span in _named(spans, "dredge.verify") if span.parent is not None]
    assert sorted(_values(span)["bucket"] for span in buckets) == [0, 1]
    assert {(_values(span)["level"], _values(span)["files"]) for span in buckets} == {("V2", 1)}
    assert {span.parent.span_id for span in buckets if span.parent} == {applied.context.span_id}  # also from threads
    (compared,) = [span for span in _named(spans, "dredge.verify") if span.parent is None]
    assert _values(compared) | {"ok": True, "level": "V1", "snapshot_a": 3, "snapshot_b": 4} == _values(compared)
    assert all(span.status.is_unset for span in spans.get_finished_spans())


def test_the_table_plans_and_applies_in_spans_of_their_own(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    table = keyed(tmp_path, write_only="true")
    for number in range(3):
        table.write(rows(range(4), v=number))
    table.compact(full=True)
    assert len(_named(spans, "dredge.plan")) == len(_named(spans, "dredge.apply")) == 1


def test_an_error_is_on_the_span_that_it_ended_and_passes_through(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    table = keyed(tmp_path, write_only="true")
    for number in range(3):
        table.write(rows(range(4), v=number))
    plan = plan_maintenance(table.store, "compact", full=True)
    with pytest.raises(PlanStale):
        apply_plan(table.store.copy({"num-sorted-run.compaction-trigger": "9"}), plan)
    (applied,) = _named(spans, "dredge.apply")
    assert not applied.status.is_ok and "PlanStale" in str(applied.status.description)
    (event,) = applied.events
    assert event.name == "exception" and (event.attributes or {})["exception.type"] == "PlanStale"


def test_no_secret_of_an_error_reaches_a_span(spans: InMemorySpanExporter) -> None:
    secrets = "s3://ann:pw1@host/x?sig=pw2 password=pw3, api_key: 'pw4' token=pw5;"
    with pytest.raises(OSError, match="pw1"), record_span("apply", table="db.t"):
        raise OSError(f"{secrets} {'x' * 1000}")
    (span,) = spans.get_finished_spans()
    assert "pw" not in span.to_json() and len(str((span.events[0].attributes or {})["exception.message"])) <= 300
    assert hide_secrets("no commit of table db.t after 3 tries") == "no commit of table db.t after 3 tries"


def test_threads_keep_the_span_only_if_told(spans: InMemorySpanExporter) -> None:
    def work() -> None:
        with record_span("verify"):
            pass

    import threading

    with record_span("apply"):
        for target in (work, in_current_span(work)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    parents = [span.parent for span in _named(spans, "dredge.verify")]
    assert [parent is None for parent in parents] == [True, False]


def test_without_opentelemetry_nothing_is_imported_or_recorded() -> None:
    code = (
        "import sys\n"
        "import lsm_core, lsm_core.maintenance.apply, lsm_core.compact, lsm_core.cli\n"
        "from lsm_core.tracing import in_current_span, record_span\n"
        "with record_span('plan', table='t') as span:\n"
        "    span.set(bytes_in=1)\n"
        "assert in_current_span(len) is len\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=_ROOT)
