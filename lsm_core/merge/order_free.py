"""Whether a table's answers depend on which of its runs are merged first: if not, any unit may be compacted.

A merged row stands for several versions and meets older rows later. That changes nothing only if folding is associative over
neighbours in age, and Paimon's engines are not always that (see `Verdict.reasons`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lsm_core.format.schema import TableSchema
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.merge.engines.expire_rows import RowExpiry
from lsm_core.merge.engines.first_row import FirstRow
from lsm_core.merge.function import MergeFunction, merge_function
from lsm_core.options import PaimonVersion
from lsm_core.types import TypeRoot

if TYPE_CHECKING:
    from lsm_core.merge.engines.aggregation import Aggregation
    from lsm_core.merge.engines.partial_update import PartialUpdate
    from lsm_core.merge.functions import AggregateFunction

_FLOATS: Final = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_COMMUTING: Final = frozenset({"sum", "product", "max", "min", "bool_and", "bool_or", "rbm32", "rbm64", "theta_sketch"})
"""The order of their inputs does not matter, except to sums of floats and products that round."""
_IN_ARRIVAL_ORDER: Final = frozenset(
    {
        "last_value",
        "last_non_null_value",
        "first_value",
        "first_non_null_value",
        "primary-key",
        "listagg",
        "collect",
        "merge_map",
        "nested_update",
        "nested_partial_update",
    }
)
"""Folding neighbours first gives the same, as long as inputs are folded in the order in which they arrive."""


_CHOOSING: Final = frozenset(
    {
        "max",
        "min",
        "last_value",
        "last_non_null_value",
        "first_value",
        "first_non_null_value",
        "first_not_null_value",
        "primary-key",
    }
)
"""Their result is one of their inputs, or null: a row merged of rows that are not over is not over."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ok``: merging is order-free; otherwise ``reasons`` say what makes it depend on the order."""

    ok: bool
    reasons: tuple[str, ...] = ()


def order_free(
    schema: TableSchema, options: Mapping[str, str], has_retracts: bool, table: str = "", has_expired: bool = True
) -> Verdict:
    """Judge a primary-key table by its merge engine, its functions, and whether its files hold retracts or expired rows.

    With record-level expiry a compaction leaves out rows that are over (``has_expired``: some may be), whatever they are:
    dropped in a part of the runs alone, a newer version or a delete uncovers the older version that it had replaced, over or
    not, and readers, who expire nothing, see that one until it is compacted too. In a closed unit all versions of a key expire
    together, so that what is read is the answer of before or the one at the compaction's clock, never a third.

    An order-free verdict promises that merging neighbouring runs first never changes an answer, as long as numbers fit their
    types: sums and products of integers that do not raise wherever they are met, and sums of decimals that do not become
    null, from which they begin anew. Raises InvalidOption as `merge_function` does.
    """
    function = merge_function(schema, options, table)
    reasons = tuple(_reasons(function, RowExpiry.of(schema, options, table), has_retracts, has_expired))
    return Verdict(not reasons, reasons)


def _reasons(function: MergeFunction, expiry: RowExpiry | None, has_retracts: bool, has_expired: bool) -> Iterator[str]:
    functions: Mapping[str, AggregateFunction] = {}
    if not isinstance(function, (Deduplicate, FirstRow)):
        # Those two take the greatest (smallest) row of one total order, whatever the order of merging. The others' modules are
        # there already, as one of them is the table's.
        from lsm_core.merge.engines.aggregation import Aggregation
        from lsm_core.merge.engines.partial_update import PartialUpdate

        if isinstance(function, PartialUpdate):
            functions = function.functions
            yield from _of_partial_update(function, has_retracts)
        elif isinstance(function, Aggregation):
            functions = function.functions
            yield from _of_aggregation(function, has_retracts)
        else:
            yield f"merge engine {function.name} is not known to be order-free"
    if expiry is None:
        return
    if has_expired:
        yield "record-level expiry: a row that is over, left out alone, uncovers the older version that it replaced"
    made = functions.get(expiry.field)
    if made is not None and made.name not in _CHOOSING:
        yield f"column '{expiry.field}': {made.name} makes times that no row had, and these may be over"


def _of_partial_update(function: PartialUpdate, has_retracts: bool) -> Iterator[str]:
    if function.key_spec.sequence_columns:
        fields = ", ".join(function.key_spec.sequence_columns)
        yield f"sequence.field {fields}: a merged row carries values of older rows under its newest sequence"
    if has_retracts and function.remove_on_delete:
        yield "partial-update.remove-record-on-delete: a delete merged with later rows does not reach older rows"
    elif has_retracts:
        yield "retracts: the first row of a merge starts it with all of its values, and merged rows hide that they retract"
    grouped = {name for group in function.groups for name in group.protected}
    for column, aggregate in function.functions.items():
        if column not in grouped:
            continue
        yield from _inexact(column, aggregate)
        # late elements of `collect` are appended like any others
        if aggregate.name not in _COMMUTING | {"last_value", "collect"}:
            yield f"column '{column}': {aggregate.name} in a sequence group folds late rows where they arrive"


def _of_aggregation(function: Aggregation, has_retracts: bool) -> Iterator[str]:
    if has_retracts and function.remove_on_delete:
        yield "aggregation.remove-record-on-delete: a delete merged with later rows does not reach older rows"
    sequences = function.key_spec.sequence_columns
    for column, aggregate in function.functions.items():
        yield from _inexact(column, aggregate)
        if aggregate.name not in _COMMUTING | _IN_ARRIVAL_ORDER:
            yield f"column '{column}': {aggregate.name} is not known to be order-free"
        elif sequences and aggregate.name not in _COMMUTING | {"last_value", "primary-key"}:
            yield f"column '{column}': {aggregate.name} folds by sequence.field, under which a merged row has one place only"
        if aggregate.name == "nested_update" and aggregate.options.text("count-limit") is not None:
            said = f"column '{column}': {aggregate.name} with count-limit"
            if aggregate.options.text("nested-key"):
                yield f"{said} leaves out updates of keys that only older rows have"
            elif not aggregate.options.version.at_least(PaimonVersion.V2_0):
                yield f"{said} counts rows that are null until merging leaves them out (until 2.0)"
        if not has_retracts:
            continue
        # Retracts that are merged before what they take back has arrived are lost.
        if aggregate.ignore_retract:
            if aggregate.name in {"last_value", "first_value"}:  # nothing but ignored retracts is an insert of null
                yield f"column '{column}': rows of ignored retracts alone become null, which {aggregate.name} takes for a value"
        elif aggregate.supports_retract and aggregate.name not in {"sum", "last_value", "primary-key"}:
            # where retracts are refused no answer can change
            yield f"column '{column}': {aggregate.name} cannot take back what older rows hold"


def _inexact(column: str, function: AggregateFunction) -> Iterator[str]:
    if function.name == "sum" and function.type.root in _FLOATS:
        yield f"column '{column}': sums of {function.type} differ in their last bits"
    if function.name == "hll_sketch":
        yield f"column '{column}': HLL sketches keep size and estimators of what was merged first"
    if function.name == "product" and function.type.root in (*_FLOATS, TypeRoot.DECIMAL):
        yield f"column '{column}': products of {function.type} round, and overflow, at other steps"
