"""The verdict held against histories: order-free tables never change by merging neighbours first, and every reason has a case."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from datasketches import hll_sketch, tgt_hll_type

from lsm_core.errors import DredgeError
from lsm_core.maintenance.reference import Row, key_order, merge_rows
from lsm_core.maintenance.reference.comparison import ResultComparison
from lsm_core.merge.order_free import order_free
from lsm_core.options import PaimonVersion
from tests.merge.random_histories import (
    History,
    differences,
    expected,
    merged,
    random_grouping,
    random_history,
    to_rows,
    told,
)
from tests.merge.random_tables import FUNCTIONS, NESTED, POOLS, RandomTable

FREE_TRIES = 40
SENSITIVE_TRIES = 3_000
# the other columns must not have reasons of their own
AGGREGATION = {"merge-engine": "aggregation", "fields.default-aggregate-function": "last_value"}
PARTIAL_UPDATE = {"merge-engine": "partial-update"}
GROUP = {**PARTIAL_UPDATE, "fields.g.sequence-group": "a"}
RETRACTS = (0, 0, 2, 1, 3)


@dataclass(frozen=True)
class Case:
    """A table with key k, a column a, and beside it g or s."""

    name: str
    options: Mapping[str, str]
    kind: str = "INT"
    retracts: bool = False

    def table(self) -> RandomTable:
        table = RandomTable(dict(self.options), keys=["k"], kinds=RETRACTS if self.retracts else (0, 2))
        table.column("k", "INT NOT NULL", lambda _: 1)
        function = self.options.get("fields.a.aggregate-function", "")
        table.column("a", self.kind, POOLS.get(function))
        if function == "hll_sketch":
            table.pools["a"] = _sketch
        if self.kind.startswith("DECIMAL") and function == "sum":
            # the promise holds for sums that fit
            table.pools["a"] = lambda rng: rng.choice([Decimal("1.05"), Decimal("-2.50"), Decimal("3.00")])
        for name in ("g", "s", "b"):
            table.column(name, "INT", lambda rng: rng.choice([1, 2, 3]))
        return table


def _sketch(rng: random.Random) -> bytes:
    """Sketches of several sizes and fillings."""
    sketch = hll_sketch(rng.choice([4, 8, 12]), tgt_hll_type.HLL_4)
    start = rng.randrange(3_000)
    for number in range(rng.choice([3, 50, 1_000])):
        sketch.update(start + number)
    return bytes(sketch.serialize_compact())


def _with(function: str, options: Mapping[str, str], **more: str) -> dict[str, str]:
    found = {**options, "fields.a.aggregate-function": function}
    found |= {f"fields.a.{name.replace('_', '-')}": value for name, value in more.items()}
    if function == "nested_partial_update":
        found["fields.a.nested-key"] = "k"
    return found


def _cases() -> Iterator[Case]:
    """Every function with everything that a verdict may hang on."""
    for function, kinds in FUNCTIONS.items():
        for kind in kinds if function in {"sum", "product"} else kinds[:1]:
            name = f"{function} of {kind}"
            yield Case(f"{name}, aggregation", _with(function, AGGREGATION), kind)
            yield Case(f"{name}, by sequence", _with(function, {**AGGREGATION, "sequence.field": "s"}), kind)
            yield Case(f"{name}, in a group", _with(function, GROUP), kind)
            yield Case(f"{name}, with retracts", _with(function, AGGREGATION), kind, retracts=True)
            ignored = _with(function, AGGREGATION, ignore_retract="true")
            yield Case(f"{name}, ignored retracts", ignored, kind, retracts=True)
            yield Case(
                f"{name}, in a group, with retracts", _with(function, GROUP, ignore_retract="true"), kind, retracts=True
            )
    for function in ("nested_update", "nested_partial_update"):
        yield Case(f"{function} by key", _with(function, AGGREGATION, nested_key="k"), NESTED)
    limited = _with("nested_partial_update", AGGREGATION, nested_key="k", count_limit="2")
    yield Case("nested_partial_update by key, limited", limited, NESTED)
    for version in PaimonVersion:
        followed = {**AGGREGATION, "dredge.paimon-version": str(version)}
        limited = _with("nested_update", followed, count_limit="2")
        yield Case(f"nested_update, limited, {version}", limited, NESTED)
        limited = _with("nested_update", followed, nested_key="k", count_limit="2")
        yield Case(f"nested_update by key, limited, {version}", limited, NESTED)
        yield Case(f"listagg, {version}", _with("listagg", followed), "STRING")
    sequenced = _with("nested_update", AGGREGATION, nested_key="k", nested_sequence_field="w")
    yield Case("nested_update by key and sequence", sequenced, NESTED)
    yield Case("listagg distinct", _with("listagg", AGGREGATION, distinct="true"), "STRING")
    yield Case("collect distinct", _with("collect", AGGREGATION, distinct="true"), "ARRAY<INT>")
    yield Case("sum in a group, retracted", _with("sum", GROUP), retracts=True)
    for retracts in (False, True):
        yield Case("deduplicate", {}, retracts=retracts)
        yield Case("deduplicate by sequence", {"sequence.field": "s"}, retracts=retracts)
        yield Case("deduplicate, ignored deletes", {"ignore-delete": "true"}, retracts=retracts)
        yield Case("first-row", {"merge-engine": "first-row", "ignore-delete": "true"}, retracts=retracts)
        yield Case("plain", {**PARTIAL_UPDATE, **({"ignore-delete": "true"} if retracts else {})}, retracts=retracts)
        yield Case("group", GROUP, retracts=retracts)
        yield Case("plain by sequence", {**PARTIAL_UPDATE, "sequence.field": "s"}, retracts=False)
        removing = {**PARTIAL_UPDATE, "partial-update.remove-record-on-delete": "true"}
        yield Case("plain, removing", removing, retracts=retracts)
        yield Case(
            "group, removing", {**GROUP, "partial-update.remove-record-on-sequence-group": "g"}, retracts=retracts
        )
        removing = {**_with("sum", AGGREGATION), "aggregation.remove-record-on-delete": "true"}
        yield Case("aggregation, removing", removing, retracts=retracts)


CASES = list({(c.name, c.retracts): c for c in _cases()}.values())


def _runs(rng: random.Random, table: RandomTable) -> list[list[Row]]:
    """Versions of one key in a few runs; a run holds a key once, and later runs have larger sequence numbers."""
    ordering = [name for name in table.options.get("sequence.field", "").split(",") if name]
    runs = []
    for number in range(rng.choice([2, 3, 3, 4])):
        held = {name: table.value(rng, name) for name in table.names} | {"k": 1}
        values = tuple(held[name] for name in table.names)
        order = tuple(held[name] for name in ordering)
        runs.append([Row((1,), order, number, rng.choice(table.kinds), values, 0, number)])
    return runs


def _answer(table: RandomTable, runs: Sequence[Sequence[Row]], grouping: Sequence[int] = ()) -> Row | None:
    schema, options = table.schema, table.options
    at, parts = 0, []
    for size in grouping:
        parts.append(merge_rows([row for run in runs[at : at + size] for row in run], schema, options))
        at += size
    found = merge_rows([row for run in (parts or runs) for row in run], schema, options, drop_delete=True)
    return found[0] if found else None


def _groupings(count: int) -> Iterator[list[int]]:
    for cuts in itertools.product([False, True], repeat=count - 1):
        sizes = [1]
        for cut in cuts:
            sizes = [*sizes, 1] if cut else [*sizes[:-1], sizes[-1] + 1]
        if 1 < len(sizes) < count:
            yield sizes


def _same(whole: Row | None, parts: Row | None, answers: ResultComparison | None) -> bool:
    """``answers`` None: to the last byte."""
    if whole is None or parts is None:
        return whole is parts
    if answers is None:
        return whole.values == parts.values
    return answers.same(whole._replace(sequence=0), parts._replace(sequence=0))


def contradiction(table: RandomTable, rng: random.Random, answers: ResultComparison | None) -> str | None:
    """A history whose answer hangs on what is merged first, if this one is of that kind."""
    runs = _runs(rng, table)
    try:
        whole = _answer(table, runs)
    except DredgeError:
        return None
    for grouping in _groupings(len(runs)):
        try:
            parts = _answer(table, runs, grouping)
        except DredgeError:
            continue
        if not _same(whole, parts, answers):
            versions = "\n".join(f"  {row.kind} {row.values}" for run in runs for row in run)
            return f"{versions}\nat once {whole and whole.values}\nin groups {grouping} {parts and parts.values}"
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}{' retracts' if case.retracts else ''}")
def test_a_verdict_is_never_contradicted_and_every_reason_has_a_case(case: Case) -> None:
    table = case.table()
    verdict = order_free(table.schema, table.options, has_retracts=case.retracts)
    sketches = case.options.get("fields.a.aggregate-function") == "hll_sketch"
    answers = None if sketches else ResultComparison(table.schema, table.options)
    rng = random.Random(int(os.environ.get("DREDGE_HISTORY_SEED", "1")))
    tries = FREE_TRIES if verdict.ok else SENSITIVE_TRIES
    found = next((text for _ in range(tries) if (text := contradiction(table, rng, answers))), None)
    if verdict.ok:
        assert found is None, f"called order-free: {table.options}\n{found}"
    else:
        assert found is not None, f"no history shows it: {verdict.reasons}"


def test_random_tables_called_order_free_stay_the_same_in_any_grouping() -> None:
    first, judged = int(os.environ.get("DREDGE_HISTORY_SEED", "1")), 0
    for seed in itertools.count(first):
        judged += _stays(seed)
        if judged >= 15:
            break


def _stays(seed: int) -> bool:
    history = random_history(seed)
    table = history.table
    climbing = all(row.sequence >= 10 * age for age, run in enumerate(history.runs) for row in run)
    decimals = any(
        table.types[name].startswith("DECIMAL") and table.options.get(f"fields.{name}.aggregate-function") == "sum"
        for name in table.names
    )
    # sums of decimals that do not fit become null and begin anew, which the verdict leaves out
    if not climbing or decimals or not order_free(table.schema, table.options, has_retracts=len(table.kinds) > 2).ok:
        return False
    history = replace(history, drop_delete=True)
    grouping = random_grouping(random.Random(seed), len(history.runs))
    outcomes, grouped = expected(history), expected(history, grouping)
    sound = {key for key in outcomes if not isinstance(outcomes[key], type) and not isinstance(grouped[key], type)}
    kept = history.only(sound)
    at_once: dict[Any, Row | None] = {key_order(row.key): row for row in to_rows(merged(kept), kept.schema)}
    for key, text in differences(kept, at_once, merged(kept, grouping)).items():
        pytest.fail(told(kept, key, text, f"called order-free, seed {seed}, grouped {grouping}"), pytrace=False)
    return True


def _six() -> Iterator[Any]:
    """The tables of which the real Paimon's minor compaction changes an answer: base, then two small runs."""
    group = {**PARTIAL_UPDATE, "fields.g.sequence-group": "x", "fields.x.aggregate-function": "sum"}
    aggregation = {"merge-engine": "aggregation"}
    last = {**aggregation, "fields.a.aggregate-function": "last_non_null_value"}
    removing = {**PARTIAL_UPDATE, "partial-update.remove-record-on-delete": "true"}
    summed = {**aggregation, "fields.a.aggregate-function": "sum"}
    yield (
        "pu_sequence",
        {**PARTIAL_UPDATE, "sequence.field": "s"},
        "s a b",
        [(0, 2, 20, 1), (0, 1, 10, None), (0, 3, None, 7)],
    )
    yield "pu_remove", removing, "a b", [(0, 1, 2), (3, None, None), (0, None, 5)]
    yield "pu_group_sum", group, "g x", [(0, 1, 10), (3, 2, 4), (0, 3, 1)]
    yield "agg_sequence", {**last, "sequence.field": "s"}, "s a", [(0, 2, 20), (0, 1, 10), (0, 3, None)]
    yield "agg_retract", last, "a", [(0, 1), (1, 1), (2, None)]
    yield "agg_double_sum", summed, "a", [(0, 0.1), (0, 0.2), (0, 0.3)]


@pytest.mark.parametrize(
    ("name", "options", "columns", "versions"), list(_six()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_six_tables_that_java_changes_are_called_order_sensitive(
    name: str, options: dict[str, str], columns: str, versions: list[tuple[Any, ...]]
) -> None:
    table = RandomTable(options, keys=["k"])
    table.column("k", "INT NOT NULL", lambda _: 1)
    for column in columns.split():
        table.column(column, "DOUBLE" if name == "agg_double_sum" else "INT")
    ordering = options.get("sequence.field")
    runs = tuple(
        (Row((1,), (version[1],) if ordering else (), number, version[0], (1, *version[1:]), 0, number),)
        for number, version in enumerate(versions)
    )
    history = History(table, runs, drop_delete=True)
    assert not order_free(table.schema, options, has_retracts=any(version[0] in {1, 3} for version in versions)).ok
    at_once, in_parts = (to_rows(merged(history, grouping), table.schema)[0] for grouping in ((), (1, 2)))
    assert at_once.values != in_parts.values
