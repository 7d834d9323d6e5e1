"""A table's schema files: finding the newest, reading any, adding one without ever replacing another."""

from __future__ import annotations

import re

from lsm_core.errors import CorruptFile
from lsm_core.format.schema import TableSchema
from lsm_core.storage import FileIO

# A schema of 10,000 columns takes 2 MB; more than this is no schema, and is not read into memory to find out.
_MOST_BYTES = 64 << 20
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
        with file_io.open_input(path) as source:
            if source.size() > _MOST_BYTES:
                raise CorruptFile(path, f"a schema of {source.size()} bytes")
            schema = TableSchema.from_json(source.read(), path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the schema file is missing") from error
    if schema.id != schema_id:
        raise CorruptFile(path, f"holds schema id {schema.id}")
    return schema


def latest_schema(file_io: FileIO, root: str, branch: str = "main") -> TableSchema | None:
    """Return the newest schema, or None when the directory is no table. Raises CorruptFile."""
    ids = list_schema_ids(file_io, root, branch)
    return load_schema(file_io, root, ids[-1], branch) if ids else None


def write_schema(file_io: FileIO, root: str, schema: TableSchema, branch: str = "main") -> bool:
    """Create the schema's file; False when that id is taken (another writer was faster)."""
    path = schema_path(root, schema.id, branch)
    return file_io.write_exclusive(path, schema.to_json())
