"""Partitions of one table in a Hive metastore: added, removed and marked done.

Source: Paimon `HiveCatalog.createPartitions`, `HiveCatalog.dropPartitions`, `HiveCatalog.markDonePartitions`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pymetastore.hive_metastore.ttypes import AddPartitionsRequest, GetTableRequest, PartitionEventType, Table

from lsm_core.clock import Clock
from lsm_core.errors import MetastoreFailed, TableNotFound
from lsm_core.locks.hive_client import CallUnknown, HiveClient, HiveRefusal
from lsm_core.table import hive_entries as entries

_LOG = logging.getLogger(__name__)
_BATCH: Final = 500
_KEEP_FILES: Final = False
_MOST_KNOWN: Final = 10_000
_KNOWN_SECONDS: Final = 1800.0
_PATH_DIRECTORY: Final = "data-file.path-directory"


class HivePartitions:
    """List of the partitions of one table in a Hive metastore; see `PartitionList`.

    Adding and removing a partition twice is harmless, so a call whose answer is lost is sent again. A partition that
    this process has added is not sent again for half an hour.

    Args:
        client: the client of the metastore.
        database: name of the database.
        table: name of the table.
        clock: clock for the times of entries.
        in_properties: whether locations are properties.
    """

    def __init__(self, client: HiveClient, database: str, table: str, clock: Clock, *, in_properties: bool) -> None:
        self._client, self._database, self._table, self._clock = client, database, table, clock
        self._in_properties = in_properties
        self._known: dict[tuple[str, ...], float] = {}

    def add(self, partitions: Sequence[tuple[Mapping[str, str], str]]) -> None:
        """Add partitions; those that are listed stay as they are. See `PartitionList.add`."""
        now = time.monotonic()
        self._known = {key: ends for key, ends in self._known.items() if now < ends}
        new = {tuple(spec.values()): directory for spec, directory in partitions}
        new = {values: directory for values, directory in new.items() if values not in self._known}
        if not new:
            return
        entry = self._entry()
        if not entry.partitionKeys:
            _LOG.debug("table %s.%s has no partitions in the metastore", self._database, self._table)
            return
        location = entries.location_of(entry, in_properties=self._in_properties).rstrip("/")
        folder = entries.parameters_of(entry).get(_PATH_DIRECTORY, "").strip("/")
        location = f"{location}/{folder}" if folder else location
        added = [
            entries.new_partition(
                entry,
                values,
                f"{location}/{directory}",
                self._clock.now_ms(),
                in_properties=self._in_properties,
            )
            for values, directory in new.items()
        ]
        for start in range(0, len(added), _BATCH):
            batch = added[start : start + _BATCH]
            request = AddPartitionsRequest(self._database, self._table, batch, ifNotExists=True, needResult=False)
            try:
                self._send("add_partitions_req", request)
            except HiveRefusal as refusal:
                raise self._failed(refusal) from refusal
        if len(self._known) + len(new) > _MOST_KNOWN:
            self._known.clear()
        self._known |= dict.fromkeys(list(new)[:_MOST_KNOWN], now + _KNOWN_SECONDS)

    def remove(self, partitions: Sequence[Mapping[str, str]]) -> None:
        """Remove partitions from the list, not their files. See `PartitionList.remove`."""
        for spec in partitions:
            values = list(spec.values())
            self._known.pop(tuple(values), None)
            try:
                self._send("drop_partition", self._database, self._table, values, _KEEP_FILES)
            except HiveRefusal as refusal:
                if not refusal.is_absence:
                    raise self._failed(refusal) from refusal

    def mark_partitions_done(self, partitions: Sequence[Mapping[str, str]], branch: str) -> None:
        """Mark partitions as loaded, for Hive's `isPartitionMarkedForEvent`. See `PartitionList`."""
        del branch  # the metastore lists the partitions of a table, not of its branches
        for spec in partitions:
            arguments = (self._database, self._table, dict(spec), PartitionEventType.LOAD_DONE)
            try:
                self._send("markPartitionForEvent", *arguments)
            except HiveRefusal as refusal:
                raise self._failed(refusal) from refusal

    def _entry(self) -> Table:
        try:
            answer = self._client.read("get_table_req", GetTableRequest(self._database, self._table))
        except HiveRefusal as refusal:
            if refusal.is_absence:
                name = f"{self._database}.{self._table}"
                raise TableNotFound(f"table {name} was dropped or renamed since it was opened; open it again") from (
                    refusal
                )
            raise self._failed(refusal) from refusal
        entry = getattr(answer, "table", None)
        if not isinstance(entry, Table) or not entries.is_paimon(entry):
            reason = f"its entry {self._database}.{self._table} is no Paimon table any more"
            raise MetastoreFailed(self._client.address, reason)
        return entry

    def _send(self, method: str, *arguments: Any) -> None:
        """Send a call that may be repeated. Raises HiveRefusal and MetastoreFailed."""
        for attempt in (1, 2):
            try:
                self._client.change(method, *arguments)
            except CallUnknown as error:
                if attempt == 2:
                    raise MetastoreFailed(self._client.address, f"its answer is missing twice ({error})") from error
            else:
                return

    def _failed(self, refusal: HiveRefusal) -> MetastoreFailed:
        return MetastoreFailed(self._client.address, f"it answered {refusal}")
