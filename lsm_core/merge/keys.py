"""Sort keys: int64 values, or byte strings compared eight bytes at a time (never through NumPy's `S` type)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_core.arrays import decimal_limbs, text_parts, valid_mask
from lsm_core.merge.comparable import (
    Bytes,
    Ints,
    Mask,
    is_text,
    numbers,
    width_of,
)

Words = npt.NDArray[np.uint64]
_WordsOf = Callable[[int, Ints], Words]
_PAD = 64
_SIGNED_BITS = 63
# masks of the first 0..8 bytes of a big-endian word
_KEEP = np.array([0, *(((1 << 64) - 1) ^ ((1 << (64 - 8 * n)) - 1) for n in range(1, 9))], dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class IntKeys:
    """Keys as int64."""

    values: Ints

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, stop: int) -> IntKeys:
        """Return the rows from ``start`` up to, but not including, ``stop``, without copying."""
        return IntKeys(self.values[start:stop])

    def take(self, rows: Ints) -> IntKeys:
        """Return the keys at ``rows``, in that order."""
        return IntKeys(self.values[rows])

    def scalar(self, row: int) -> int:
        """Return the key of one row as a value that Python compares."""
        return int(self.values[row])

    def bisect(self, key: int | bytes, right: bool) -> int:
        """Find the place of a key among these ascending keys.

        Args:
            key: the key.
            right: count rows equal to ``key`` too.

        Returns:
            Number of rows below ``key``, or not above it if ``right``.
        """
        return int(np.searchsorted(self.values, np.int64(key), "right" if right else "left"))

    def ascending(self) -> bool:
        """Return whether no key is smaller than the one before it."""
        return bool((self.values[1:] >= self.values[:-1]).all())

    def climbing(self) -> bool:
        """Return whether every key is larger than the one before it."""
        return bool((self.values[1:] > self.values[:-1]).all())

    def order(self, sorted_runs: bool = True) -> tuple[Ints, Mask]:
        """Return a stable permutation that sorts, and for its rows 1.. whether the key equals the one before.

        Args:
            sorted_runs: whether the rows are a few ascending runs, which a merging sort detects.
        """
        if (packed := self._with_places()) is not None:
            packed.sort()
            bits = np.int64(len(packed).bit_length())
            order = packed & ((np.int64(1) << bits) - np.int64(1))
            packed >>= bits
            return order, packed[1:] == packed[:-1]
        order = np.argsort(self.values, kind="stable") if sorted_runs else np.argsort(self.values)
        ranked = self.values[order]
        same = ranked[1:] == ranked[:-1]
        if not sorted_runs and same.any():
            order = np.argsort(self.values, kind="stable")
        return order, same

    def _with_places(self) -> Ints | None:
        """Return each key's distance from the smallest with its row number in the low bits.

        None means that it exceeds 63 bits.

        Sorting these numbers sorts the keys stably, and numbers are sorted in half the time of their positions.
        """
        if not len(self.values):
            return None
        low, bits = int(self.values.min()), len(self.values).bit_length()
        if (int(self.values.max()) - low).bit_length() + bits > _SIGNED_BITS:
            return None
        packed = self.values - np.int64(low)
        packed <<= np.int64(bits)
        packed |= np.arange(len(packed))
        return np.asarray(packed, dtype=np.int64)

    @staticmethod
    def concat(parts: Sequence[IntKeys]) -> IntKeys:
        """Return all rows, in order."""
        return parts[0] if len(parts) == 1 else IntKeys(np.concatenate([part.values for part in parts]))


@dataclass(frozen=True, eq=False)
class Lead:
    """Eight bytes of each key at ``position``; before that, all keys are equal as far as they reach."""

    position: int
    words: Words


@dataclass(frozen=True, eq=False)
class ByteKeys:
    """Keys as byte strings.

    Attributes:
        data: the bytes, with 64 spare bytes at the end.
        starts: first byte of each key.
        lengths: bytes of each key.
        width: length of all keys if they are equally long and contiguous, which makes reading several times faster;
            else 0.
        contiguous: whether each key starts where the one before it ends.
        known: a lead computed before, which is kept because computing it costs more than sorting by it.
    """

    data: Bytes
    starts: Ints
    lengths: Ints
    width: int = 0
    contiguous: bool = False
    known: Lead | None = None

    @staticmethod
    def of(data: Bytes, starts: Ints, lengths: Ints) -> ByteKeys:
        """Return keys over a copy of the part of ``data`` that they use.

        Args:
            data: bytes of all keys.
            starts: first byte of each key.
            lengths: bytes of each key.
        """
        if len(starts) == 0:
            return ByteKeys(np.zeros(_PAD, np.uint8), starts, lengths)
        contiguous = bool((starts[:-1] + lengths[:-1] == starts[1:]).all())
        if contiguous:
            low, high = int(starts[0]), int(starts[-1] + lengths[-1])
        else:
            low, high = int(starts.min()), int((starts + lengths).max())
        padded = np.empty(high - low + _PAD, np.uint8)
        padded[:-_PAD] = data[low:high]
        padded[-_PAD:] = 0
        width = int(lengths[0]) if contiguous and (lengths == lengths[0]).all() else 0
        return ByteKeys(padded, starts - low if low else starts, lengths, width, contiguous)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def bounds(self) -> tuple[int, int]:
        """The range of ``data`` that the keys (at least one) use."""
        if self.contiguous:
            return int(self.starts[0]), int(self.starts[-1] + self.lengths[-1])
        return int(self.starts.min()), int((self.starts + self.lengths).max())

    def slice(self, start: int, stop: int) -> ByteKeys:
        """Return the rows from ``start`` up to, but not including, ``stop``, without copying."""
        lead = self._lead_so_far
        part = None if lead is None else Lead(lead.position, lead.words[start:stop])
        return ByteKeys(self.data, self.starts[start:stop], self.lengths[start:stop], self.width, self.contiguous, part)

    def take(self, rows: Ints) -> ByteKeys:
        """Return the keys at ``rows``, in that order, over the same bytes."""
        return ByteKeys(self.data, self.starts[rows], self.lengths[rows])

    @property
    def _lead_so_far(self) -> Lead | None:
        return self.__dict__.get("lead", self.known)

    @cached_property
    def lead(self) -> Lead:
        """The first words that differ between keys."""
        longest = int(self.lengths.max(initial=0))
        if self.known is None and 0 < longest <= _PAD and not self.width:
            return self._lead_of_short(longest)
        position, words = (0, self.words(0)) if self.known is None else (self.known.position, self.known.words)
        while position + 8 < longest and words[0] == words[-1] and (words == words[0]).all():
            position += 8
            words = self.words(position)
        return Lead(position, words)

    def _lead_of_short(self, longest: int) -> Lead:
        """Compute :attr:`lead` for short keys.

        For these, reading the whole key costs no more than reading eight bytes.
        """
        width, shortest = -(-longest // 8) * 8, int(self.lengths.min())
        view = np.ndarray((len(self.data) - width + 1,), f"V{width}", self.data, strides=(1,))
        matrix = view[self.starts].view(np.dtype(">u8")).reshape(len(self), width // 8)
        for position in range(0, width, 8):
            column, last = matrix[:, position // 8], position + 8 >= longest
            whole = position + 8 <= shortest
            if not last and whole and column[0] == column[-1] and (column == column[0]).all():
                continue
            words = column.astype(np.uint64)
            if not whole:
                words &= _KEEP[np.clip(self.lengths - position, 0, 8)]
            if last or words[0] != words[-1] or (words != words[0]).any():
                break
        return Lead(position, words)

    def scalar(self, row: int) -> bytes:
        """Return the key of one row as a value that Python compares."""
        start = self.starts[row]
        return self.data[start : start + self.lengths[row]].tobytes()

    def bisect(self, key: int | bytes, right: bool) -> int:
        """Find the place of a key among these ascending keys.

        Args:
            key: the key.
            right: count rows equal to ``key`` too.

        Returns:
            Number of rows below ``key``, or not above it if ``right``.
        """
        low, high = 0, len(self)
        if isinstance(key, bytes) and high:
            # rows before those with the lead of `key` are smaller, all rows after them larger
            position, words = self.lead.position, self.lead.words
            key_prefix, common_prefix = (
                key[:position].ljust(position, b"\0"),
                self.scalar(0)[:position].ljust(position, b"\0"),
            )
            if key_prefix != common_prefix:
                return 0 if key_prefix < common_prefix else len(self)
            word = np.uint64(int.from_bytes(key[position : position + 8].ljust(8, b"\0"), "big"))
            low, high = int(np.searchsorted(words, word, "left")), int(np.searchsorted(words, word, "right"))
        return (bisect_right if right else bisect_left)(range(len(self)), key, low, high, key=self.scalar)

    def words(self, position: int, rows: Ints | None = None) -> Words:
        """Return eight bytes of each key as numbers.

        Args:
            position: first byte in each key.
            rows: rows to read; None for all.

        Returns:
            Big-endian uint64 words; bytes beyond a key's end are zero.
        """
        if rows is not None:
            return self.words_at(rows, position)
        if not self.width or position + 8 > self.width:
            return self._load(self.starts + position, self.lengths - position)
        # contiguous keys: a strided copy
        first = int(self.starts[0]) if len(self) else 0
        strided = np.ndarray((len(self),), np.dtype(">u8"), self.data, offset=first + position, strides=(self.width,))
        return strided.astype(np.uint64)

    def words_at(self, rows: Ints, positions: Ints | int) -> Words:
        """Return :meth:`words` with a position for each of the ``rows``."""
        return self._load(self.starts[rows] + positions, self.lengths[rows] - positions)

    def _load(self, offsets: Ints, remaining: Ints) -> Words:
        """Return eight bytes from each of the ``offsets``, with only the first ``remaining`` of them kept."""
        view = np.ndarray((len(self.data) - 7,), np.dtype(">u8"), self.data, strides=(1,))
        words = view[np.minimum(offsets, len(self.data) - 8)].astype(np.uint64)
        if len(remaining) and remaining.min() < 8:
            words &= _KEEP[np.clip(remaining, 0, 8)]
        return words

    def ascending(self) -> bool:
        """Return whether no key is smaller than the one before it."""
        tied = self._rows_tied_with_previous()
        return tied is not None and bool((self.lengths[tied] >= self.lengths[tied - 1]).all())

    def climbing(self) -> bool:
        """Return whether every key is larger than the one before it."""
        tied = self._rows_tied_with_previous()
        return tied is not None and bool((self.lengths[tied] > self.lengths[tied - 1]).all())

    def _rows_tied_with_previous(self) -> Ints | None:
        """Return the rows that equal the one before as far as the shorter of the two reaches.

        None means that a row is smaller than the one before.
        """
        if len(self) < 2:
            return np.zeros(0, np.int64)
        longest = int(self.lengths.max())
        position, words = self.lead.position, self.lead.words
        if (words[1:] < words[:-1]).any():
            return None
        tied = np.flatnonzero(words[1:] == words[:-1]) + 1
        while len(tied) and (position := position + 8) < longest:
            current, before = self.words(position, tied), self.words(position, tied - 1)
            if (current < before).any():
                return None
            tied = tied[current == before]
        return np.asarray(tied, np.int64)

    def order(self, sorted_runs: bool = True) -> tuple[Ints, Mask]:
        """Sort as :meth:`IntKeys.order`.

        Eight bytes after the common prefix decide almost all rows, later bytes only ties.

        Args:
            sorted_runs: not used; the sort of the words detects ascending runs.

        Returns:
            Stable permutation that sorts, and for its rows 1.. whether the key equals the one before.
        """
        if len(self) == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.bool_)
        longest = int(self.lengths.max())
        position, words = self.lead.position, self.lead.words
        order = np.argsort(words, kind="stable")
        ranked = words[order]
        same = ranked[1:] == ranked[:-1]
        position += 8
        while position < longest and same.any():
            _refine(order, same, self.words, position)
            position += 8
        if same.any() and int(self.lengths.min()) != longest:
            lengths = self.lengths[order]
            if (same & (lengths[1:] != lengths[:-1])).any():
                _refine(order, same, lambda _, rows: self.lengths[rows].astype(np.uint64), 0)
        return order, same

    @staticmethod
    def concat(parts: Sequence[ByteKeys]) -> ByteKeys:
        """Return all rows, in order; only the bytes in use are copied."""
        if len(parts) == 1:
            return parts[0]
        blocks, starts, base = [], [], 0
        for part in parts:
            if len(part) == 0:
                continue
            low, high = part.bounds
            blocks.append(part.data[low:high])
            starts.append(part.starts + (base - low))
            base += high - low
        blocks.append(np.zeros(_PAD, np.uint8))
        widths = {part.width for part in parts if len(part)}
        return ByteKeys(
            np.concatenate(blocks),
            np.concatenate(starts) if starts else np.zeros(0, np.int64),
            np.concatenate([part.lengths for part in parts]),
            widths.pop() if len(widths) == 1 else 0,
            contiguous=False,
            known=_joint_lead([part for part in parts if len(part)]),
        )


def _joint_lead(parts: Sequence[ByteKeys]) -> Lead | None:
    """Return a common lead of all parts, if each has one and the bytes before it agree."""
    leads = [lead for part in parts if (lead := part._lead_so_far) is not None]  # noqa: SLF001
    if not parts or len(leads) < len(parts):
        return None
    position = min(lead.position for lead in leads)
    firsts = [part.scalar(0).ljust(lead.position + 8, b"\0") for part, lead in zip(parts, leads, strict=True)]
    if any(first[:position] != firsts[0][:position] for first in firsts):
        return None
    words = [
        lead.words
        if lead.position == position
        else np.full(len(part), int.from_bytes(first[position : position + 8], "big"), np.uint64)
        for part, lead, first in zip(parts, leads, firsts, strict=True)
    ]
    return Lead(position, np.concatenate(words))


NormalisedKeys = IntKeys | ByteKeys


def _refine(order: Ints, same: Mask, words_of: _WordsOf, position: int) -> None:
    """Order the rows that are still equal by their next words, in place, and keep ``same`` only where these agree."""
    member = np.zeros(len(order), np.bool_)
    member[1:] |= same
    member[:-1] |= same
    positions = np.flatnonzero(member)
    rows = order[positions]
    words = words_of(position, rows)
    tied = np.zeros(len(positions), np.bool_)
    tied[1:] = same[positions[1:] - 1]
    if (tied[1:] & (words[1:] < words[:-1])).any():
        group = np.cumsum(~tied)
        reordered = np.lexsort((words, group))
        order[positions] = rows[reordered]
        words = words[reordered]
    ties = np.flatnonzero(tied)
    same[positions[ties] - 1] = words[ties] == words[ties - 1]


def concat_keys(parts: Sequence[NormalisedKeys]) -> NormalisedKeys:
    """Return the keys of all parts, which are of one kind, in order."""
    first = parts[0]
    if isinstance(first, IntKeys):
        return IntKeys.concat([part for part in parts if isinstance(part, IntKeys)])
    return ByteKeys.concat([part for part in parts if isinstance(part, ByteKeys)])


def order_parts(column: pa.Array, descending: bool = False) -> list[Ints]:
    """Return numbers that sort as ``column`` does, with nulls first in both directions.

    Args:
        column: the values.
        descending: sort values in descending order.

    Returns:
        int64 columns, most significant first; numbers of text are ranks within the column, so they compare only with
        each other.
    """
    valid = valid_mask(column)
    if is_text(column.type):
        order, same = ByteKeys.of(*text_parts(column)).order(sorted_runs=False)
        ranks = np.zeros(len(order), np.int64)
        ranks[order[1:]] = np.cumsum(~same)
        parts = [ranks]  # ranks of nulls are replaced below
    elif pa.types.is_decimal128(column.type) and column.type.precision > 18:
        high, low = decimal_limbs(column)
        parts = [high, (low ^ np.uint64(1 << 63)).view(np.int64)]
    else:
        width_of(column.type)
        parts = [numbers(column)]
    if descending:
        parts = [~part for part in parts]
    if valid is None:
        return parts
    return [valid.astype(np.int64), *(np.where(valid, part, 0) for part in parts)]
