"""Tags that protect the version of a running read from expiry (`scan.plan-auto-tag-for-read.time-retained`).

Source: ``BatchReadTagCreator`` of Paimon 2.0.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pyarrow as pa

from lsm_core.errors import DredgeError
from lsm_core.metadata import snapshots, tags
from lsm_core.read.scan import Scan

TIME_RETAINED: Final = "scan.plan-auto-tag-for-read.time-retained"
PREFIX: Final = "batch-read-"
_LOG = logging.getLogger(__name__)


def protected(scan: Scan) -> Scan:
    """Return the scan with a new tag of its snapshot, if the table's options ask for the tag.

    The tag expires after the time of the option, unless the read deletes it before (:func:`releasing`). If the tag
    cannot be written, a warning is logged and the read continues without it.
    """
    time_retained_ms = scan.store.options.get(TIME_RETAINED)
    if time_retained_ms is None or scan.snapshot is None or not scan.splits:
        return scan
    name = f"{PREFIX}{scan.snapshot.id}-{uuid.uuid4().hex[:8]}"
    try:
        tags.create(scan.store, name, tags.made_now(scan.store, scan.snapshot, int(time_retained_ms)))
    except (OSError, DredgeError) as error:
        _LOG.warning(
            "table %s: snapshot %d is read without a tag against expiry: %s", scan.store.name, scan.snapshot.id, error
        )
        return scan
    return replace(scan, read_tag=name)


@contextmanager
def releasing(scan: Scan) -> Iterator[None]:
    """Delete the scan's tag when the context ends.

    If the snapshot expired meanwhile, the tag stays until its own expiry, which also deletes the files that only the
    tag keeps.
    """
    try:
        yield
    finally:
        if scan.read_tag is not None and scan.snapshot is not None:
            try:
                if snapshots.exists(scan.store, scan.snapshot.id):
                    tags.delete(scan.store, scan.read_tag)
            except (OSError, DredgeError) as error:
                _LOG.warning("table %s: tag %s stays until it expires: %s", scan.store.name, scan.read_tag, error)


def with_release(scan: Scan, batches: Generator[pa.RecordBatch, None, None]) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of a scan, then delete its tag."""
    with releasing(scan):
        yield from batches
