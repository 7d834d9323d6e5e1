"""`PaimonResource`: the catalog of a warehouse, for ops and assets that read and write tables themselves."""

from __future__ import annotations

from typing import Any

import dagster as dg
from pydantic import Field

from lsm_core import Catalog, Table
from lsm_core.errors import InvalidOption


def open_catalog(warehouse: str, catalog_options: dict[str, str]) -> Catalog:
    """Return the catalog of a warehouse.

    Args:
        warehouse: path of a folder or address of an object store.
        catalog_options: options of the catalog by key.

    Raises:
        lsm_core.errors.InvalidOption: an option cannot be used.
        lsm_core.errors.UnsupportedFeature: no such store is supported.
    """
    if not warehouse.strip():
        raise InvalidOption("warehouse", warehouse, "a folder or an address of an object store")
    return Catalog(warehouse, catalog_options)


class PaimonResource(dg.ConfigurableResource[Any]):
    """Catalog of a Paimon warehouse.

    Keys of object stores come from the environment (`AWS_ACCESS_KEY_ID` ...), never from the configuration.

    Examples:
        ```python
        import dagster as dg
        from dagster_paimon import PaimonResource


        @dg.asset
        def order_count(paimon: PaimonResource) -> int:
            return paimon.table("shop.orders").to_arrow(columns=["id"]).num_rows


        defs = dg.Definitions([order_count], resources={"paimon": PaimonResource(warehouse="/data/warehouse")})
        ```
    """

    warehouse: str = Field(description="location of the tables: a folder or an address such as s3://bucket/folder")
    catalog_options: dict[str, str] = Field(
        default_factory=dict, description="options of the catalog (metastore, s3.endpoint, ...); no secrets"
    )

    def catalog(self) -> Catalog:
        """Return the catalog of the warehouse; a new object at each call. Raises as :func:`open_catalog`."""
        return open_catalog(self.warehouse, self.catalog_options)

    def table(self, name: str) -> Table:
        """Open a table.

        Args:
            name: "database.table", also of a branch ("db.table$branch_dev") or a system table ("db.table$files").

        Raises:
            lsm_core.errors.TableNotFound: the table does not exist.
        """
        return self.catalog().table(name)
