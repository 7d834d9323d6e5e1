"""What a caller named that is not there: buckets that a table cannot have are refused, empty places are told with their reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.errors import InvalidOption
from lsm_core.format.partition_path import partition_text
from lsm_core.maintenance.plan import Declined, bucket_name
from lsm_core.metadata.store import TableStore

Listing = Callable[[], pa.Table]
"""Live entries of the chosen partitions, whatever their bucket; only asked for when something named holds no file."""
PLACE_COLUMNS = ("partition", "bucket", "total_buckets")


def missing_places(
    store: TableStore,
    found: Collection[tuple[bytes, int]],
    partitions: Sequence[bytes] | None,
    buckets: Sequence[int] | None,
    listing: Listing,
) -> list[Declined]:
    """A reason for every named partition or bucket that holds no file; ``found`` are the (partition, bucket) that do.

    Raises InvalidOption naming a bucket that no partition can have, and how many there are.
    """
    for name, named in (("partitions", partitions), ("buckets", buckets)):
        if named is not None and not named:
            return [Declined("table", "empty", f"the list of {name} is empty: nothing is chosen")]
    absent = sorted(set(buckets or ()) - {bucket for _, bucket in found})
    here = {partition for partition, _ in found}
    unseen = [partition for partition in dict.fromkeys(partitions or ()) if partition not in here]
    if buckets is not None and (unseen or absent):
        table = listing()
        _require_buckets(store, absent, table)
        here = set(pc.unique(table.column("partition")).to_pylist())
        unseen = [partition for partition in unseen if partition not in here]
    texts = [partition_text(store.schema, partition, store.options) for partition in unseen]
    told = [Declined(text or "table", "empty", "no file lies there", {}, text) for text in texts]
    alone = [Declined(bucket_name("", bucket), "empty", "no file lies there", {}, "", bucket) for bucket in absent]
    return told if told and not here else [*told, *alone]


def _require_buckets(store: TableStore, absent: Sequence[int], entries: pa.Table) -> None:
    """Refuse ``absent`` buckets beyond the option `bucket` and beyond all that ``entries`` of live files tell of."""
    if store.options.bucket > 0:
        count = max(store.options.bucket, pc.max(entries.column("total_buckets")).as_py() or 0)
    else:
        newest = pc.max(entries.column("bucket")).as_py()
        count = 0 if newest is None else max(newest + 1, 0)
    wrong = [bucket for bucket in absent if bucket < 0 or (count and bucket >= count)]
    if wrong:
        accepted = (
            f"0 to {count - 1}: there {'is 1 bucket' if count == 1 else f'are {count} buckets'}"
            if count
            else "0 or more"
        )
        raise InvalidOption("buckets", wrong[0] if len(wrong) == 1 else wrong, accepted, store.name)


__all__ = ["PLACE_COLUMNS", "Listing", "missing_places"]
