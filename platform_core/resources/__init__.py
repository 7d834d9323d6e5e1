"""Resources of ops, sensors and checks: the warehouse (tables and clock), Spark, and the ledger."""

from __future__ import annotations

from platform_core.resources.spark_resource import SparkResource
from platform_core.resources.warehouse import LedgerResource, WarehouseResource, describe_warehouse, warehouse_path
