"""Apache Paimon tables in Dagster: a resource, an IO manager and a component over the engine `lsm_core` of Dredge."""

from dagster_shared.libraries import DagsterLibraryRegistry

from dagster_paimon.component import PaimonTables
from dagster_paimon.io_manager import PaimonIOManager
from dagster_paimon.resource import PaimonResource
from dagster_paimon.version import __version__

__all__ = ["PaimonIOManager", "PaimonResource", "PaimonTables", "__version__"]


DagsterLibraryRegistry.register("dagster-paimon", __version__, is_dagster_package=False)
