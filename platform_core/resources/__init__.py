"""Resources of ops, sensors and checks: the warehouse (tables and clock), Spark, and the ledger.

Settings and secrets come from the environment. No resource decides about maintenance. Begin with `warehouse`.
"""

from __future__ import annotations

from dredge.platform_core.resources.spark_resource import SparkResource
from dredge.platform_core.resources.warehouse import (
    LedgerResource,
    WarehouseResource,
    describe_warehouse,
    warehouse_path,
)
