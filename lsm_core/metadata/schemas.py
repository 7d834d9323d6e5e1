"""A table's schema files: find the newest, read any, add one without ever replacing another."""

from __future__ import annotations

import re

from lsm_core.errors import CorruptFile, TableNotFound
from lsm_core.format.schema import TableSchema
from lsm_core.storage import FileIO, Kept

# A schema of 10,000 columns takes 2 MB. A file above this limit is not a schema and is not read into memory.
_MAX_BYTES = 64 << 20
_NAME = re.compile(r"schema-(0|[1-9][0-9]{0,18})")
_DECODED_SIZE = 10  # decoded bytes for each byte of JSON
# Every operation reads its schema again (`require_same`). The bytes belong to the key, so a changed file is decoded.
_decoded = Kept(32 << 20)


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
            data = source.read()
    except FileNotFoundError as error:
        raise CorruptFile(path, "the schema file is missing") from error
    schema: TableSchema | None = _decoded.get((path, data))
    if schema is None:
        schema = TableSchema.from_json(data, path)
        _decoded.put((path, data), schema, _DECODED_SIZE * len(data))
    if schema.id != schema_id:
        raise CorruptFile(path, f"holds schema id {schema.id}")
    return schema


def require_same(file_io: FileIO, root: str, name: str, opened: TableSchema, branch: str = "main") -> None:
    """Check that a folder still holds the table that was opened there.

    The identity of a table is the content of the schema that it was opened with, which contains the time of its
    creation. Paimon never changes a schema file.

    Args:
        file_io: access to the files.
        root: the table's directory.
        name: the table's name, for the message.
        opened: the schema that was read when the table was opened.
        branch: the branch.

    Raises:
        TableNotFound: the table was dropped or renamed, or another table or history is in its place.
        CorruptFile: the schema file is damaged.
    """
    try:
        current = load_schema(file_io, root, opened.id, branch)
    except CorruptFile:
        ids = list_schema_ids(file_io, root, branch)
        if opened.id in ids:
            raise
        if not ids:
            which = f"table {name}" if branch == "main" else f"branch {branch} of table {name}"
            reason = "was dropped or renamed since it was opened: it does not exist any more"
            raise TableNotFound(f"{which} {reason}") from None
        current = None
    if current != opened:
        raise TableNotFound(replaced_text(name))


def replaced_text(name: str) -> str:
    """Return the message about a table that is not the one that was opened."""
    reason = "was replaced since it was opened: it was dropped and created again, or has another history"
    return f"table {name} {reason}; open it again"


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
