"""What ops, sensors and checks work with: the warehouse (tables and the clock), Spark, and the ledger of what was done."""

from __future__ import annotations

from orchestration.resources.spark_resource import SparkResource
from orchestration.resources.warehouse import LedgerResource, WarehouseResource, describe_warehouse, warehouse_path

__all__ = ["LedgerResource", "SparkResource", "WarehouseResource", "describe_warehouse", "warehouse_path"]
