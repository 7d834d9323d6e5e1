"""Kinds of tables that Dredge serves, tried beside the real Java Paimon of several versions.

`python scripts/compatibility.py` prints the table, `--write` writes it into docs/compatibility.md. For each kind and
version, Java creates a table and writes three commits. Then Dredge reads, writes, compacts, expires and cleans the
table. After each step Java's rows are compared with the rows before, or with Dredge's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from lsm_core import Catalog  # noqa: E402
from lsm_core.errors import DredgeError, UnsupportedFeature  # noqa: E402
from tests.support.peers import JavaPaimon, peer_module  # noqa: E402

PAGE: Final = ROOT / "docs" / "compatibility.md"
VERSIONS: Final = ("1.4.2", "2.0.0", "2.1-SNAPSHOT")
STEPS: Final = ("read", "write", "compact", "expire", "clean")
_BEGIN, _END = "<!-- kinds: begin -->", "<!-- kinds: end -->"
_STRAY: Final = "data-00000000-0000-4000-8000-000000000000-0.parquet"
_KEYED: Final = {"bucket": "1"}
_APPEND: Final = {"bucket": "-1"}


@dataclass(frozen=True)
class Kind:
    """Kind of table.

    Attributes:
        name: name on the page.
        options: options of the table.
        keys: primary key; empty for append tables.
        partitioned: whether the table is partitioned by p.
        fields: further columns, as Paimon's type (text or JSON object) by name.
        values: value of each further column.
        nullable: whether the key columns are nullable.
    """

    name: str
    options: Mapping[str, str]
    keys: tuple[str, ...] = ("p", "k")
    partitioned: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    nullable: bool = False

    def schema(self) -> dict[str, Any]:
        """Return the schema for the Java driver."""
        not_null = " NOT NULL" if self.keys and not self.nullable else ""
        columns = {"p": f"INT{not_null}", "k": f"INT{not_null}", "v": "INT", **self.fields}
        return {
            "fields": [{"name": name, "type": kind} for name, kind in columns.items()],
            "primaryKeys": list(self.keys),
            "partitionKeys": ["p"] if self.partitioned else [],
            "options": {"write-only": "true", **self.options},
        }

    def rows(self, first: int) -> list[dict[str, Any]]:
        """Return twelve rows, of which some have the keys of the twelve rows before."""
        return [{"p": k % 2, "k": k, "v": first + k, **self.values} for k in range(first, first + 12)]


_VECTORS: Final = {"deletion-vectors.enabled": "true"}
KINDS: Final = (
    Kind("primary key, fixed buckets", {"bucket": "2"}),
    Kind("primary key, dynamic buckets", {"bucket": "-1"}),
    Kind("primary key across partitions", {"bucket": "-1"}, keys=("k",)),
    Kind("primary key, postponed buckets", {"bucket": "-2"}),
    Kind("merge engine partial-update", {**_KEYED, "merge-engine": "partial-update"}),
    Kind("merge engine aggregation", {**_KEYED, "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}),
    Kind("merge engine first-row", {**_KEYED, "merge-engine": "first-row"}),
    Kind("sequence field", {**_KEYED, "sequence.field": "v"}),
    Kind("changelog producer input", {**_KEYED, "changelog-producer": "input"}),
    Kind("changelog producer lookup", {**_KEYED, "changelog-producer": "lookup"}),
    Kind("changelog producer full-compaction", {**_KEYED, "changelog-producer": "full-compaction"}),
    Kind("primary key with deletion vectors", {**_KEYED, **_VECTORS}),
    Kind("primary key with 64-bit deletion vectors", {**_KEYED, **_VECTORS, "deletion-vectors.bitmap64": "true"}),
    Kind("expiry of records", {**_KEYED, "record-level.expire-time": "100000 d", "record-level.time-field": "v"}),
    Kind(
        "nullable primary key",
        {**_KEYED, "primary-key.nullable": "true"},
        keys=("k",),
        partitioned=False,
        nullable=True,
    ),
    Kind("ordering by snapshot", {**_KEYED, "sequence.snapshot-ordering": "true"}),
    Kind(
        "primary key clustered by other columns",
        {**_KEYED, **_VECTORS, "pk-clustering-override": "true", "clustering.columns": "v"},
    ),
    Kind("primary key with btree index", {**_KEYED, **_VECTORS, "pk-btree.index.columns": "v"}),
    Kind("primary key with bitmap index", {**_KEYED, **_VECTORS, "pk-bitmap.index.columns": "v"}),
    Kind("append, without buckets", _APPEND, keys=()),
    Kind("append, fixed buckets", {"bucket": "2", "bucket-key": "k"}, keys=()),
    Kind("append with deletion vectors", {**_APPEND, **_VECTORS}, keys=()),
    Kind("append with row tracking", {**_APPEND, "row-tracking.enabled": "true"}, keys=()),
    Kind("append with mergeable branches", {**_APPEND, "branch-merge.enabled": "true"}, keys=()),
    Kind("append, sorted", {**_APPEND, "clustering.columns": "v"}, keys=()),
    Kind(
        "append, clustered incrementally",
        {**_APPEND, "clustering.incremental": "true", "clustering.columns": "v,k"},
        keys=(),
    ),
    Kind("data evolution", {**_APPEND, "row-tracking.enabled": "true", "data-evolution.enabled": "true"}, keys=()),
    Kind("file format ORC", {**_KEYED, "file.format": "orc"}),
    Kind("file format Avro", {**_KEYED, "file.format": "avro"}),
    Kind("file format CSV", {**_APPEND, "file.format": "csv", "file.compression": "none"}, keys=()),
    Kind("file format JSON", {**_APPEND, "file.format": "json", "file.compression": "none"}, keys=()),
    Kind("file format JSON with a primary key", {**_KEYED, "file.format": "json", "file.compression": "none"}),
    Kind("file format row", {**_APPEND, "file.format": "row"}, keys=()),
    Kind(
        "file indexes", {**_APPEND, "file-index.bitmap.columns": "k", "file-index.bloom-filter.columns": "v"}, keys=()
    ),
    Kind(
        "nested columns",
        _KEYED,
        fields={
            "a": {"type": "ARRAY", "element": "INT"},
            "m": {"type": "MAP", "key": "STRING", "value": "INT"},
        },
        values={"a": [1, 2], "m": [["x", 1]]},
    ),
    Kind("VARIANT column", _APPEND, keys=(), fields={"x": "VARIANT"}, values={"x": '{"a":1}'}),
    Kind(
        "BLOB column",
        {**_APPEND, "row-tracking.enabled": "true", "data-evolution.enabled": "true"},
        keys=(),
        fields={"x": "BLOB"},
        values={"x": "00ff"},
    ),
    Kind(
        "VARIANT column, shredded",
        {**_APPEND, "variant.inferShreddingSchema": "true"},
        keys=(),
        fields={"x": "VARIANT"},
        values={"x": '{"a":1}'},
    ),
    Kind("BLOB column of a primary-key table", _KEYED, fields={"x": "BLOB"}, values={"x": "00ff"}),
    Kind("VECTOR column", _APPEND, keys=(), fields={"x": "VECTOR<FLOAT, 2>"}, values={"x": [1.0, 2.0]}),
    Kind("fallback branch", {**_KEYED, "scan.fallback-branch": "other"}),
    Kind(
        "external data paths",
        {**_APPEND, "data-file.external-paths": "file:{outside}", "data-file.external-paths.strategy": "round-robin"},
        keys=(),
    ),
    Kind("metadata for Iceberg readers", {**_KEYED, "metadata.iceberg.storage": "table-location"}),
)
"""Kinds of tables, in the order of the page."""

Call = Callable[..., dict[str, Any]]


def _rows_of_java(java: Call) -> list[tuple[Any, ...]]:
    return sorted(((row["p"], row["k"], row["v"]) for row in java("read")["rows"]), key=repr)


def _rows_of_dredge(warehouse: Path, options: Mapping[str, str]) -> list[tuple[Any, ...]]:
    columns = Catalog(str(warehouse), options).table("db.t").to_arrow(["p", "k", "v"]).to_pydict()
    return sorted(zip(*columns.values(), strict=True), key=repr)


def _arrow_rows(kind: Kind, first: int) -> pa.Table:
    rows = kind.rows(first)
    plain = {name: pa.array([row[name] for row in rows], pa.int32()) for name in ("p", "k", "v")}
    nested = {"a": pa.list_(pa.int32()), "m": pa.map_(pa.string(), pa.int32()), "x": pa.list_(pa.float32(), 2)}
    for name in kind.fields:
        values = [row[name] for row in rows]
        if name == "m":
            values = [[tuple(pair) for pair in value] for value in values]
        if name == "x" and not isinstance(values[0], list):
            plain[name] = pa.array([None] * len(values), pa.string() if kind.name.startswith("V") else pa.binary())
        else:
            plain[name] = pa.array(values, nested[name])
    return pa.table(plain)


def try_kind(kind: Kind, call: JavaPaimon, folder: Path) -> dict[str, str] | str:
    """Try one kind of table with one version of Java.

    Args:
        kind: the kind.
        call: the running JVM.
        folder: empty folder for the warehouse.

    Returns:
        Result by step: "yes", "refused: reason" or "differs: how"; or the reason why Java has no such table.
    """
    warehouse, outside = folder / "wh", folder / "outside"
    outside.mkdir(parents=True)
    allowed = {"dredge.external-roots": f"{outside}:rw"}
    Catalog(str(warehouse)).create_database("db")

    def java(op: str, **arguments: Any) -> dict[str, Any]:
        return dict(call.call(op, warehouse=str(warehouse), table="db.t", **arguments))

    schema = kind.schema()
    schema["options"] = {key: value.replace("{outside}", str(outside)) for key, value in schema["options"].items()}
    try:
        branch = schema["options"].pop("scan.fallback-branch", None)
        java("create", schema=schema)
        for first in (0, 8, 4):
            java("write", rows=kind.rows(first), compact="none")
        if branch is not None:
            java("branch", name=branch)
            rows = [{**row, "p": 2} for row in kind.rows(0)]
            call.call("write", warehouse=str(warehouse), table=f"db.t$branch_{branch}", rows=rows, compact="none")
            java("alter", changes=[{"change": "set_option", "key": "scan.fallback-branch", "value": branch}])
        java("read")
    except peer_module().PeerError as error:
        return str(error).split("\n")[0][:160]

    def read() -> str:
        ours, theirs = _rows_of_dredge(warehouse, allowed), _rows_of_java(java)
        return "yes" if ours == theirs else f"differs: {len(ours)} rows, Java {len(theirs)}"

    def write() -> str:
        Catalog(str(warehouse), allowed).table("db.t").write(_arrow_rows(kind, 20), compact=False)
        return read()

    def compact() -> str:
        before = _rows_of_java(java)
        Catalog(str(warehouse), allowed).table("db.t").compact(full=True)
        after = _rows_of_java(java)
        if not before and after:  # readers of this kind see compacted rows only
            return read()
        return "yes" if after == before else f"differs: Java has {len(after)} rows, before {len(before)}"

    def expire() -> str:
        before = _rows_of_java(java)
        table = Catalog(str(warehouse), allowed).table("db.t")
        table.expire_snapshots(retain_max=1, retain_min=1, older_than_ms=1 << 42)
        table.sweep_trash(now_ms=1 << 42)
        return "yes" if _rows_of_java(java) == before else "differs: Java's rows changed"

    def clean() -> str:
        before = _rows_of_java(java)
        bucket = next(path.parent for path in sorted(folder.rglob("bucket-*/*")) if path.is_file())
        stray = bucket / _STRAY
        stray.write_bytes(b"stray")
        os.utime(stray, (0, 0))
        table = Catalog(str(warehouse), allowed).table("db.t")
        table.remove_orphan_files(older_than_ms=86_400_000)
        table.sweep_trash(now_ms=1 << 42)
        if stray.exists():
            return "differs: an orphan file stays"
        return "yes" if _rows_of_java(java) == before else "differs: Java's rows changed"

    results: dict[str, str] = {}
    for name, step in zip(STEPS, (read, write, compact, expire, clean), strict=True):
        try:
            results[name] = step()
        except UnsupportedFeature as error:
            results[name] = f"refused: {error.feature}"
        except (DredgeError, peer_module().PeerError) as error:
            results[name] = f"differs: {str(error)[:200]}"
        except StopIteration:
            results[name] = "yes"
    return results


def try_all() -> dict[str, dict[str, dict[str, str] | str]]:
    """Return the results by kind and version; a version without a jar is left out."""
    found: dict[str, dict[str, dict[str, str] | str]] = {kind.name: {} for kind in KINDS}
    for version in VERSIONS:
        try:
            call = JavaPaimon(version)
        except peer_module().PeerMissing as error:
            print(f"NOT TRIED: Java Paimon {version}: {error}", file=sys.stderr)
            continue
        try:
            for kind in KINDS:
                with tempfile.TemporaryDirectory() as folder:
                    found[kind.name][version] = try_kind(kind, call, Path(folder))
        finally:
            call.close()
    return found


def as_table(found: Mapping[str, Mapping[str, Mapping[str, str] | str]]) -> str:
    """Return the results as a Markdown table with notes; a cell that differs between versions names the versions."""
    lines = [f"| Kind of table | {' | '.join(STEPS)} |", f"|---|{'---|' * len(STEPS)}"]
    notes: dict[tuple[str, str], list[str]] = {}
    for kind, by_version in found.items():
        known = {version: results for version, results in by_version.items() if not isinstance(results, str)}
        absent = [version for version in by_version if version not in known]
        title = kind + (f" (not in {', '.join(absent)})" if absent and known else "")
        if not known:
            lines.append(f"| {kind} | {' | '.join(['not in these versions'] + [''] * (len(STEPS) - 1))} |")
            continue
        cells = []
        for step in STEPS:
            answers = {version: results[step] for version, results in known.items()}
            words = {version: answer.split(":")[0] for version, answer in answers.items()}
            same = len(set(words.values())) == 1
            cells.append(next(iter(words.values())) if same else ", ".join(f"{w} ({v})" for v, w in words.items()))
            for answer in dict.fromkeys(answers.values()):
                if ": " in answer:
                    steps = notes.setdefault((kind, answer), [])
                    steps += [] if step in steps else [step]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    listed = [f"* {kind}, {', '.join(steps)}: {answer}" for (kind, answer), steps in notes.items()]
    return "\n".join([*lines, "", *map(_wrapped, listed)])


def _wrapped(line: str) -> str:
    return textwrap.fill(line, 119, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def main(argv: list[str]) -> int:
    """Print the table, or write it into the page. Returns 1 if a result differs from Java's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table into docs/compatibility.md")
    arguments = parser.parse_args(argv)
    os.environ["DREDGE_COMPACTION_INLINE"] = "never"
    table = as_table(try_all())
    print(table)
    if arguments.write:
        text = PAGE.read_text("utf-8")
        head, rest = text.split(_BEGIN)
        PAGE.write_text(f"{head}{_BEGIN}\n{table}\n{_END}{rest.split(_END)[1]}", "utf-8")
    return int("differs" in table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
