"""Driver inside pypaimon's environment: one JSON command and one answer per line; rows as Arrow IPC files."""

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


def fold(catalog, command):
    """Aggregate inputs of one column with a function of pypaimon; nested rows are lists in command and answer."""
    del catalog
    from pypaimon.common.options.core_options import CoreOptions
    from pypaimon.common.options.options import Options
    from pypaimon.read.reader.aggregate import create_field_aggregator
    from pypaimon.schema.data_types import ArrayType, AtomicType, DataField, RowType

    names = command["fields"]
    kind = AtomicType("STRING")
    if names:
        fields = [DataField(i, name, AtomicType(one)) for i, (name, one) in enumerate(names.items())]
        kind = ArrayType(nullable=True, element_type=RowType(nullable=True, fields=fields))

    def given(value):
        if value is None or not names:
            return value
        return [None if row is None else dict(zip(names, row, strict=True)) for row in value]

    function = create_field_aggregator(kind, "a", command["function"], CoreOptions(Options(command["options"])))
    # pypaimon folds no late input of these functions; Java lets the arguments change places
    steps = {"agg": function.agg, "late": lambda acc, one: function.agg(one, acc), "retract": function.retract}
    value = None
    try:
        for op, one in command["inputs"]:
            value = steps[op](value, given(one))
    except ValueError as error:
        return {"refused": str(error)}
    if value is None or not names:
        return {"value": value}
    return {"value": [None if row is None else [row[name] for name in names] for row in value]}


def main():
    for line in sys.stdin:
        command = json.loads(line)
        # A fresh catalog per command: changes made by another engine are seen.
        catalog = CatalogFactory.create({"warehouse": command["warehouse"], **command.get("catalog_options", {})})
        try:
            operations = {"read": read, "create": create, "write": write, "fold": fold}
            answer = {"ok": True, **operations[command["op"]](catalog, command)}
        except Exception as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print("PEER " + json.dumps(answer), flush=True)


main()
