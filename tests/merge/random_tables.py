"""Random primary-key tables: a merge engine with random options, columns of random types and functions, and their values."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from datasketches import hll_sketch, tgt_hll_type, update_theta_sketch
from pyroaring import BitMap

from lsm_core.format.schema import DataField, TableSchema
from lsm_core.maintenance.reference.versions import Entries
from lsm_core.merge.functions import roaring64
from lsm_core.types import parse

Pool = Callable[[random.Random], Any]
ENGINES = ("deduplicate", "first-row", "partial-update", "partial-update", "aggregation", "aggregation")
NESTED = "ARRAY<ROW<k INT, v STRING, w INT>>"
ORDERING = "DOUBLE of an ordering field"
KEYTIME = "MAP<INT, ROW<v INT, ts STRING>>"


def _one_of(*values: Any) -> Pool:
    return lambda rng: rng.choice(values)


def _arrays(item: Pool, rows: bool = False) -> Pool:
    del rows
    return lambda rng: [item(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))]


def _maps(key: Pool, item: Pool) -> Pool:
    def made(rng: random.Random) -> Entries:
        entries = {key(rng): item(rng) for _ in range(rng.choice([0, 1, 1, 2, 3]))}
        return Entries(entries.items())

    return made


def _nested(rng: random.Random) -> Any:
    if rng.random() < 0.05:
        return None
    return rng.choice([0, 1, 2, 3, None]), rng.choice(["a", "b", None]), rng.choice([1, 2, None])


def _timed(rng: random.Random) -> Any:
    return None if rng.random() < 0.15 else (rng.choice([1, 2, None]), rng.choice(["1", "2", "3", "10", None]))


def _bitmap(rng: random.Random) -> bytes:
    return bytes(BitMap(rng.sample(range(9), rng.randint(0, 4))).serialize())


def _bitmap64(rng: random.Random) -> bytes:
    return roaring64.encode(roaring64.of(rng.sample([0, 1, 2, 1 << 33, (1 << 33) + 1, 1 << 50], rng.randint(0, 4))))


def _hll(rng: random.Random) -> bytes:
    sketch = hll_sketch(12, tgt_hll_type.HLL_4)
    for number in rng.sample(range(9), rng.randint(1, 4)):
        sketch.update(number)
    return bytes(sketch.serialize_compact())


def _theta(rng: random.Random) -> bytes:
    sketch = update_theta_sketch()
    for number in rng.sample(range(9), rng.randint(1, 4)):
        sketch.update(number)
    return bytes(sketch.compact().serialize())


POOLS: dict[str, Pool] = {
    "BOOLEAN": lambda rng: rng.random() < 0.5,
    "TINYINT": _one_of(-3, -1, 0, 1, 2, 3, 60, -128, 127),
    "SMALLINT": _one_of(-3, -1, 0, 1, 2, 3, 20000),
    "INT": _one_of(*range(-3, 7), *range(-3, 7), 2**31 - 1, -(2**31)),
    "BIGINT": _one_of(*range(-3, 7), *range(-3, 7), 2**63 - 1, -(2**63)),
    "FLOAT": _one_of(0.0, -0.0, 1.5, -2.25, 0.10000000149011612, 3.0, math.nan, math.inf, 2.0**127),
    "DOUBLE": _one_of(0.0, -0.0, 1.5, -2.25, 0.1, 0.2, 0.3, math.nan, -math.inf, 1e16),
    "DECIMAL(5, 2)": _one_of(*map(Decimal, ("0.00", "1.05", "-2.50", "999.99", "-600.00", "3.00"))),
    "DECIMAL(20, 2)": _one_of(*map(Decimal, ("0.00", "1.05", "-2.50", "999999999999999999.99", "8.00"))),
    "STRING": _one_of("", " ", "\x1c\u3000", "\xa0", "a", "b", "ab", "a,b", ",a", "b,,c", "b, ,c", "é", "a\x00"),
    "BYTES": _one_of(b"", b"a", b"a\x00", b"\xff"),
    ORDERING: _one_of(0.0, -0.0, 1.5, -2.25, 0.1, 0.2, 0.3, math.nan, -math.inf, 1e16),
    "DATE": _one_of(-1, 0, 19000),
    "TIMESTAMP(3)": _one_of(-1, 0, 1_700_000_000_000),
    "TIMESTAMP(9)": _one_of(-1, 0, 1_700_000_000_000_000_001),
    "ARRAY<INT>": _arrays(_one_of(1, 2, 3, None)),
    "ARRAY<DOUBLE>": _arrays(_one_of(0.0, -0.0, math.nan, 1.0)),
    "ARRAY<STRING>": _arrays(_one_of("a", "b", "", None)),
    "ARRAY<ROW<x INT, y STRING>>": _arrays(lambda rng: (rng.choice([1, 2, None]), rng.choice(["a", None]))),
    "MAP<INT, STRING>": _maps(_one_of(1, 2, 3), _one_of("a", "b", None)),
    "MAP<STRING, INT>": _maps(_one_of("", "a", "b"), _one_of(1, 2, None)),
    NESTED: _arrays(_nested),
    KEYTIME: _maps(_one_of(1, 2, 3), _timed),
    "rbm32": _bitmap,
    "rbm64": _bitmap64,
    "hll_sketch": _hll,
    "theta_sketch": _theta,
}


def _rarely(rare: Pool, usual: Pool) -> Pool:
    return lambda rng: (rare if rng.random() < 0.02 else usual)(rng)


JAVA_POOLS = {
    **POOLS,
    ORDERING: _rarely(POOLS["DOUBLE"], _one_of(0.0, 1.5, -2.25, 0.1, 0.2, 1e16)),
    **{kind: _rarely(POOLS[kind], _one_of(-2, -1, 1, 1, 2, 3)) for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")},
    "STRING": _rarely(POOLS["STRING"], _one_of("", "a", "b", "ab", "a,b", ",a", "b,,c", "é")),
    "DECIMAL(5, 2)": _rarely(POOLS["DECIMAL(5, 2)"], _one_of(*map(Decimal, ("2.00", "1.00", "-2.50", "8.00")))),
    "DECIMAL(20, 2)": _rarely(POOLS["DECIMAL(20, 2)"], _one_of(*map(Decimal, ("2.00", "1.00", "-2.50", "8.00")))),
}
"""Values for a peer that fails for the whole table if a result cannot be computed; such values are rare."""
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(20, 2)")
ORDERED = (*NUMBERS, "BOOLEAN", "STRING", "BYTES", "DATE", "TIMESTAMP(3)", "TIMESTAMP(9)")
ANY = (*ORDERED, "ARRAY<INT>", "MAP<INT, STRING>", "ARRAY<ROW<x INT, y STRING>>")
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "sum": NUMBERS,
    "product": NUMBERS,
    "max": ORDERED,
    "min": ORDERED,
    "last_value": ANY,
    "last_non_null_value": ANY,
    "first_value": ANY,
    "first_non_null_value": ANY,
    "first_not_null_value": ORDERED,
    "listagg": ("STRING",),
    "bool_and": ("BOOLEAN",),
    "bool_or": ("BOOLEAN",),
    "collect": ("ARRAY<INT>", "ARRAY<DOUBLE>", "ARRAY<STRING>", "ARRAY<ROW<x INT, y STRING>>"),
    "merge_map": ("MAP<INT, STRING>", "MAP<STRING, INT>"),
    "merge_map_with_keytime": (KEYTIME,),
    "nested_update": (NESTED,),
    "nested_partial_update": (NESTED,),
    "rbm32": ("BYTES",),
    "rbm64": ("BYTES",),
    "hll_sketch": ("BYTES",),
    "theta_sketch": ("BYTES",),
}
TAKES_BACK = frozenset({"sum", "product", "last_value", "last_non_null_value", "collect", "merge_map", "nested_update"})
KEYS: dict[str, list[Any]] = {
    "INT NOT NULL": list(range(-20, 20)),
    "STRING NOT NULL": [f"k{i}" for i in range(30)] + ["", "a", "a\x00", "é"],
}


@dataclass
class RandomTable:
    """Random table: options, columns with types, and a generator of values for each column."""

    options: dict[str, str]
    names: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    kinds: Sequence[int] = (0,)
    values: dict[str, Pool] = field(default_factory=lambda: POOLS)
    refusals: bool = True
    """Whether functions may get retracts that they refuse."""

    @property
    def descending(self) -> bool:
        """Whether larger sequence fields are older."""
        return self.options.get("sequence.field.sort-order") == "descending"

    @property
    def schema(self) -> TableSchema:
        fields = tuple(DataField(i, name, parse(self.types[name])) for i, name in enumerate(self.names))
        return TableSchema(0, fields, len(fields), primary_keys=tuple(self.keys))

    def column(self, name: str, kind: str, pool: Pool | None = None) -> None:
        """Add a column."""
        self.names.append(name)
        self.types[name] = kind
        self.pools[name] = pool or self.values[kind]

    def function(self, rng: random.Random, name: str, allowed: Sequence[str], *, retracts: bool) -> None:
        """Add a column with one of the functions ``allowed`` and random options of this function."""
        chosen = rng.choice(sorted(set(allowed)))
        self.column(name, rng.choice(FUNCTIONS[chosen]))
        if chosen in POOLS:
            self.pools[name] = POOLS[chosen]
        prefix = f"fields.{name}."
        self.options[prefix + "aggregate-function"] = chosen
        ignored = retracts and (chosen not in TAKES_BACK or rng.random() < 0.2)
        if ignored and (rng.random() < 0.9 or not self.refusals):
            self.options[prefix + "ignore-retract"] = "true"
        self.options.update({prefix + key: value for key, value in _function_options(rng, chosen).items()})

    def value(self, rng: random.Random, name: str) -> Any:
        """Return a random value of a column; one in four is null."""
        return None if rng.random() < 0.25 else self.pools[name](rng)


def _function_options(rng: random.Random, function: str) -> dict[str, str]:
    found: dict[str, str] = {}
    if function in {"listagg", "collect"} and rng.random() < 0.5:
        found["distinct"] = "true"
    if function == "listagg" and rng.random() < 0.3:
        found["list-agg-delimiter"] = rng.choice([";", ", ", "|"])
    if function == "merge_map_with_keytime" and rng.random() < 0.5:
        found["ts-field"] = "ts"
    if function.startswith("nested"):
        keyed = function == "nested_partial_update" or rng.random() < 0.7
        if keyed:
            found["nested-key"] = rng.choice(["k", "k,v"])
            if rng.random() < 0.4:
                found["nested-key-null-strategy"] = rng.choice(["merge", "ignore", "ignore", "error"])
        if function == "nested_update":
            if keyed and rng.random() < 0.4:
                found["nested-sequence-field"] = rng.choice(["w", "w,v"])
            if rng.random() < 0.3:
                found["count-limit"] = rng.choice(["1", "2", "3"])
    return found


def random_table(rng: random.Random, values: dict[str, Pool] | None = None) -> RandomTable:
    """Return a table of any merge engine with any valid combination of options, for any version of Paimon.

    Args:
        rng: random generator.
        values: value generators by type, or None for `POOLS`. If given, the table has the default version, and no
            function gets a retract that it refuses.
    """
    engine = rng.choice(ENGINES)
    table = RandomTable({"merge-engine": engine}, values=values or POOLS, refusals=values is None)
    for i in range(rng.choice([1, 1, 1, 2])):
        kind = rng.choice(sorted(KEYS))
        table.column(f"k{i}", kind, _one_of(*KEYS[kind]))
        table.keys.append(f"k{i}")
    retracts = rng.random() < 0.5
    fill = {"partial-update": _partial_update, "aggregation": _aggregation}.get(engine, _picking)
    fill(rng, table, retracts)
    if engine != "first-row" and rng.random() < 0.4:
        _ordered(rng, table)
    rest = table.names[len(table.keys) :]
    rng.shuffle(rest)
    table.names[len(table.keys) :] = rest
    if rng.random() < 0.3:
        rng.shuffle(table.names)
    if values is None and rng.random() < 0.75:
        table.options["dredge.paimon-version"] = rng.choice(["1.4", "2.0", "2.1"])
    return table


def _ordered(rng: random.Random, table: RandomTable) -> None:
    names = [f"s{i}" for i in range(rng.choice([1, 1, 2]))]
    for name in names:
        kind = rng.choice(["INT", "STRING", "DOUBLE", "TIMESTAMP(3)"])
        table.column(name, kind, table.values[ORDERING] if kind == "DOUBLE" else None)
    table.options["sequence.field"] = ",".join(names)
    if rng.random() < 0.4:
        table.options["sequence.field.sort-order"] = rng.choice(["ascending", "descending"])


def _picking(rng: random.Random, table: RandomTable, retracts: bool) -> None:
    table.column("a", rng.choice(ANY))
    table.column("b", rng.choice(ANY))
    table.kinds = (0, 0, 2, 3, 1) if retracts else (0, 2)
    first_row = table.options["merge-engine"] == "first-row"
    if retracts and (rng.random() < (0.8 if first_row else 0.4) or (first_row and not table.refusals)):
        table.options["ignore-delete"] = "true"


def _aggregation(rng: random.Random, table: RandomTable, retracts: bool) -> None:
    for name in "abcde"[: rng.randint(1, 5)]:
        table.function(rng, name, tuple(FUNCTIONS), retracts=retracts)
    if rng.random() < 0.3:
        table.column("d0", rng.choice(ORDERED))
        table.options["fields.default-aggregate-function"] = rng.choice(["last_value", "last_non_null_value", "max"])
        if retracts and table.options["fields.default-aggregate-function"] == "max":
            table.options["fields.d0.ignore-retract"] = "true"
    if rng.random() < 0.3:
        table.column("d1", rng.choice(ORDERED))
        table.options["fields.d1.aggregate-function"] = "last_value"
    table.kinds = (0, 0, 2, 3, 1) if retracts else (0, 2)
    ignores = any(key.endswith("ignore-retract") for key in table.options)
    if retracts and not ignores and rng.random() < 0.6:
        table.options["aggregation.remove-record-on-delete"] = "true"


def _partial_update(rng: random.Random, table: RandomTable, retracts: bool) -> None:
    groups = rng.choice([0, 0, 1, 1, 2, 3])
    for number in range(groups):
        ordering = [f"g{number}{i}" for i in range(rng.choice([1, 1, 2, 3]))]
        for name in ordering:
            table.column(name, rng.choice(["INT", "INT", "STRING", "DOUBLE"]))
            if table.types[name] == "INT":
                table.pools[name] = _one_of(1, 2, 3, 4)
            elif table.types[name] == "DOUBLE":
                table.pools[name] = table.values[ORDERING]
        protected = [f"p{number}{i}" for i in range(rng.randint(1, 3))]
        for name in protected:
            if rng.random() < 0.5:
                table.function(rng, name, tuple(FUNCTIONS), retracts=retracts)
            else:
                table.column(name, rng.choice(ANY))
        table.options[f"fields.{','.join(ordering)}.sequence-group"] = ",".join(protected)
    for i in range(rng.randint(0 if groups else 1, 2)):
        table.column(f"u{i}", rng.choice(ANY))
        if rng.random() < 0.2:
            table.options[f"fields.u{i}.aggregate-function"] = "last_non_null_value"
    table.kinds = (0, 0, 2, 3, 1) if retracts else (0, 2)
    if not retracts:
        return
    way = rng.random()
    if way < 0.3:
        table.options["ignore-delete"] = "true"
    elif groups and way < 0.6:
        table.options["partial-update.remove-record-on-sequence-group"] = "g00"
    elif not groups and (way < 0.9 or not table.refusals):
        table.options["partial-update.remove-record-on-delete"] = "true"
