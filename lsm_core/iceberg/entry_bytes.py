"""Removal of files from a manifest by its bytes, without decoding its entries.

A commit that removes ten of 100,000 files must not decode 100,000 entries. All entries of a manifest begin with the
same fields, and the paths of their files with the table's address. So the starts of the entries are found by searching
for the address, and counts of the manifest's row prove that none was missed or invented. Where they do not agree, the
caller decodes the entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsm_core.arrays import I64, U8, Bools, numpy_array, offsets_from, slice_places
from lsm_core.errors import CorruptFile
from lsm_core.format import avro
from lsm_core.iceberg.manifest_entries import EntryStatus
from lsm_core.iceberg.manifest_files import IcebergManifest, ManifestContent

_PRESENT: Final = 2
"""Byte before a value that may be null: branch 1 of the union of null and the value."""
_MOST_DIGITS: Final = 10
_BLOCK_BYTES: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 20
"""Decompressed bytes that are looked at together; the blocks themselves are about 64 KiB."""
_NOTHING: Final = pa.table({"record_count": pa.array([], pa.int64()), "file_size_in_bytes": pa.array([], pa.int64())})
_MOST_SEARCHED: Final = 200
"""File names that are searched in the bytes; with more names, those of all entries are compared."""


@dataclass(frozen=True)
class EntryPlaces:
    """Positions of the entries in the decompressed bytes of a manifest.

    Attributes:
        data: bytes of all entries.
        starts: position of each entry.
        ends: position after each entry.
        sequences: position of each entry's sequence number, after its snapshot id.
        status: status of each entry.
        paths: position of each entry's path.
        path_sizes: bytes of each entry's path.
    """

    data: U8
    starts: I64
    ends: I64
    sequences: I64
    status: npt.NDArray[np.uint8]
    paths: I64
    path_sizes: I64

    def names(self, chosen: I64) -> pa.Array:
        """Return the file names of some entries, as bytes.

        Args:
            chosen: numbers of the entries.
        """
        sizes = self.path_sizes[chosen]
        text = self.data[slice_places(self.paths[chosen], sizes)]
        offsets = offsets_from(sizes).astype(np.int32)
        paths = pa.Array.from_buffers(pa.binary(), len(chosen), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
        return pc.replace_substring_regex(paths, rb"^.*/", b"")

    def live(self) -> Bools:
        """Return whether the snapshot of the manifest has the file of each entry."""
        is_live: Bools = self.status != EntryStatus.DELETED
        return is_live


@dataclass(frozen=True)
class Rewriting:
    """A manifest after a look at its entries.

    Attributes:
        known: names of the added files that the manifest has already.
        removed: entries of the removed files, as columns.
        data: content of the new manifest; empty if no file is removed.
        row: its row of the manifest list, without a file name.
    """

    known: pa.Array
    removed: pa.Table
    data: bytes
    row: IcebergManifest


def rewrite(
    container: avro.Container,
    manifest: IcebergManifest,
    address: str,
    names: tuple[pa.Array, pa.Array],
    snapshot_id: int,
) -> Rewriting | None:
    """Return a manifest without some files: their entries become deletions, and earlier deletions end.

    Memory holds the compressed manifest and about one MiB of entries.

    Args:
        container: the manifest.
        manifest: its row of the manifest list.
        address: address of the table's folder, with which the paths of the entries begin.
        names: names of files that the snapshot adds, and of files that it removes.
        snapshot_id: id of the snapshot.

    Returns:
        The rewriting, or None if the entries cannot be found by the address.

    Raises:
        CorruptFile: the manifest is damaged.
    """
    added_names, removed_names = names
    if manifest.content is not ManifestContent.DATA:
        return None
    known: list[pa.Array] = [pa.array([], pa.string())]
    members: list[pa.Table] = []
    frames: list[bytes] = []
    counts = np.zeros(len(EntryStatus), np.int64)
    for rows, plains in _chunks(container):
        places = find_entries(plains, rows, address)
        if places is None:
            return None
        counts += np.bincount(places.status, minlength=len(EntryStatus))
        known.append(names_of(places, find_named(places, added_names)))
        removed = find_named(places, removed_names)
        if removed.any():
            members.append(_members(container, places, removed))
        records = _changed_records(places, removed, snapshot_id)
        frames += avro.blocks(records, container.codec, 1, container.sync, _BLOCK_BYTES)
    if counts.tolist() != [manifest.existing_files, manifest.added_files, manifest.deleted_files]:
        return None
    if not members:
        return Rewriting(pa.concat_arrays(known), _NOTHING, b"", manifest)
    lost = pa.concat_tables(members)
    rows_removed = pc.sum(lost.column("record_count")).as_py()
    data = b"".join([avro.header(container.schema, container.codec, container.sync), *frames])
    row = replace(
        manifest,
        name="",
        length=len(data),
        sequence_number=snapshot_id,
        snapshot_id=snapshot_id,
        added_files=0,
        existing_files=manifest.live_files - lost.num_rows,
        deleted_files=lost.num_rows,
        added_rows=0,
        existing_rows=manifest.live_rows - rows_removed,
        deleted_rows=rows_removed,
    )
    return Rewriting(pa.concat_arrays(known), lost, data, row)


def _chunks(container: avro.Container) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the decompressed blocks of a manifest, some at a time, with the number of their records."""
    plains: list[bytes] = []
    rows = size = 0
    for block in container.blocks:
        plains.append(container.plain(block))
        rows, size = rows + block.rows, size + len(plains[-1])
        if size >= _CHUNK_BYTES:
            yield rows, plains
            plains, rows, size = [], 0, 0
    if rows:
        yield rows, plains


def _members(container: avro.Container, places: EntryPlaces, chosen: Bools) -> pa.Table:
    """Return the row count and size (bytes) of some entries' files."""
    lost = np.flatnonzero(chosen)
    plain = places.data[slice_places(places.starts[lost], (places.ends - places.starts)[lost])].tobytes()
    entries = avro.decode_block(container, plain, len(lost))
    values = dict(zip([f.name for f in entries["data_file"].type], entries["data_file"].flatten(), strict=True))
    return pa.table({name: values[name] for name in _NOTHING.column_names})


def find_entries(plains: Sequence[bytes], count: int, address: str) -> EntryPlaces | None:
    """Return the positions of the entries of some blocks.

    Args:
        plains: decompressed blocks.
        count: number of their entries.
        address: address of the table's folder, with which the paths of the entries begin.

    Returns:
        The positions, or None if they cannot be found by the address.
    """
    prefix = f"{address}/".encode()
    # The padding lets the search read before the first entry and after the last.
    data: U8 = np.frombuffer(b"".join([bytes(_MOST_DIGITS * 5), *plains, bytes(len(prefix))]), np.uint8)
    first, last = _MOST_DIGITS * 5, len(data) - len(prefix)
    paths = _find(data, np.frombuffer(prefix, np.uint8))
    paths = paths[paths >= first]
    if len(paths) < count or not count:
        return None
    lengths, is_valid = _header(data, paths)
    path_sizes = lengths.pop("path")
    starts = lengths["start"]
    chosen = np.flatnonzero(is_valid & (starts >= first) & (paths + path_sizes <= last))
    starts = starts[chosen]
    if len(starts) != count or int(starts[0]) != first:
        return None
    status: npt.NDArray[np.uint8] = data[starts] >> np.uint8(1)
    ends = np.r_[starts[1:], last]
    sizes = path_sizes[chosen]
    if (sizes <= 0).any() or (paths[chosen] + sizes > ends).any():
        return None
    return EntryPlaces(data, starts, ends, lengths["sequence"][chosen], status, paths[chosen], sizes)


def _find(data: U8, prefix: U8) -> I64:
    """Return the positions of a prefix, ascending."""
    # The last bytes of an address are rarer in a manifest than its first one.
    tail = len(prefix) - 1
    places = np.flatnonzero(data == prefix[tail]) - tail
    places = places[places >= 0]
    for offset in range(tail - 1, -1, -1):
        places = places[data[places + offset] == prefix[offset]]
    return places


def _header(data: U8, paths: I64) -> tuple[dict[str, I64], Bools]:
    """Return the positions of the fields before each path, read backwards, and whether they are those of an entry.

    Args:
        data: bytes of all entries, after enough padding.
        paths: positions that may be the beginning of an entry's path.
    """
    path_place, sizes, is_valid = _number_before(data, paths)
    is_valid &= data[path_place - 1] == 0  # the content: data
    place = path_place - 1
    fields: dict[str, I64] = {"path": sizes}
    for name in ("file_sequence", "sequence", "snapshot"):
        place, _, fits = _number_before(data, place)
        is_valid &= fits & (data[place - 1] == _PRESENT)
        place = place - 1
        fields[name] = place
    start = place - 1
    is_valid &= (data[start] <= 2 * EntryStatus.DELETED) & (data[start] % 2 == 0)
    fields["start"] = start
    return fields, is_valid


def _number_before(data: U8, ends: I64) -> tuple[I64, I64, Bools]:
    """Return position and value of the number that ends before each position, and whether there is one.

    The byte before the number must be below 128, which holds for the fields of an entry.
    """
    starts = ends - 1
    is_valid = data[starts] < 0x80
    values = data[starts].astype(np.int64)
    continues = data[starts - 1] >= 0x80
    for _ in range(_MOST_DIGITS - 1):
        if not continues.any():
            break
        starts = np.where(continues, starts - 1, starts)
        values = np.where(continues, (values << 7) | (data[starts] & 0x7F), values)
        continues &= data[starts - 1] >= 0x80
    return starts, (values >> 1) ^ -(values & 1), is_valid & ~continues


def _changed_records(places: EntryPlaces, removed: Bools, snapshot_id: int) -> avro.Piece:
    """Return the live entries, those of removed files as deletions of a snapshot, all others as existing files."""
    data = places.data.copy()
    data[places.starts[~removed]] = 2 * EntryStatus.EXISTING
    head = bytes([2 * EntryStatus.DELETED, _PRESENT]) + avro.varint(snapshot_id)
    dropped = places.status == EntryStatus.DELETED
    special = np.flatnonzero(removed | dropped)
    # Entries between two special ones are copied together.
    pieces: list[Any] = []
    copied = int(places.starts[0])
    bounds = (places.starts[special], places.sequences[special], places.ends[special], removed[special])
    for start, sequence, end, is_removed in zip(*bounds, strict=True):
        pieces.append(data[copied:start])
        if is_removed:
            pieces += [np.frombuffer(head, np.uint8), data[sequence:end]]
        copied = int(end)
    pieces.append(data[copied : int(places.ends[-1])])
    lengths = places.ends - places.starts
    lengths[removed] = len(head) + (places.ends - places.sequences)[removed]
    return avro.Piece(lengths[~dropped], np.concatenate(pieces))


def find_named(places: EntryPlaces, names: pa.Array) -> Bools:
    """Return whether each entry is live and has one of some file names."""
    named = np.zeros(len(places.starts), np.bool_)
    if not len(names):
        return named
    values = names.cast(pa.binary())
    if len(values) > _MOST_SEARCHED:
        candidates = np.arange(len(places.starts))
    else:  # a search reads the bytes once, whatever their number
        pattern = re.compile(b"|".join(map(re.escape, values.to_pylist())))
        hits = np.array([hit.start() for hit in pattern.finditer(places.data.data)], np.int64)
        candidates = np.unique(np.searchsorted(places.starts, hits, side="right") - 1)
        candidates = candidates[candidates >= 0]
    chosen = numpy_array(pc.is_in(places.names(candidates), values))
    named[candidates[chosen]] = True
    return named & places.live()


def names_of(places: EntryPlaces, chosen: Bools) -> pa.Array:
    """Return the file names of some entries as texts.

    Raises:
        CorruptFile: a name is no text.
    """
    try:
        return places.names(np.flatnonzero(chosen)).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptFile("manifest", f"the path of a file is no text: {error}") from error
