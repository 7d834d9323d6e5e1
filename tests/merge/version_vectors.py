"""Aggregations of one column whose results differ between Paimon 1.4 and 2.0, with both results.

Sources: for 1.4, the byte code of 1.4.2, which tests/interop executes with random histories. For 2.0, the public source
of Paimon and pypaimon 2.1, which tests/interop executes for each of these vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

AGG, LATE, RETRACT = "agg", "late", "retract"
NESTED: Final = "ARRAY<ROW<k INT, v STRING, w INT>>"
ERROR: Final = "error"


@dataclass(frozen=True)
class Vector:
    """Inputs of the column ``a``, aggregated in order, beginning with no accumulator.

    Attributes:
        id: name of the vector.
        function: aggregate function.
        options: options of the function, without the prefix `fields.a.`.
        inputs: operations ("agg", "late" or "retract") with their values.
        until_2_0: result of versions before 2.0, or "error".
        since_2_0: result of versions from 2.0, or "error".
    """

    id: str
    function: str
    options: dict[str, str]
    inputs: tuple[tuple[str, Any], ...]
    until_2_0: Any
    since_2_0: Any

    @property
    def type(self) -> str:
        return "STRING" if self.function == "listagg" else NESTED

    def of(self, version: str) -> Any:
        """Return the result of a version."""
        return self.until_2_0 if version == "1.4" else self.since_2_0


def _texts(id_: str, inputs: list[Any], until: Any, since: Any, distinct: bool = False) -> Vector:
    given = tuple(value if isinstance(value, tuple) else (AGG, value) for value in inputs)
    return Vector(id_, "listagg", {"distinct": "true"} if distinct else {}, given, until, since)


def _nested(
    id_: str, options: str, inputs: list[Any], until: Any, since: Any, function: str = "nested_update"
) -> Vector:
    """Return a vector; ``options`` like "nested-key=k count-limit=2"; an input without operation is aggregated."""
    given = tuple(value if isinstance(value, tuple) else (AGG, value) for value in inputs)
    return Vector(id_, function, dict(part.split("=") for part in options.split()), given, until, since)


A, B, C, D = (1, "a", 1), (2, "b", 2), (3, "c", 3), (4, "d", 4)
A2, B2 = (1, "new", 9), (2, "new", 9)
NO_KEY, OTHER = (None, "x", 7), (None, "y", 8)
LIMIT, KEYED = "count-limit=2", "nested-key=k count-limit=2"
IGNORE, REFUSE = "nested-key=k nested-key-null-strategy=ignore", "nested-key=k nested-key-null-strategy=error"

VECTORS: Final = (
    _texts("blank-between", ["a", " ", "b"], "a, ,b", "a,b"),
    _texts("blank-first", [" ", "a"], " ,a", "a"),
    _texts("empty-texts", ["", "a", "", "b"], "a,b", "a,b"),
    _texts("nothing-but-blank", ["\t", None], "\t", None),
    _texts("nothing-but-empty", ["", None, ""], "", None),
    _texts("blank-then-null-accumulator", [None, " ", None], " ", None),
    _texts("blank-of-other-scripts", ["a", "\u3000\x1c", "b"], "a,\u3000\x1c,b", "a,b"),
    _texts("spaces-that-do-not-break", ["a", "\xa0", "b"], "a,\xa0,b", "a,\xa0,b"),
    _texts("distinct-blank-parts", ["a", "b, ,a,,c"], "a,b, ,c", "a,b,c", distinct=True),
    _texts("late-blank-accumulator", [(LATE, " "), "a"], " ,a", "a"),
    _texts("late-blank-stays", [(LATE, " "), None], " ", " "),
    _texts("late-null-wipes-blank", [(LATE, " "), (LATE, None)], " ", None),
    _texts("late-blank-before-text", ["a", (LATE, " ")], " ,a", "a"),
    # a limit, without key
    _nested("limit-first-array", LIMIT, [[A, B, C]], [A, B, C], [A, B]),
    _nested("limit-first-array-full", LIMIT, [[A, B, C], [D]], [A, B, C], [A, B]),
    _nested("limit-null-rows-counted", LIMIT, [[A, None], [B]], [A, None], [A, B]),
    _nested("limit-null-rows-in-input", LIMIT, [[A], [None, B, C]], [A, B], [A, B]),
    _nested("limit-one-null-row-of-three", "count-limit=3", [[A, None], [B, C], [D]], [A, B, D], [A, B, C]),
    _nested("first-array-alone", "", [[A, None], None], [A, None], [A]),
    _nested("late-first-array", LIMIT, [(LATE, [A, B, C])], [A, B, C], [A, B, C]),
    _nested("late-fills-up-from-accumulator", LIMIT, [[A, B], (LATE, [C])], [C, A], [C, A]),
    _nested("late-null-cuts-nothing", LIMIT, [[A, None], (LATE, None)], [A, None], [A]),
    # a limit and a key
    _nested("limit-known-key-at-limit", KEYED, [[A, B], [A2]], [A, B], [A2, B]),
    _nested("limit-known-key-takes-room", KEYED, [[A], [A2, B]], [A2], [A2, B]),
    _nested("limit-new-keys-stopped", KEYED, [[A], [B, C]], [A, B], [A, B]),
    _nested("limit-first-array-by-key", KEYED, [[A, B, C, B2], [C]], [A, B, C, B2], [A, B2]),
    _nested("limit-null-rows-give-room-back", "nested-key=k count-limit=3", [[A, None], [A2], [B, C]], [A2, B, C], [A2, B, C]),
    _nested("limit-same-keys-give-room-back", "nested-key=k count-limit=3", [[A, A], [A2], [B, C]], [A2, B, C], [A2, B, C]),
    _nested("limit-first-array-counts-twice", KEYED, [[A, A2], [B]], [A, A2], [A2, B]),
    _nested("first-array-by-key-alone", "nested-key=k", [[A, None, A2]], [A, None, A2], [A2]),
    _nested("late-by-key", KEYED, [[A, B], (LATE, [C])], [C, A], [C, A]),
    # nulls in the key, which 1.4 merges like any: a column with the option is folded as 2.0 does
    _nested("ignore-on-retract", IGNORE, [[A, B], (RETRACT, [NO_KEY, A2])], [B], [B]),
    _nested("merge-on-retract", "nested-key=k", [[A, NO_KEY], [B], (RETRACT, [OTHER])], [A, B], [A, B]),
    _nested("ignore-in-first-array", IGNORE, [[A, NO_KEY]], [A], [A]),
    _nested("ignore-drops-what-was-there", IGNORE, [(LATE, [A, NO_KEY]), (RETRACT, [B])], [A], [A]),
    _nested("error-in-accumulator", REFUSE, [(LATE, [A, NO_KEY]), (RETRACT, [B])], ERROR, ERROR),
    _nested("error-on-retract", REFUSE, [[A], (RETRACT, [NO_KEY])], ERROR, ERROR),
    _nested("error-not-looked-at", REFUSE, [(RETRACT, [NO_KEY]), [A]], [A], [A]),
    _nested("sequence-as-2.0", "nested-key=k nested-sequence-field=w count-limit=1", [[A2], [A, B]], [A2], [A2]),
    # the function that fills in fields
    _nested("partial-first-array", "nested-key=k", [[A, None, (1, None, 5)]], [A, None, (1, None, 5)], [(1, "a", 5)],
            "nested_partial_update"),
    _nested("partial-later-array", "nested-key=k", [[A], [(1, None, 5)]], [(1, "a", 5)], [(1, "a", 5)],
            "nested_partial_update"),
    _nested("partial-no-limit", "nested-key=k count-limit=1", [[A], [B]], [A, B], [A, B], "nested_partial_update"),
)  # fmt: skip
