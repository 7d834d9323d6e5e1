# Public names of the package: `__init__.py` imports each on first use, type checkers read them here.
from dredge.orchestration.component import PaimonWarehouse as PaimonWarehouse
from dredge.orchestration.definitions import build_definitions as build_definitions

__version__: str
