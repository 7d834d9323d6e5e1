"""Runs inside pypaimon's own environment: one JSON command a line on stdin, one answer a line, rows through Arrow IPC files."""

import json
import sys
import time

import pyarrow as pa
from pypaimon import CatalogFactory, Schema


def read(catalog, command):
    builder = catalog.get_table(command["table"]).new_read_builder()
    splits = builder.new_scan().plan().splits()
    table = builder.new_read().to_arrow(splits)
    with pa.OSFile(command["out"], "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return {"rows": table.num_rows}


def create(catalog, command):
    with pa.OSFile(command["data"], "rb") as source:
        schema = pa.ipc.open_file(source).schema
    catalog.create_database(command["table"].split(".")[0], ignore_if_exists=True)
    catalog.create_table(
        command["table"],
        Schema.from_pyarrow_schema(
            schema,
            partition_keys=command.get("partition_keys"),
            primary_keys=command.get("primary_keys"),
            options=command.get("options") or {},
        ),
        ignore_if_exists=False,
    )
    return {}


def write(catalog, command):
    with pa.OSFile(command["data"], "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    started = time.perf_counter()
    builder = catalog.get_table(command["table"]).new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(table)
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()
    return {"secs": time.perf_counter() - started}


def main():
    for line in sys.stdin:
        command = json.loads(line)
        # A fresh catalog per command: changes made by another engine are seen.
        catalog = CatalogFactory.create({"warehouse": command["warehouse"]})
        try:
            answer = {"ok": True, **{"read": read, "create": create, "write": write}[command["op"]](catalog, command)}
        except Exception as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print("PEER " + json.dumps(answer), flush=True)


main()
