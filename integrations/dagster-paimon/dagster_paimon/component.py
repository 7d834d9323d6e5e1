"""`PaimonTables`: a component that declares the tables of a warehouse as external assets."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field

from dagster_paimon.resource import open_catalog
from dagster_paimon.table_metadata import table_metadata
from lsm_core import Catalog, Table
from lsm_core.errors import DredgeError

_LOG = logging.getLogger("dagster_paimon")


@dataclass(frozen=True)
class PaimonTableProps:
    """Properties of a table for the hook ``translation``.

    Attributes:
        database: name of the database.
        name: name of the table in it.
        comment: comment of the table, or "".
        primary_keys: key columns.
        partition_keys: partition columns.
        options: options by key.
    """

    database: str
    name: str
    comment: str
    primary_keys: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: dict[str, str]

    @staticmethod
    def of(table: Table) -> PaimonTableProps:
        """Return the properties of a table."""
        database, _, name = table.name.partition(".")
        return PaimonTableProps(
            database,
            name,
            table.schema.comment or "",
            tuple(table.primary_keys),
            tuple(table.partition_keys),
            dict(table.options),
        )


class PaimonTables(dg.Component, dg.Model, dg.Resolvable):
    """Declares the tables of an Apache Paimon warehouse as external assets, with columns, location and options.

    The definitions list the tables when the code location loads; they read no data. A table that cannot be opened is
    left out with a warning. Assets of the project may depend on these keys, and `PaimonIOManager` loads them.

    Examples:
        ```yaml
        type: dagster_paimon.PaimonTables
        attributes:
          warehouse: /data/warehouse
          include: ["shop.*"]
          exclude: ["shop.tmp_*"]
          translation:
            key: "lake/{{ props.database }}/{{ props.name }}"
            group_name: "{{ props.database }}"
        ```
    """

    warehouse: str = Field(
        description=(
            "location of the tables: a folder (relative paths start at the project) or an address of an object store"
        ),
        examples=["/data/warehouse", "s3://lake/warehouse"],
    )
    catalog_options: dict[str, str] = Field(
        default_factory=dict, description="options of the catalog (metastore, s3.endpoint, ...); no secrets"
    )
    include: list[str] = Field(
        default_factory=lambda: ["*"],
        description="patterns (* and ?) of the tables to declare, database.table",
    )
    exclude: list[str] = Field(default_factory=list, description="patterns of the names of tables to leave out")
    translation: (
        Annotated[
            TranslationFn[PaimonTableProps],
            TranslationFnResolver[PaimonTableProps](lambda props: {"props": props}),
        ]
        | None
    ) = Field(
        None,
        description=(
            "attributes of each asset (key, group_name, tags, owners, metadata ...); props has database, name, "
            "comment, primary_keys, partition_keys and options"
        ),
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one asset for each table.

        Args:
            context: context of the component; relative paths start at its project.

        Raises:
            lsm_core.errors.DredgeError: the catalog cannot be listed.
        """
        local = bool(self.warehouse.strip()) and "://" not in self.warehouse
        warehouse = str(context.project_root / self.warehouse) if local else self.warehouse
        catalog = open_catalog(warehouse, self.catalog_options)
        return dg.Definitions(assets=[self.asset_spec(table) for table in self._tables(catalog)])

    def asset_spec(self, table: Table) -> dg.AssetSpec:
        """Return the asset of a table, as the hook ``translation`` changes it. Subclasses may override this method.

        Args:
            table: the table.
        """
        props = PaimonTableProps.of(table)
        spec = dg.AssetSpec(
            [props.database, props.name],
            description=props.comment or None,
            group_name=props.database if props.database.isidentifier() else None,
            metadata={
                **table_metadata(table),
                "primary keys": list(props.primary_keys),
                "partition keys": list(props.partition_keys),
            },
            kinds={"paimon"},
        )
        return spec if self.translation is None else self.translation(spec, props)

    def _tables(self, catalog: Catalog) -> list[Table]:
        """Return the tables to declare, by name."""
        tables = []
        for database in catalog.list_databases():
            for short in catalog.list_tables(database):
                name = f"{database}.{short}"
                if not _matches(name, self.include) or _matches(name, self.exclude):
                    continue
                try:
                    tables.append(catalog.table(name))
                except DredgeError as error:
                    _LOG.warning("table %s is left out of the assets: %s", name, error)
        return tables


def _matches(name: str, patterns: list[str]) -> bool:
    """Return whether a name matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
