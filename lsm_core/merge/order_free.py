"""Test whether a table's merge results are independent of the order in which sorted runs are merged.

If the order has no effect, any compaction unit may be compacted. A compaction merges some versions of a key first, and
their result with older rows later. This gives the same rows only if merging is associative over adjacent versions.
Paimon's merge engines are not always associative (see `OrderVerdict.reasons`).
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
"""Aggregate functions whose inputs may come in any order, except sums of floats and products that round."""
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
"""Aggregate functions that may fold adjacent inputs first, if all inputs are folded in arrival order."""


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
"""Aggregate functions whose result is an input or null, so merging unexpired rows never gives an expired row."""


@dataclass(frozen=True, slots=True)
class OrderVerdict:
    """Result of :func:`order_free`.

    Attributes:
        ok: whether merge results are independent of the order in which runs are merged.
        reasons: the reasons why merge results depend on that order; empty if ``ok``.
    """

    ok: bool
    reasons: tuple[str, ...] = ()


def order_free(
    schema: TableSchema, options: Mapping[str, str], has_retracts: bool, table: str = "", has_expired: bool = True
) -> OrderVerdict:
    """Return whether the merge results of a primary-key table are independent of the order in which runs are merged.

    With record-level expiry, a compaction drops expired rows, including deletes. If only some runs are compacted, a
    dropped row makes an older version of its key visible until that version is compacted too. Readers expire no rows.
    A compaction that reads all versions of its keys expires these versions together. Reads then return the result from
    before the compaction, or the result at the time of the compaction.

    The result "order-free" means that merging neighbouring runs first never changes a result, as long as no result
    leaves the range of its type. An integer sum or product beyond the range raises an error. A decimal sum beyond its
    precision becomes null, and the next input starts a new sum.

    Args:
        schema: schema of the table.
        options: options of the table.
        has_retracts: whether the table's files may hold -U or -D rows.
        table: name of the table, for errors.
        has_expired: whether some rows may be expired.

    Raises:
        InvalidOption: the errors of `merge_function`.
    """
    function = merge_function(schema, options, table)
    reason_texts = tuple(_reasons(function, RowExpiry.of(schema, options, table), has_retracts, has_expired))
    return OrderVerdict(not reason_texts, reason_texts)


def _reasons(function: MergeFunction, expiry: RowExpiry | None, has_retracts: bool, has_expired: bool) -> Iterator[str]:
    functions: Mapping[str, AggregateFunction] = {}
    if not isinstance(function, (Deduplicate, FirstRow)):
        # Deduplicate and first-row choose the greatest (smallest) row of one total order in any order of merging.
        # The modules of the other engines are already imported, because the table uses one of them.
        from lsm_core.merge.engines.aggregation import Aggregation
        from lsm_core.merge.engines.partial_update import PartialUpdate

        if isinstance(function, PartialUpdate):
            functions = function.functions
            yield from _partial_update_reasons(function, has_retracts)
        elif isinstance(function, Aggregation):
            functions = function.functions
            yield from _aggregation_reasons(function, has_retracts)
        else:
            yield f"merge engine {function.name} is not known to be order-free"
    if expiry is None:
        return
    if has_expired:
        yield "record-level expiry: an expired row, dropped alone, uncovers the older version that it replaced"
    time_function = functions.get(expiry.field)
    if time_function is not None and time_function.name not in _CHOOSING:
        yield f"column '{expiry.field}': {time_function.name} creates times that no row had, and these may be expired"


def _partial_update_reasons(function: PartialUpdate, has_retracts: bool) -> Iterator[str]:
    if function.key_spec.sequence_columns:
        fields = ", ".join(function.key_spec.sequence_columns)
        yield f"sequence.field {fields}: a merged row carries values of older rows under its newest sequence"
    if has_retracts and function.remove_on_delete:
        yield "partial-update.remove-record-on-delete: a delete merged with later rows does not reach older rows"
    elif has_retracts:
        yield (
            "retracts: the first row of a merge starts it with all of its values, "
            "and merged rows hide that they retract"
        )
    grouped = {name for group in function.groups for name in group.protected}
    for column, aggregate in function.functions.items():
        if column not in grouped:
            continue
        yield from _inexact_reasons(column, aggregate)
        # late elements of `collect` are appended like any others
        if aggregate.name not in _COMMUTING | {"last_value", "collect"}:
            yield f"column '{column}': {aggregate.name} in a sequence group folds late rows where they arrive"


def _aggregation_reasons(function: Aggregation, has_retracts: bool) -> Iterator[str]:
    if has_retracts and function.remove_on_delete:
        yield "aggregation.remove-record-on-delete: a delete merged with later rows does not reach older rows"
    sequences = function.key_spec.sequence_columns
    for column, aggregate in function.functions.items():
        yield from _inexact_reasons(column, aggregate)
        if aggregate.name not in _COMMUTING | _IN_ARRIVAL_ORDER:
            yield f"column '{column}': {aggregate.name} is not known to be order-free"
        elif sequences and aggregate.name not in _COMMUTING | {"last_value", "primary-key"}:
            yield (
                f"column '{column}': {aggregate.name} folds by sequence.field, "
                "under which a merged row has one place only"
            )
        if aggregate.name == "nested_update" and aggregate.options.text("count-limit") is not None:
            prefix = f"column '{column}': {aggregate.name} with count-limit"
            if aggregate.options.text("nested-key"):
                yield f"{prefix} leaves out updates of keys that only older rows have"
            elif not aggregate.options.version.at_least(PaimonVersion.V2_0):
                yield f"{prefix} counts rows that are null until merging leaves them out (until 2.0)"
        if not has_retracts:
            continue
        # Retracts that are merged before the rows that they retract are lost.
        if aggregate.ignore_retract:
            if aggregate.name in {"last_value", "first_value"}:  # only ignored retracts act as an insert of null
                yield (
                    f"column '{column}': rows of ignored retracts alone become null, "
                    f"which {aggregate.name} uses as a value"
                )
        elif aggregate.supports_retract and aggregate.name not in {"sum", "last_value", "primary-key"}:
            # where retracts are refused no answer can change
            yield f"column '{column}': {aggregate.name} cannot retract values of older rows"


def _inexact_reasons(column: str, function: AggregateFunction) -> Iterator[str]:
    if function.name == "sum" and function.type.root in _FLOATS:
        yield f"column '{column}': sums of {function.type} differ in their last bits"
    if function.name == "hll_sketch":
        yield f"column '{column}': HLL sketches keep size and estimators of the first merged sketch"
    if function.name == "product" and function.type.root in (*_FLOATS, TypeRoot.DECIMAL):
        yield f"column '{column}': products of {function.type} round, and overflow, at other steps"
