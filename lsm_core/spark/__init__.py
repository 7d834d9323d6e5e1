"""Dredge on Spark: sessions, the data source `dredge`, and jobs that write, read, compact, expire and verify tables.

No function imports pyspark before it is called, so that the search for a Java or the name of an error needs no Spark.
Every call takes a `lsm_core.Table` (or its `TableStore`), and works on classic and on Connect sessions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lsm_core.spark.connect import ConnectServer as ConnectServer
    from lsm_core.spark.connect import await_server as await_server
    from lsm_core.spark.connect import running_server as running_server
    from lsm_core.spark.connect import start_server as start_server
    from lsm_core.spark.connect import stop_server as stop_server
    from lsm_core.spark.data_source import register as register
    from lsm_core.spark.java import find_java as find_java
    from lsm_core.spark.session import spark_session as spark_session
    from lsm_core.spark.session import stop_session as stop_session
    from lsm_core.spark.spark_changes import SkippedKeys as SkippedKeys
    from lsm_core.spark.spark_changes import delete_keys as delete_keys
    from lsm_core.spark.spark_changes import delete_where as delete_where
    from lsm_core.spark.spark_changes import update_where as update_where
    from lsm_core.spark.spark_changes import upsert as upsert
    from lsm_core.spark.spark_check import deep_read as deep_read
    from lsm_core.spark.spark_maintenance import compact_table as compact_table
    from lsm_core.spark.spark_maintenance import expire_snapshots as expire_snapshots
    from lsm_core.spark.spark_maintenance import remove_orphan_files as remove_orphan_files
    from lsm_core.spark.spark_maintenance import rescale_table as rescale_table
    from lsm_core.spark.spark_maintenance import spark_runner as spark_runner
    from lsm_core.spark.spark_read import explain_read as explain_read
    from lsm_core.spark.spark_read import read_table as read_table
    from lsm_core.spark.spark_sql import call as call
    from lsm_core.spark.spark_sql import sql as sql
    from lsm_core.spark.spark_tasks import await_query as await_query
    from lsm_core.spark.spark_verify import verify_table as verify_table
    from lsm_core.spark.spark_write import write_table as write_table
    from lsm_core.spark.table_views import create_view as create_view
    from lsm_core.spark.table_views import query_tables as query_tables
    from lsm_core.spark.table_views import refresh as refresh

_WHERE = {
    "ConnectServer": "connect",
    "SkippedKeys": "spark_changes",
    "await_query": "spark_tasks",
    "await_server": "connect",
    "call": "spark_sql",
    "compact_table": "spark_maintenance",
    "create_view": "table_views",
    "deep_read": "spark_check",
    "delete_keys": "spark_changes",
    "delete_where": "spark_changes",
    "expire_snapshots": "spark_maintenance",
    "explain_read": "spark_read",
    "find_java": "java",
    "query_tables": "table_views",
    "read_table": "spark_read",
    "refresh": "table_views",
    "register": "data_source",
    "remove_orphan_files": "spark_maintenance",
    "rescale_table": "spark_maintenance",
    "running_server": "connect",
    "spark_runner": "spark_maintenance",
    "spark_session": "session",
    "sql": "spark_sql",
    "start_server": "connect",
    "stop_server": "connect",
    "stop_session": "session",
    "update_where": "spark_changes",
    "upsert": "spark_changes",
    "verify_table": "spark_verify",
    "write_table": "spark_write",
}

__all__ = [
    "ConnectServer",
    "SkippedKeys",
    "await_query",
    "await_server",
    "call",
    "compact_table",
    "create_view",
    "deep_read",
    "delete_keys",
    "delete_where",
    "expire_snapshots",
    "explain_read",
    "find_java",
    "query_tables",
    "read_table",
    "refresh",
    "register",
    "remove_orphan_files",
    "rescale_table",
    "running_server",
    "spark_runner",
    "spark_session",
    "sql",
    "start_server",
    "stop_server",
    "stop_session",
    "update_where",
    "upsert",
    "verify_table",
    "write_table",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _WHERE:
        return getattr(import_module(f"lsm_core.spark.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'lsm_core.spark' has no attribute {name!r}")
