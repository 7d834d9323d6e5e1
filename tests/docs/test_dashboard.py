"""The Grafana dashboard asks only for metrics and labels that `dredge metrics` gives."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import promql_parser as promql
import pyarrow as pa
import pytest

from dredge.orchestration.sensors.metric_files import alert_samples, state_samples, write_metrics
from dredge.orchestration.sensors.table_states import evaluate_states
from dredge.orchestration.verbs.report import find_cards
from dredge.platform_core.policies.findings import AlertCondition, Finding, Severity
from dredge.platform_core.policies.policy import Policies
from dredge.platform_core.policies.table_state import TableState
from dredge.platform_core.resources.warehouse import WarehouseResource
from lsm_core import Catalog, Schema
from lsm_core.cli.app import run
from lsm_core.maintenance.metrics import METRICS
from tests.docs.pages import DOCS, ROOT

_DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dredge.json").read_text("utf-8"))
_PANELS = [panel for panel in _DASHBOARD["panels"] if panel["type"] != "row"]
_QUERIES = [target["expr"] for panel in _PANELS for target in panel["targets"]]


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Labels by metric that a real run of `dredge metrics` gives for a warehouse in which much was done."""
    place = tmp_path_factory.mktemp("dashboard")
    catalog = Catalog(place / "wh")
    catalog.create_database("shop")
    fields = pa.schema([pa.field("id", pa.int64(), nullable=False), ("amount", pa.int64())])
    options = {"bucket": "1", "write-only": "true"}
    orders = catalog.create_table("shop.orders", Schema(fields, primary_keys=["id"], options=options))
    for amount in range(4):
        orders.write(pa.table({"id": [1, 2], "amount": [amount, amount]}))
    orders.compact(full=True)
    orders.write(pa.table({"id": [1], "amount": [9]}))
    orders.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=2**42)
    orders.apply(orders.plan_maintenance("trash", now_ms=orders.store.clock.now_ms() + 40 * 86_400_000))
    catalog.create_table("shop.log", Schema(fields, options={"bucket": "-1"})).write(
        pa.table({"id": [1], "amount": [1]})
    )
    target = place / "shop.prom"
    policies = place / "policies.yaml"
    policies.write_text(
        "defaults: {slo: {sorted_runs_p95: 8, freshness: 1 h}, cost: {core_hour: 1, gb_month: 1, reads_a_day: 1}}"
    )
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    groups = {
        group: [EntryPoint(name, value, group) for name, value in entries.items()]
        for group, entries in declared.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DREDGE_POLICIES", str(policies))
        patch.setattr("importlib.metadata.entry_points", lambda group: groups.get(group, []))
        assert run(["metrics", "-w", str(place / "wh"), "--holds", "--output", str(target)]) == 0
    # What the hourly job and the sensor watch write.
    resource = WarehouseResource(path=str(place / "wh"))
    evaluations = evaluate_states(resource, None, find_cards(resource, ())[0], Policies())
    finding = Finding("shop.orders", AlertCondition.STALLED, Severity.ERROR, "text")
    written = {"DREDGE_METRICS_DIR": str(place)}
    write_metrics(resource.names, "states", state_samples(evaluations, 0), written)
    write_metrics(resource.names, "alerts", alert_samples([finding], 0), written)
    text = "".join(file.read_text("utf-8") for file in place.glob("*.prom"))
    labels: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            labels.setdefault(re.match(r"\w+", line)[0], set()).update(re.findall(r'(\w+)="', line))  # type: ignore[index]
    return labels


def _nodes(expression: Any) -> Iterator[Any]:
    yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if (inner := getattr(expression, name, None)) is not None:
            yield from _nodes(inner)
    for inner in getattr(expression, "args", None) or ():
        yield from _nodes(inner)


def _selectors(query: str) -> list[Any]:
    return [node for node in _nodes(promql.parse(query)) if isinstance(node, promql.VectorSelector)]


@pytest.mark.parametrize("query", _QUERIES)
def test_every_query_asks_for_metrics_and_labels_that_exist(query: str, series: dict[str, set[str]]) -> None:
    selectors = _selectors(query)
    assert selectors, "no metric"
    for selector in selectors:
        assert selector.name in series, f"{selector.name} is in no output"
        assert {matcher.name for matcher in selector.matchers.matchers} <= series[selector.name]
    for node in _nodes(promql.parse(query)):
        if isinstance(node, promql.AggregateExpr) and node.modifier:
            inner = [selector for selector in _nodes(node.expr) if isinstance(selector, promql.VectorSelector)]
            assert set(node.modifier.labels) <= {label for selector in inner for label in series[selector.name]}


def test_panels_are_distinct_and_fit_the_grid() -> None:
    panels = _DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    for panel in _PANELS:
        assert panel["description"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_variables_of_queries_and_legends_are_declared(series: dict[str, set[str]]) -> None:
    variables = {variable["name"]: variable for variable in _DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    used = set(re.findall(r"\$(\w+)", " ".join(_QUERIES)))
    assert used <= set(variables)
    for name in used:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]["definition"]).groups()  # type: ignore[union-attr]
        assert label in series[metric]
    for panel in _PANELS:
        for target in panel["targets"]:
            names = {name for selector in _selectors(target["expr"]) for name in series[selector.name]}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= names


def test_the_states_that_need_a_person_are_those_of_the_platform() -> None:
    (query,) = [query for query in _QUERIES if "dredge_table_state{" in query]
    (selector,) = _selectors(query)
    (states,) = [matcher.value for matcher in selector.matchers.matchers if matcher.name == "state"]
    assert states.split("|") == [state.value for state in TableState if state.needs_attention]


def test_every_metric_is_on_the_page() -> None:
    text = (DOCS / "operations.md").read_text("utf-8")
    assert [name for name in METRICS if f"`{name}`" not in text] == []


def test_a_wrong_query_is_found(series: dict[str, set[str]]) -> None:
    with pytest.raises(AssertionError):
        test_every_query_asks_for_metrics_and_labels_that_exist("dredge_no_such_metric", series)
    with pytest.raises(AssertionError):
        test_every_query_asks_for_metrics_and_labels_that_exist('dredge_tables{colour="red"}', series)
    with pytest.raises(AssertionError):
        test_every_query_asks_for_metrics_and_labels_that_exist("sum by (colour) (dredge_tables)", series)
