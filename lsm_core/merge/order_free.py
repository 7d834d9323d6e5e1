"""Whether a table's answers depend on which of its runs are merged first: if not, any unit may be compacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lsm_core.format.schema import TableSchema
from lsm_core.merge.engines.deduplicate import Deduplicate
from lsm_core.options import TableOptions


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ok``: merging is order-free; otherwise ``reasons`` say what makes it depend on the order."""

    ok: bool
    reasons: tuple[str, ...] = ()


def order_free(schema: TableSchema, options: Mapping[str, str], has_retracts: bool) -> Verdict:
    """Judge a primary-key table by its merge engine.

    Deduplicate keeps the greatest row of one total order, so merging some runs first changes nothing, with retracts or
    without. Engines that Dredge does not merge yet are never called order-free.
    """
    engine = TableOptions(options).merge_engine
    if engine == Deduplicate.name:
        return Verdict(ok=True)
    retracts = " with retracts" if has_retracts else ""
    keys = ", ".join(schema.primary_keys)
    return Verdict(ok=False, reasons=(f"merge engine {engine}{retracts} (key {keys}) is not known to be order-free",))
