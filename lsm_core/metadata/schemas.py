"""A table's schema files: finding the newest, reading any, adding one without ever replacing another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import CorruptFile, WriterStale
from lsm_core.format.schema import TableSchema
from lsm_core.options import REGISTRY, canonical
from lsm_core.storage import FileIO

if TYPE_CHECKING:
    from lsm_core.metadata.store import TableStore

# A schema of 10,000 columns takes 2 MB; more than this is no schema, and is not read into memory to find out.
_MOST_BYTES = 64 << 20
# Besides those that cannot change: what decides which of two rows stays.
_MERGING = frozenset({"ignore-delete", "sequence.field", "sequence.field.sort-order"})
_NAME = re.compile(r"schema-(0|[1-9][0-9]{0,18})")


def metadata_root(root: str, branch: str = "main") -> str:
    """Return the directory that holds schema, snapshot, tag and consumer of ``branch``."""
    return root if branch == "main" else f"{root}/branch/branch-{branch}"


def schema_path(root: str, schema_id: int, branch: str = "main") -> str:
    """Return the path of one schema file."""
    return f"{metadata_root(root, branch)}/schema/schema-{schema_id}"


def list_schema_ids(file_io: FileIO, root: str, branch: str = "main") -> list[int]:
    """Return the ids of all schema files, ascending; empty when there is no table."""
    names = (_NAME.fullmatch(f.name) for f in file_io.list_dir(f"{metadata_root(root, branch)}/schema") if not f.is_dir)
    return sorted(int(found.group(1)) for found in names if found)


def load_schema(file_io: FileIO, root: str, schema_id: int, branch: str = "main") -> TableSchema:
    """Return one schema. Raises CorruptFile naming the file when it is missing, too big, cut short or about another id."""
    path = schema_path(root, schema_id, branch)
    try:
        size = file_io.size(path)
        if size > _MOST_BYTES:
            raise CorruptFile(path, f"a schema of {size} bytes")
        schema = TableSchema.from_json(file_io.read_bytes(path), path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the schema file is missing") from error
    if schema.id != schema_id:
        raise CorruptFile(path, f"holds schema id {schema.id}")
    return schema


def latest_schema(file_io: FileIO, root: str, branch: str = "main") -> TableSchema | None:
    """Return the newest schema, or None when the directory is no table. Raises CorruptFile."""
    ids = list_schema_ids(file_io, root, branch)
    return load_schema(file_io, root, ids[-1], branch) if ids else None


def read_schema(store: TableStore, schema_id: int) -> TableSchema:
    """Return the schema of that id (kept in memory: schema files never change). Raises CorruptFile."""
    return store.schema_of(schema_id)


def write_schema(file_io: FileIO, root: str, schema: TableSchema, branch: str = "main") -> bool:
    """Create the schema's file; False when that id is taken (another writer was faster)."""
    path = schema_path(root, schema.id, branch)
    file_io.mkdirs(path.rpartition("/")[0])
    return file_io.write_exclusive(path, schema.to_json())


def require_current(store: TableStore, entries: pa.Table, what: str) -> None:
    """Raise WriterStale when rewriting ``entries`` with the schema of ``store`` could lose something.

    A table opened before a column was added would rewrite newer files without it, one opened before the sequence field
    changed would keep the wrong row. ``entries``: manifest entries, with their schema_id.
    """
    newest = latest_schema(store.file_io, store.root, store.branch)
    known = store.schema.id
    newer = pc.any(pc.greater(entries.column("schema_id"), known), min_count=0).as_py()
    if newer or (newest is not None and newest.id > known and not _rewrite_alike(newest, store.schema)):
        now = known if newest is None else newest.id
        raise WriterStale(
            f"table {store.name} was opened with schema {known} and has schema {now} now: open it again before {what}"
        )


def _rewrite_alike(first: TableSchema, second: TableSchema) -> bool:
    def meaning(schema: TableSchema) -> tuple[object, ...]:
        options = canonical(schema.options)
        decisive = {k: v for k, v in options.items() if k in _MERGING or k.startswith("fields.") or _immutable(k)}
        return [(f.id, f.name, f.type) for f in schema.fields], schema.primary_keys, decisive

    return meaning(first) == meaning(second)


def _immutable(name: str) -> bool:
    return name in REGISTRY and REGISTRY[name].immutable
