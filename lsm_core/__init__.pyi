# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from lsm_core.table import Catalog as Catalog
from lsm_core.table import Schema as Schema
from lsm_core.table import SchemaChange as SchemaChange
from lsm_core.table import Table as Table

__version__: str
