"""Pairs of tables, one created by Dredge and one by Java Paimon, and schema changes for both."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lsm_core import Catalog, Schema, SchemaChange
from lsm_core.format.schema import DataField
from lsm_core.types import parse
from tests.support.peers import refusal_of

Java = Callable[..., dict[str, Any]]
Step = dict[str, Any]

ROW = {
    "type": "ROW",
    "fields": [{"id": 0, "name": "x", "type": "INT"}, {"id": 1, "name": "y", "type": "STRING NOT NULL"}],
}
DEEP = {
    "type": "ROW",
    "fields": [{"id": 0, "name": "x", "type": ROW}, {"id": 1, "name": "l", "type": {"type": "ARRAY", "element": ROW}}],
}
COLUMNS: list[tuple[str, Any]] = [
    ("k", "BIGINT NOT NULL"),
    ("v", "STRING"),
    ("n", "INT"),
    ("dt", "STRING NOT NULL"),
    ("r", DEEP),
    ("a", {"type": "ARRAY", "element": "INT"}),
    ("ar", {"type": "ARRAY", "element": ROW}),
    ("m", {"type": "MAP", "key": "STRING NOT NULL", "value": ROW}),
    ("d", "DECIMAL(10, 2)"),
    ("t", "TIMESTAMP(3)"),
    ("b", "BOOLEAN"),
]


def as_change(step: Step) -> SchemaChange:
    """Convert a schema change in the peer's form to a `SchemaChange`."""
    kind, name = step["change"], step.get("name", "")
    place = {step["move"]["type"]: step["move"].get("ref", True)} if step.get("move") else {}
    make: dict[str, Callable[[], SchemaChange]] = {
        "set_option": lambda: SchemaChange.set_option(step["key"], step["value"]),
        "remove_option": lambda: SchemaChange.remove_option(step["key"]),
        "update_comment": lambda: SchemaChange.set_comment(step.get("comment")),
        "add_column": lambda: SchemaChange.add_column(name, parse(step["type"]), comment=step.get("comment"), **place),
        "rename_column": lambda: SchemaChange.rename_column(name, step["to"]),
        "drop_column": lambda: SchemaChange.drop_column(name),
        "update_type": lambda: SchemaChange.update_type(
            name, parse(step["type"]), keep_nullability=step.get("keep_nullability", False)
        ),
        "update_nullability": lambda: SchemaChange.update_nullability(name, nullable=step["nullable"]),
        "update_column_comment": lambda: SchemaChange.update_column_comment(name, step.get("comment")),
        "update_default": lambda: SchemaChange.update_default(name, step.get("default")),
        "update_position": lambda: SchemaChange.move(name, **place),
    }
    return make[kind]()


class Both:
    """Pair of equal tables in one warehouse: ``j<number>`` of Java and ``d<number>`` of Dredge."""

    def __init__(self, java: Java, warehouse: Path) -> None:
        self.java, self.warehouse = java, warehouse
        self.catalog = Catalog(warehouse, clock="fixed:1700000000000")
        self.catalog.create_database("db", ignore_if_exists=True)
        self.number = 0

    def create(
        self,
        columns: list[tuple[str, Any]],
        primary_keys: list[str],
        partition_keys: list[str],
        options: dict[str, str],
        comment: str | None = None,
    ) -> tuple[str, str]:
        """Create the next pair of tables; return the errors of Java and of Dredge, or "" for no error."""
        self.number += 1
        fields = [{"name": name, "type": kind} for name, kind in columns]
        schema = {"fields": fields, "primaryKeys": primary_keys, "partitionKeys": partition_keys, "options": options}
        if comment is not None:
            schema["comment"] = comment
        theirs = refusal_of(lambda: self.java("create", table=f"db.j{self.number}", schema=schema))
        ours = refusal_of(
            lambda: self.catalog.create_table(
                f"db.d{self.number}",
                Schema(
                    [DataField(0, name, parse(kind)) for name, kind in columns],
                    primary_keys,
                    partition_keys,
                    options,
                    comment,
                ),
            )
        )
        return theirs, ours

    def alter(self, steps: list[Step]) -> tuple[str, str]:
        """Alter both tables; return the errors of Java and of Dredge, or "" for no error."""
        theirs = refusal_of(lambda: self.java("alter", table=f"db.j{self.number}", changes=steps))
        ours = refusal_of(lambda: self.catalog.alter_table(f"db.d{self.number}", [as_change(step) for step in steps]))
        return theirs, ours

    def write_a_row(self) -> None:
        """Write a row to Java's table and copy the snapshot to Dredge's table, so that both have a snapshot."""
        self.java("write", table=f"db.j{self.number}", rows=[{"k": 1, "dt": "a"}])
        target = self.folder("d") / "snapshot"
        target.mkdir()
        for file in (self.folder("j") / "snapshot").iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        for name in ("manifest", "index"):
            for file in (self.folder("j") / name).glob("*"):
                (self.folder("d") / name).mkdir(exist_ok=True)
                (self.folder("d") / name / file.name).write_bytes(file.read_bytes())

    def folder(self, engine: str) -> Path:
        return self.warehouse / "db.db" / f"{engine}{self.number}"

    def schemas(self, engine: str) -> list[dict[str, Any]]:
        files = sorted((self.folder(engine) / "schema").glob("schema-*"), key=lambda f: int(f.name[7:]))
        found = [json.loads(file.read_text()) for file in files]
        for schema in found:
            del schema["timeMillis"]
        return found

    def agree(self) -> None:
        assert self.schemas("d")[-1] == self.schemas("j")[-1]


def C(change: str, **arguments: Any) -> Step:
    return {"change": change, **arguments}


# -- random histories -------------------------------------------------------------------------------------------------

TYPES: list[Any] = [
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "BOOLEAN",
    "DATE",
    "TIME(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "DECIMAL(10, 2)",
    "DECIMAL(20, 4)",
    "STRING",
    "VARCHAR(5)",
    "CHAR(4)",
    "BYTES",
    "BINARY(4)",
]
NESTED: list[Any] = [
    ROW,
    DEEP,
    {"type": "ARRAY", "element": "INT"},
    {"type": "MAP", "key": "INT NOT NULL", "value": ROW},
]


class RandomSteps:
    """Generator of random schema changes, most of which are valid for a schema."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def steps(self, schema: dict[str, Any]) -> list[Step]:
        """Return a list with one random schema change."""
        return [self.step(schema)]

    def step(self, schema: dict[str, Any]) -> Step:
        paths = list(_paths((), schema["fields"]))
        fields = [path for path in paths if path[-1] not in ("element", "value")]
        name = self.draw.choice(fields) if self.draw.random() < 0.95 else ["q"]
        kind = self.draw.choice(
            [
                "add",
                "add",
                "add",
                "rename",
                "drop",
                "type",
                "type",
                "type",
                "nullability",
                "comment",
                "default",
                "move",
                "option",
                "table_comment",
            ]
        )
        return getattr(self, kind)(name, schema, paths)  # type: ignore[no-any-return]

    def add(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        new = f"c{self.draw.randrange(30)}"
        kind = self.draw.choice(TYPES if self.draw.random() < 0.7 else NESTED)
        step = C("add_column", name=[*name[:-1], new], type=kind)
        if self.draw.random() < 0.5:
            step["move"] = self._place(name[-1])
        if self.draw.random() < 0.3:
            step["comment"] = "said"
        return step

    def _place(self, reference: str) -> Step:
        kind = self.draw.choice(["first", "last", "after", "before"])
        return {"type": kind, "ref": reference} if kind in ("after", "before") else {"type": kind}

    def rename(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        return C("rename_column", name=name, to=f"c{self.draw.randrange(30)}")

    def drop(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        return C("drop_column", name=name)

    def type(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        not_null = " NOT NULL" if self.draw.random() < 0.1 else ""
        keep = self.draw.random() < 0.7
        path = self.draw.choice(paths)
        now = str(_type_at(schema["fields"], path))
        # To the type that a column has is no change here, while Java refuses it for some types (BOOLEAN, BYTES) only.
        others = [kind for kind in TYPES if kind != now.removesuffix(" NOT NULL")]
        return C("update_type", name=path, type=self.draw.choice(others) + not_null, keep_nullability=keep)

    def nullability(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        return C("update_nullability", name=self.draw.choice(paths), nullable=self.draw.random() < 0.7)

    def comment(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        return C("update_column_comment", name=name, comment=self.draw.choice(["one", "", None]))

    def default(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        return C("update_default", name=name)

    def move(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        columns = [field["name"] for field in schema["fields"]]
        mine = self.draw.choice(columns)
        return C("update_position", name=mine, move=self._place(self.draw.choice(columns)))

    def option(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        key = self.draw.choice(["snapshot.num-retained.min", "write-only", "my.own"])
        if self.draw.random() < 0.3:
            return C("remove_option", key=key)
        return C("set_option", key=key, value={"snapshot.num-retained.min": "3", "write-only": "true"}.get(key, "x"))

    def table_comment(self, name: list[str], schema: dict[str, Any], paths: list[list[str]]) -> Step:
        return C("update_comment", comment=self.draw.choice(["one", "two", None]))


def _paths(above: tuple[str, ...], fields: list[dict[str, Any]]) -> Any:
    for field in fields:
        path = [*above, field["name"]]
        yield path
        yield from _paths_inside(path, field["type"])


def _paths_inside(path: list[str], kind: Any) -> Any:
    if not isinstance(kind, dict):
        return
    if kind["type"].startswith("ROW"):
        yield from _paths(tuple(path), kind["fields"])
    step = "element" if kind["type"].startswith("ARRAY") else "value"
    if step in kind:
        yield [*path, step]
        yield from _paths_inside([*path, step], kind[step])


def _type_at(fields: list[dict[str, Any]], path: list[str]) -> Any:
    kind = next(field["type"] for field in fields if field["name"] == path[0])
    for depth, step in enumerate(path[1:], 1):
        if kind["type"].startswith("ROW"):
            return _type_at(kind["fields"], path[depth:])
        kind = kind[step]
    return kind
