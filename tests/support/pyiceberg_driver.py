"""Driver inside .peers/pyiceberg: pyiceberg and DuckDB read Iceberg tables; one JSON command and one answer per line.

A command names the folder that has the subfolder `metadata`. Rows are returned as Arrow IPC files.
"""

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
from pyiceberg.table import StaticTable


class DuckDB:
    """One connection with the Iceberg extension, whose file is in a package; the extension's server is not asked."""

    def __init__(self):
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for package in (duckdb_extension_avro, duckdb_extension_iceberg):
            files = Path(package.__file__).parent.glob("extensions/*/*.duckdb_extension")
            self._connection.load_extension(str(next(files)))

    def read(self, folder, snapshot_id):
        """Return all rows of a snapshot, or of the newest one."""
        version = "" if snapshot_id is None else ", snapshot_from_id = ?::UBIGINT"
        arguments = [folder] if snapshot_id is None else [folder, snapshot_id]
        return self._connection.execute(f"SELECT * FROM iceberg_scan(?{version})", arguments).to_arrow_table()


def describe(duck, command):
    """Return the identity, schemas, snapshots, refs and manifests that the newest metadata has."""
    del duck
    table = StaticTable.from_metadata(command["table"])
    metadata = table.metadata
    snapshots = [
        {
            "id": snapshot.snapshot_id,
            "parent": snapshot.parent_snapshot_id,
            "sequence": snapshot.sequence_number,
            "schema": snapshot.schema_id,
            "time": snapshot.timestamp_ms,
            "operation": snapshot.summary.operation.value,
            "summary": dict(snapshot.summary.additional_properties),
            "list": snapshot.manifest_list,
            "manifests": [
                {
                    "path": manifest.manifest_path,
                    "length": manifest.manifest_length,
                    "content": manifest.content.name,
                    "sequence": manifest.sequence_number,
                    "snapshot": manifest.added_snapshot_id,
                    "files": [manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count],
                    "rows": [manifest.added_rows_count, manifest.existing_rows_count, manifest.deleted_rows_count],
                }
                for manifest in snapshot.manifests(table.io)
            ],
        }
        for snapshot in metadata.snapshots
    ]
    return {
        "file": table.metadata_location,
        "uuid": str(metadata.table_uuid),
        "format": metadata.format_version,
        "location": metadata.location,
        "current": metadata.current_snapshot_id,
        "sequence": metadata.last_sequence_number,
        "column": metadata.last_column_id,
        "schema": metadata.current_schema_id,
        "schemas": {str(schema.schema_id): json.loads(schema.model_dump_json()) for schema in metadata.schemas},
        "specs": [json.loads(spec.model_dump_json()) for spec in metadata.partition_specs],
        "refs": {name: ref.snapshot_id for name, ref in metadata.refs.items()},
        "snapshots": snapshots,
    }


def files(duck, command):
    """Return the entries of the manifests of a snapshot, dead ones too."""
    del duck
    table = StaticTable.from_metadata(command["table"])
    snapshot = table.snapshot_by_id(command["snapshot_id"])
    entries = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            data = entry.data_file
            entries.append(
                {
                    "status": entry.status.name,
                    "snapshot": entry.snapshot_id,
                    "sequence": entry.sequence_number,
                    "content": data.content.name,
                    "path": data.file_path,
                    "format": data.file_format.value,
                    "partition": [str(value) for value in data.partition],
                    "rows": data.record_count,
                    "bytes": data.file_size_in_bytes,
                    "nulls": {str(key): value for key, value in (data.null_value_counts or {}).items()},
                    "lower": {str(key): value.hex() for key, value in (data.lower_bounds or {}).items()},
                    "upper": {str(key): value.hex() for key, value in (data.upper_bounds or {}).items()},
                }
            )
    return {"entries": entries}


def read(duck, command):
    """Write the rows of one snapshot, ref or the newest state into an Arrow file."""
    snapshot_id = command.get("snapshot_id")
    if command["reader"] == "duckdb":
        rows = duck.read(command["table"], snapshot_id)
    else:
        table = StaticTable.from_metadata(command["table"])
        scan = table.scan(snapshot_id=snapshot_id, row_filter=command.get("filter") or "true")
        rows = (scan.use_ref(command["ref"]) if command.get("ref") else scan).to_arrow()
    with pa.OSFile(command["out"], "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return {"rows": rows.num_rows}


def main():
    duck = DuckDB()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            operations = {"read": read, "describe": describe, "files": files}
            answer = {"ok": True, **operations[command["op"]](duck, command)}
        except Exception as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print("PEER " + json.dumps(answer), flush=True)


main()
