"""A table's schema files: find the newest, read any, add one without ever replacing another."""

from __future__ import annotations

import re

from lsm_core.errors import CorruptFile
from lsm_core.format.schema import TableSchema
from lsm_core.storage import FileIO

# A schema of 10,000 columns takes 2 MB. A file above this limit is not a schema and is not read into memory.
_MAX_BYTES = 64 << 20
_NAME = re.compile(r"schema-(0|[1-9][0-9]{0,18})")


def metadata_root(root: str, branch: str = "main") -> str:
    """Return the directory that contains the schemas, snapshots, tags and consumers of a branch."""
    return root if branch == "main" else f"{root}/branch/branch-{branch}"


def schema_path(root: str, schema_id: int, branch: str = "main") -> str:
    """Return the path of a schema file."""
    return f"{metadata_root(root, branch)}/schema/schema-{schema_id}"


def list_schema_ids(file_io: FileIO, root: str, branch: str = "main") -> list[int]:
    """Return the ids of all schema files, ascending; empty if the table does not exist."""
    matches = (
        _NAME.fullmatch(status.name)
        for status in file_io.list_dir(f"{metadata_root(root, branch)}/schema")
        if not status.is_dir
    )
    return sorted(int(match.group(1)) for match in matches if match)


def load_schema(file_io: FileIO, root: str, schema_id: int, branch: str = "main") -> TableSchema:
    """Return the schema with an id.

    Raises:
        CorruptFile: the file is missing, too large, truncated or holds another id; the message names it.
    """
    path = schema_path(root, schema_id, branch)
    try:
        with file_io.open_input(path) as source:
            if source.size() > _MAX_BYTES:
                raise CorruptFile(path, f"a schema of {source.size()} bytes")
            schema = TableSchema.from_json(source.read(), path)
    except FileNotFoundError as error:
        raise CorruptFile(path, "the schema file is missing") from error
    if schema.id != schema_id:
        raise CorruptFile(path, f"holds schema id {schema.id}")
    return schema


def latest_schema(file_io: FileIO, root: str, branch: str = "main") -> TableSchema | None:
    """Return the newest schema.

    Returns:
        The schema, or None if the directory is not a table.

    Raises:
        CorruptFile: the schema file is damaged.
    """
    ids = list_schema_ids(file_io, root, branch)
    return load_schema(file_io, root, ids[-1], branch) if ids else None


def write_schema(file_io: FileIO, root: str, schema: TableSchema, branch: str = "main") -> bool:
    """Create the file of a new schema.

    Returns:
        False if the id is taken, because another writer was faster.
    """
    path = schema_path(root, schema.id, branch)
    return file_io.write_exclusive(path, schema.to_json())
