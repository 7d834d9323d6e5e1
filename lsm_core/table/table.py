"""The Table facade: every verb of the engine on one table, each delegating to the room that does it (api.md)."""

from __future__ import annotations

from collections.abc import Mapping

from lsm_core.format.schema import TableSchema
from lsm_core.table.verbs import Changing, Maintaining, Reading


class Table(Changing, Reading, Maintaining):
    """One table of a catalog. Immutable: after a schema change open it again. ``store`` is its state for the rooms below."""

    def __repr__(self) -> str:
        return f"Table({self.store.name!r})"

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """ "db.table"."""
        return self.store.name

    @property
    def schema(self) -> TableSchema:
        """The schema in use; ``schema.arrow_schema`` is its Arrow form."""
        return self.store.schema

    @property
    def options(self) -> Mapping[str, str]:
        """Options in force, dynamic ones included."""
        return self.store.options.raw

    @property
    def primary_keys(self) -> tuple[str, ...]:
        """Primary key columns."""
        return self.store.schema.primary_keys

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Partition columns."""
        return self.store.schema.partition_keys

    def copy(self, options: Mapping[str, str]) -> Table:
        """The same table with dynamic options on top. Raises InvalidOption for an immutable one."""
        return Table(self.store.copy(options))
