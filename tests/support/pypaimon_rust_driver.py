"""Driver inside pypaimon-rust's environment: one JSON command and one answer per line; rows as Arrow IPC files."""

import json
import sys
import time

import pyarrow as pa
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext


def table_of(command):
    return PaimonCatalog({"warehouse": command["warehouse"]}).get_table(command["table"])


def read(command):
    started = time.perf_counter()
    builder = table_of(command).new_read_builder()
    splits = builder.new_scan().plan().splits()
    batches = builder.new_read().read(splits)
    if not batches:
        raise ValueError("no rows: the batches alone tell the schema")
    table = pa.Table.from_batches(batches)
    secs = time.perf_counter() - started
    with pa.OSFile(command["out"], "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return {"rows": table.num_rows, "secs": secs}


def write(command):
    with pa.OSFile(command["data"], "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    started = time.perf_counter()
    builder = table_of(command).new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    for batch in table.to_batches():
        writer.write_arrow(batch)
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()
    return {"secs": time.perf_counter() - started}


def sql(command):
    context = SQLContext()
    context.register_catalog("paimon", {"warehouse": command["warehouse"]})
    for statement in command["statements"]:
        context.sql(statement)
    return {}


def main():
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": True, **{"read": read, "write": write, "sql": sql}[command["op"]](command)}
        except Exception as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print("PEER " + json.dumps(answer), flush=True)


main()
