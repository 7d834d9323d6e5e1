"""Functions that versions of Paimon answer differently follow the version of the table: kernels and reference, vector by vector and at random."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_core.errors import InvalidData
from lsm_core.maintenance.reference.functions import function_of
from lsm_core.maintenance.reference.values import plain_values
from lsm_core.merge.functions import AGG, LATE, RETRACT, Accumulators, AggregateFunction, GroupError, aggregate_function
from lsm_core.options import PaimonVersion
from lsm_core.types import parse
from tests.merge.one_key import INSERT, answer
from tests.merge.version_vectors import ERROR, NESTED, VECTORS, Vector
from tests.support.samples import examples

VERSIONS = [str(version) for version in PaimonVersion]
OPS = {"agg": AGG, "late": LATE, "retract": RETRACT}


def options_of(function: str, options: dict[str, str], version: str | None) -> dict[str, str]:
    own = {f"fields.a.{key}": value for key, value in options.items()}
    followed = {} if version is None else {"dredge.paimon-version": version}
    return {"merge-engine": "aggregation", "fields.a.aggregate-function": function, **own, **followed}


def by_reference(function: str, kind: str, options: dict[str, str], inputs: list[tuple[str, Any]]) -> Any:
    made, acc = function_of(function, "a", parse(kind), options), None
    steps = {"agg": made.agg, "late": made.agg_reversed, "retract": made.retract}
    try:
        for op, value in inputs:
            acc = steps[op](acc, value)
    except InvalidData:
        return ERROR
    return acc


def by_kernel(made: AggregateFunction, groups: list[list[tuple[str, Any]]], cut: int) -> list[Any]:
    """The fold of each group; what comes after ``cut`` inputs onto the accumulators of what came before."""
    state = None
    for part in ([item[:cut] for item in groups], [item[cut:] for item in groups]):
        inputs = [item for group in part for item in group]
        values = pa.array([value for _, value in inputs], made.arrow_type)
        ops = np.array([OPS[op] for op, _ in inputs], np.int8)
        state = made.fold_ops(values, np.cumsum([0, *map(len, part)]), ops, state)
    assert isinstance(state, Accumulators)
    return list(plain_values(state.values))


def form(value: Any, keyed: bool) -> Any:
    """Rows of a nested table with a key are a set."""
    return Counter(value) if keyed and isinstance(value, list) else value


@pytest.mark.parametrize("version", [None, *VERSIONS])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
def test_a_vector(vector: Vector, version: str | None) -> None:
    options, inputs = options_of(vector.function, vector.options, version), list(vector.inputs)
    wanted, keyed = vector.of(version or "1.4"), "nested-key" in vector.options
    assert form(by_reference(vector.function, vector.type, options, inputs), keyed) == form(wanted, keyed)
    made = aggregate_function(vector.function, vector.type, "a", options)
    for cut in range(len(inputs)):
        if wanted == ERROR:
            with pytest.raises(GroupError, match="null in a field of"):
                by_kernel(made, [inputs], cut)
        else:
            assert form(by_kernel(made, [inputs], cut)[0], keyed) == form(wanted, keyed), f"cut after {cut}"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lone_version_stays_as_it_is_in_every_version(version: str) -> None:
    row = [(1, "a", 1), None, (1, "b", 2)]
    for options in ({"count-limit": "1"}, {"nested-key": "k", "count-limit": "1"}):
        result = options_of("nested_update", options, version)
        assert answer(result, {"a": NESTED}, [(INSERT, row)]) == (row,)
    assert answer(options_of("listagg", {}, version), {"a": "STRING"}, [(INSERT, " ")]) == (" ",)


def test_every_vector_that_differs_has_two_answers_and_some_do_not_differ() -> None:
    differing = [vector.id for vector in VECTORS if vector.until_2_0 != vector.since_2_0]
    assert len({vector.id for vector in VECTORS}) == len(VECTORS)
    assert 15 <= len(differing) < len(VECTORS)


ROWS = st.one_of(
    st.none(),
    st.tuples(st.sampled_from([1, 2, 3, None]), st.sampled_from(["a", "b"]), st.sampled_from([1, 2, None])),
)
ARRAYS = st.one_of(st.none(), st.lists(ROWS, max_size=4))
TEXTS = st.sampled_from([None, "", " ", "\x1c", "\u2003", "\xa0", "a", "b", "a, ,b", ",a", "b,,\t,c"])
LIMITS = st.sampled_from([None, "1", "2", "3", "5"])


@st.composite
def folds(draw: st.DrawFn) -> tuple[str, str, dict[str, str], list[list[tuple[str, Any]]]]:
    """Function, type, options, and inputs of some groups."""
    function = draw(st.sampled_from(["nested_update", "nested_update", "nested_partial_update", "listagg"]))
    options = {}
    takes_back = function == "nested_update"
    if function == "listagg":
        options["distinct"] = draw(st.sampled_from(["true", "false"]))
    else:
        key = draw(st.sampled_from(["k", "k,v", *([""] if takes_back else [])]))
        newer = draw(st.booleans()) if key else False
        options = {
            "nested-key": key,
            "count-limit": draw(LIMITS),
            "nested-key-null-strategy": draw(st.sampled_from([None, "merge", "ignore"])) if newer else None,
            "nested-sequence-field": draw(st.sampled_from([None, "w"])) if newer and takes_back else None,
        }
    ops = st.sampled_from(["agg", "agg", "agg", "late", *(["retract"] if takes_back else [])])
    values = TEXTS if function == "listagg" else ARRAYS
    groups = draw(st.lists(st.lists(st.tuples(ops, values), max_size=7), min_size=1, max_size=5))
    result = {key: value for key, value in options.items() if value}
    return function, "STRING" if function == "listagg" else NESTED, result, groups


@settings(max_examples=examples(250), deadline=None)
@given(folds(), st.sampled_from(VERSIONS), st.integers(0, 7))
def test_kernels_fold_as_the_reference_in_every_version(
    made: tuple[str, str, dict[str, str], list[list[tuple[str, Any]]]], version: str, cut: int
) -> None:
    name, kind, own, groups = made
    options = options_of(name, own, version)
    keyed = "nested-key" in own
    wanted = [form(by_reference(name, kind, options, group), keyed) for group in groups]
    found = by_kernel(aggregate_function(name, kind, "a", options), groups, cut)
    assert [form(value, keyed) for value in found] == wanted


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("limit", ["2", "7", "60"])
def test_a_key_of_thousands_of_versions_is_folded_as_the_reference_does(version: str, limit: str) -> None:
    rng = random.Random(1)

    def row() -> Any:
        return None if rng.random() < 0.05 else (rng.randrange(70) if rng.random() < 0.1 else rng.randrange(5), "a", 1)

    inputs = [("agg", [row() for _ in range(rng.randrange(4))]) for _ in range(4_000)]
    for own in ({"nested-key": "k", "count-limit": limit}, {"count-limit": limit}):
        options = options_of("nested_update", own, version)
        wanted = by_reference("nested_update", NESTED, options, inputs)
        (found,) = by_kernel(aggregate_function("nested_update", NESTED, "a", options), [inputs], 100)
        assert form(found, keyed=len(own) > 1) == form(wanted, keyed=len(own) > 1)
