"""Warehouse behind Paimon's REST catalog server on loopback against a folder: commits, listings, and the platform's load."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from bench.harness import Result, alternate
from bench.table_life import scratch
from dredge.platform_core.resources.warehouse import WarehouseResource, describe_warehouse
from lsm_core import Catalog
from lsm_core.metadata.store import schema_path
from tests.support.rest_server import TOKEN, WAREHOUSE, FaultyProxy, RestServer

TABLES = 1_000
COMMITS = 10
FIELDS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def run(rows: int | None, rounds: int) -> list[Result]:
    """Measure a warehouse behind the server; ``rows`` is its number of tables."""
    with scratch() as folder, pytest.MonkeyPatch.context() as patches:
        patches.setenv("DREDGE_REST_TOKEN", TOKEN)
        patches.setenv("XDG_STATE_HOME", str(folder / "state"))
        patches.setenv("DREDGE_COMPACTION_INLINE", "never")
        server = RestServer(folder / "served")
        proxy = FaultyProxy(server.url)
        try:
            return _measure(folder, server, proxy, rows or TABLES, rounds)
        finally:
            proxy.close()
            server.close()


def _measure(folder: Path, server: RestServer, proxy: FaultyProxy, tables: int, rounds: int) -> list[Result]:
    options = {"metastore": "rest", "uri": server.url}
    served, local = Catalog(WAREHOUSE, options), Catalog(str(folder / "local"))
    for catalog in (served, local):
        catalog.create_database("one")
        catalog.create_table("one.t", FIELDS, primary_keys=["k"], options={"bucket": "1"})
    times = alternate({"served": partial(_commit, served), "local": partial(_commit, local)}, rounds)
    pairs = list(zip(times["served"].seconds, times["local"].seconds, strict=True))
    extra = [(mine - other) / COMMITS * 1000 for mine, other in pairs]
    counted = Catalog(WAREHOUSE, {**options, "uri": proxy.url}).table("one.t")
    proxy.requests.clear()
    counted.write(pa.table({"k": [1], "v": ["a"]}, schema=FIELDS))
    requests = len(proxy.requests)
    results = [
        Result("rest", "requests of a commit", requests, "", 3).judged(),
        Result(
            "rest",
            "commit: more than a local one, with the server's work",
            sorted(extra)[len(extra) // 2],
            "ms",
            None,
            low=min(extra),
            high=max(extra),
        ),
    ]
    _make_tables(served, local, Path(folder), tables)
    listing = alternate({"served": lambda: served.list_tables("many")}, rounds)["served"]
    seen = Catalog(WAREHOUSE, {**options, "uri": proxy.url})
    seen.list_databases()
    proxy.requests.clear()
    count = len(seen.list_tables("many"))
    assert count == tables
    pages = max(sum("pageToken" in path for _, path in proxy.requests) + 1, 1)
    results += [
        Result("rest", f"list {tables} tables", listing.median, "s", 2, note=f"{pages} pages").judged(),
        Result("rest", "requests of a page", len(proxy.requests) / pages, "", 3).judged(),
    ]
    load = alternate(
        {
            "served": _load(WarehouseResource(path=f"rest:{server.url}", catalog_options={"warehouse": WAREHOUSE})),
            "local": _load(WarehouseResource(path=str(folder / "local"))),
        },
        rounds,
    )
    ratio = load["served"].median / load["local"].median
    note = f"{load['served'].median:.2f} s and {load['local'].median:.2f} s"
    return [
        *results,
        Result("rest", f"the platform's load of {tables} tables, over a folder", ratio, "x", 1.5, note=note).judged(),
    ]


def _commit(catalog: Catalog) -> None:
    table = catalog.table("one.t")
    for number in range(COMMITS):
        table.write(pa.table({"k": [number], "v": ["a"]}, schema=FIELDS))


def _make_tables(served: Catalog, local: Catalog, folder: Path, tables: int) -> None:
    """Create the same tables in both warehouses; those of the folder are copies of one schema file."""
    for catalog in (served, local):
        catalog.create_database("many")
    first = local.create_table("many.t0", FIELDS, primary_keys=["k"], options={"bucket": "1"})
    source = Path(schema_path(first.store.root, 0))
    for number in range(tables):
        served.create_table(f"many.t{number}", FIELDS, primary_keys=["k"], options={"bucket": "1"})
        target = folder / "local" / "many.db" / f"t{number}" / "schema" / source.name
        if number:
            os.makedirs(target.parent)
            shutil.copyfile(source, target)


def _load(warehouse: WarehouseResource) -> Callable[[], object]:
    return partial(describe_warehouse, warehouse)
