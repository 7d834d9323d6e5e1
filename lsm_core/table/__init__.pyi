# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from lsm_core.table.catalog import Catalog as Catalog
from lsm_core.table.definition import Schema as Schema
from lsm_core.table.schema_change import SchemaChange as SchemaChange
from lsm_core.table.table import Table as Table
