"""Merge of sorted inputs in windows of limited memory: complete keys are merged, the last key of a window stays open.

The cut is the smallest full sort key among the last buffered rows of the unfinished inputs, so no later row is smaller.
Rows up to the cut form a window. The window's last key may have later rows, so the key's result so far is carried into
the next window. Memory is about inputs x batch, independent of the number of rows or of versions of a key.

Counters check the merge (check V0 of a compaction): each input row is either returned or dropped for a named reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lsm_core.arrays import arrow_array, numpy_array
from lsm_core.errors import CorruptFile, VerificationFailed
from lsm_core.format.schema import VALUE_KIND
from lsm_core.merge.function import FoldFunction, MergeFunction
from lsm_core.merge.keys import KeySpec
from lsm_core.merge.rows import Groups, Newest, Piece, Rows, emit, merge_order, newest_versions, retracts, window_parts

if TYPE_CHECKING:
    from lsm_core.merge.engines.fold import OpenState

OLDER_VERSION = "older-version"
DELETE_AT_BOTTOM = "delete-at-bottom"
IGNORED_DELETE = "ignored-delete"
EXPIRED = "expired"
KNOWN_ABOVE = "known-above"


@dataclass
class MergeCounters:
    """Row counts of a merge; pass the same object to several merges to add them up.

    A key is counted once for each window (range of keys) that contains it.

    Attributes:
        rows_in: input rows.
        rows_out: result rows.
        dropped: dropped rows by reason.
        keys_folded: keys of which several versions became one new row.
        keys_one_by_one: number of keys that an aggregate function folded one at a time (bitmaps, sketches, decimals
            near their precision).
    """

    rows_in: int = 0
    rows_out: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    keys_folded: int = 0
    keys_one_by_one: int = 0

    def drop(self, reason: str, rows: int) -> None:
        """Add ``rows`` to the number of rows that were dropped for ``reason``."""
        if rows:
            self.dropped[reason] = self.dropped.get(reason, 0) + rows

    @property
    def rows_dropped(self) -> int:
        """Rows dropped for any reason."""
        return sum(self.dropped.values())

    def check(self) -> None:
        """Check that rows in = rows out + rows dropped; call it after a merge.

        Raises:
            VerificationFailed: the counts differ (V0).
        """
        if self.rows_in != self.rows_out + self.rows_dropped:
            detail = f"{self.rows_in} rows in, {self.rows_out} out, dropped {self.dropped}"
            raise VerificationFailed("V0", (detail,))


Key = int | bytes
_FEWEST_BYTES: Final = 1 << 16
"""Number of buffered bytes of an input that is enough for a merge, even with fewer rows than `RunInput.at_hand`."""


class UnsortedInput(CorruptFile):
    """Error of a merge input that is not in key order, or has versions of a key out of merge order.

    ``index``: number of the input; -1 if only its name is known.
    """

    def __init__(self, index: int, name: str = "", reason: str = "its rows are not in key order") -> None:
        self.index = index
        super().__init__(name or f"(merge input {index})", reason)


@dataclass(frozen=True)
class RunInput:
    """Stream of KV batches ascending by key; versions of a repeated key are in merge order.

    All inputs of a merge have the same schema. Use :meth:`chain` for a stream over several files with different levels
    and ages.

    Attributes:
        batches: the rows.
        level: level of the rows, for ties with other inputs.
        age: age rank of the rows, for ties; larger is newer.
        name: name of the input in errors.
        parts: inputs that were joined to this one by :meth:`chain`.
        at_hand: number of rows to buffer from small batches before a window (range of keys) is merged; 64 KiB of rows
            are enough too. A window of a few rows costs as much as a window of a thousand rows.
    """

    batches: Iterator[pa.RecordBatch]
    level: int = 0
    age: int = 0
    name: str = ""
    parts: tuple[RunInput, ...] = ()
    at_hand: int = 1

    @staticmethod
    def chain(parts: Sequence[RunInput], name: str = "", at_hand: int = 1) -> RunInput:
        """Return one input with the rows of several inputs one after another.

        Args:
            parts: inputs, each with its own level and age rank.
            name: name in errors.
            at_hand: number of rows to buffer from small batches before a window (range of keys) is merged.
        """
        return RunInput(iter(()), name=name, parts=tuple(parts), at_hand=at_hand)

    def tagged(self) -> Iterator[tuple[pa.RecordBatch, int, int]]:
        """Yield each batch as (batch, level of its rows, age rank of its rows)."""
        for part in self.parts or (self,):
            for batch in part.batches:
                yield batch, part.level, part.age


class Buffer:
    """Rows of one input that were read and not yet merged.

    Attributes:
        index: number of the input.
        name: name of the input in errors.
        pieces: the buffered rows, in order.
        rows: number of buffered rows.
        held: approximate memory of the buffered rows (bytes).
        exhausted: whether the input has been read to its end.
    """

    def __init__(self, source: RunInput, index: int, spec: KeySpec) -> None:
        self.index = index
        self.name = source.name
        self.pieces: deque[Piece] = deque()
        self.rows = 0
        self.held = 0.0  # bytes
        self.exhausted = False
        self._source = source.tagged()
        self._spec = spec
        self._most_rows = source.at_hand
        self._most_bytes = _FEWEST_BYTES if source.at_hand > 1 else 1
        self._last: Key | None = None

    def top_up(self, at_least: int | None) -> None:
        """Read until enough rows are buffered, or the input ends.

        Args:
            at_least: number of rows to buffer. None reads until the buffer holds as many rows or bytes as the largest
                batch so far. If all batches are small, it reads `RunInput.at_hand` rows or 64 KiB. So wide rows need no
                more memory than one batch, and tiny files are not merged one by one.

        Raises:
            UnsortedInput: the input is not in key order.
        """
        while self.needs_rows(at_least):
            item = next(self._source, None)
            if item is None:
                self.exhausted = True
                return
            batch, level, age = item
            if not batch.num_rows:
                continue
            keys = self._spec.keys(batch)
            climbing = keys.climbing()
            behind = self._last is not None and keys.scalar(0) < self._last  # type: ignore[operator]
            if behind or not (climbing or keys.ascending()):
                raise UnsortedInput(self.index, self.name)
            self._last = keys.scalar(len(keys) - 1)
            batch_bytes = batch.nbytes  # Arrow computes it column by column at each access
            self._most_rows = max(self._most_rows, len(keys))
            self._most_bytes = max(self._most_bytes, batch_bytes)
            self.rows += len(keys)
            self.held += batch_bytes
            self.pieces.append(Piece(batch, keys, level, age, batch_bytes / len(keys), climbing))

    def _full(self, at_least: int | None) -> bool:
        if at_least is not None or self.rows == 0:
            return self.rows >= max(at_least or 1, 1)
        return self.rows >= self._most_rows or self.held >= self._most_bytes

    def needs_rows(self, at_least: int | None) -> bool:
        """Return whether :meth:`top_up` would read rows."""
        return not self.exhausted and not self._full(at_least)

    @property
    def last_key(self) -> Key:
        """Key of the last buffered row."""
        piece = self.pieces[-1]
        return piece.keys.scalar(len(piece) - 1)

    def count(self, key: Key | None, *, through: bool) -> int:
        """Return the number of buffered rows below a key.

        Args:
            key: the key; None for infinity.
            through: count rows equal to ``key`` too.
        """
        if key is None:
            return self.rows
        count = 0
        for piece in self.pieces:  # keys ascend: all pieces after the first partial one hold larger keys
            inside = piece.keys.bisect(key, through)
            count += inside
            if inside < len(piece):
                break
        return count

    def span(self, start: int, stop: int) -> list[Piece]:
        """Return the buffered rows from ``start`` up to, but not including, ``stop``; they stay buffered."""
        pieces = []
        for piece in self.pieces:
            if stop <= 0:
                break
            low, high = max(start, 0), min(stop, len(piece))
            if low < high:
                pieces.append(piece if high - low == len(piece) else piece.slice(low, high))
            start, stop = start - len(piece), stop - len(piece)
        return pieces

    def take(self, count: int) -> list[Piece]:
        """Remove the first ``count`` buffered rows, and return these rows."""
        pieces = self.span(0, count)
        self.rows -= count
        self.held = max(0.0, self.held - sum(len(piece) * piece.row_bytes for piece in pieces)) if self.rows else 0.0
        while self.pieces and count >= len(self.pieces[0]):
            count -= len(self.pieces.popleft())
        if count:
            self.pieces[0] = self.pieces[0].slice(count, len(self.pieces[0]))
        return pieces


def fill_buffers(buffers: Sequence[Buffer], at_least: int | None, helper: Executor | None = None) -> None:
    """Read rows until every input has enough rows buffered (:meth:`Buffer.top_up`).

    Args:
        buffers: the inputs.
        at_least: number of rows to buffer for each input; None for the size of its largest batch.
        helper: second thread, which reads some of the inputs at the same time; None to read all on this thread.

    Raises:
        UnsortedInput: an input is not in key order.
    """
    waiting = deque(buffer for buffer in buffers if buffer.needs_rows(at_least))

    def fill_waiting() -> None:
        while True:
            try:
                buffer = waiting.popleft()
            except IndexError:
                return
            buffer.top_up(at_least)

    if helper is None or len(waiting) < 2:
        fill_waiting()
        return
    helper_fill = helper.submit(fill_waiting)
    try:
        fill_waiting()
    finally:
        waiting.clear()  # after an error, the helper only ends the input that it is reading
        wait([helper_fill])
    helper_fill.result()


def is_ended(buffer: Buffer) -> bool:
    """Return whether an input was read to its end, so that its last buffered row does not limit the rows to merge."""
    return buffer.exhausted


def cut_key(last_keys: Sequence[Key]) -> Key | None:
    """Return the key up to which the buffered rows of all inputs can be merged, the key of the cut.

    Args:
        last_keys: last buffered key of each unfinished input.

    Returns:
        The smallest of these keys, or None (infinity) if all inputs are finished.
    """
    return min(last_keys, default=None)


def stays_open(key: Key | None) -> bool:
    """Return whether the last key of the rows to merge may have later rows; ``key`` is from :func:`cut_key`."""
    return key is not None


def take_window(buffers: Sequence[Buffer], spec: KeySpec) -> tuple[list[Piece], bool]:
    """Remove the rows that can be merged now from the buffers: all rows up to the cut.

    The cut is the smallest, in merge order, of the last buffered rows of the unfinished inputs.

    Args:
        buffers: the inputs.
        spec: columns that order the rows.

    Returns:
        The rows, oldest input first, and whether the last key of the rows may have later rows.
    """
    unfinished = [buffer for buffer in buffers if buffer.rows and not is_ended(buffer)]
    key = cut_key([buffer.last_key for buffer in unfinished])
    counts = [buffer.count(key, through=True) for buffer in buffers]
    if key is not None:
        bounds = [buffer.index for buffer in unfinished if buffer.last_key == key]
        counts = _within_cut(buffers, counts, key, bounds, spec)
    pieces = [piece for buffer, count in zip(buffers, counts, strict=True) for piece in buffer.take(count)]
    return pieces, stays_open(key)


def take_whole_keys(buffers: Sequence[Buffer]) -> list[Piece]:
    """Remove the rows of all keys that are completely buffered from the buffers.

    These are the keys below the smallest last buffered key of the unfinished inputs. If there is no such key, more rows
    are read.

    Args:
        buffers: the inputs.

    Returns:
        The rows, oldest input first; empty when all inputs are at their end.
    """
    while True:
        unfinished = [buffer for buffer in buffers if buffer.rows and not is_ended(buffer)]
        key = cut_key([buffer.last_key for buffer in unfinished])
        counts = [buffer.count(key, through=False) for buffer in buffers]
        if key is None or any(counts):
            return [piece for buffer, count in zip(buffers, counts, strict=True) for piece in buffer.take(count)]
        for buffer in unfinished:
            if buffer.last_key == key:
                buffer.top_up(buffer.rows + 1)


def _within_cut(
    buffers: Sequence[Buffer], counts: list[int], key: Key, bounds: Sequence[int], spec: KeySpec
) -> list[int]:
    """Return the number of rows to take from each buffer, without rows that follow the cut in merge order.

    Such rows have the cut's key and must be merged later, so that versions are merged in order. An input that repeats
    keys out of order is taken up to its last row within the cut, so every window makes progress.

    Args:
        buffers: buffered rows of each input.
        counts: number of rows to take from each buffer, including all rows with the cut's key.
        key: the cut's key.
        bounds: the inputs whose last row has that key; the smallest of these rows is the cut.
        spec: columns that order the rows.

    Returns:
        The number of rows to take from each buffer.
    """
    below = [buffer.count(key, through=False) for buffer in buffers]
    holders = [i for i in range(len(buffers)) if counts[i] > below[i]]
    if len(holders) <= 1:
        return counts
    pieces, owners = [], []
    for i in holders:
        for piece in buffers[i].span(below[i], counts[i]):
            pieces.append(piece)
            owners.append(np.full(len(piece), i, np.int64))
    rows, owner = Rows.of(pieces), np.concatenate(owners)
    order = merge_order(rows, spec).order
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    last_row = {i: int(np.flatnonzero(owner == i)[-1]) for i in holders}
    cut_rank = min(int(rank[last_row[buffer.index]]) for buffer in buffers if buffer.index in bounds)
    kept = list(counts)
    for i in holders:
        rows_within = np.flatnonzero(rank[owner == i] <= cut_rank)
        kept[i] = below[i] + (int(rows_within[-1]) + 1 if len(rows_within) else 0)
    return kept


@dataclass(frozen=True, eq=False)
class OpenKey:
    """Result so far of a key that may have later rows.

    Attributes:
        piece: the result, as one row.
        folded: whether the row is the merge of several versions.
    """

    piece: Piece
    folded: bool


def state_first(pieces: list[Piece], spec: KeySpec, state: OpenState | None, sorted_runs: bool) -> tuple[Rows, Groups]:
    """Join the result so far of the previous window's last key and the rows of a window, in merge order.

    Args:
        pieces: rows of the window (range of keys), one batch per piece.
        spec: columns that order the rows.
        state: result so far of the previous window's last key, if it may have further rows; None for none.
        sorted_runs: whether the rows are a few ascending runs.

    Returns:
        The rows, with the state as row 0; and the rows of each key in merge order. Row 0 precedes all other rows of its
        key, whatever their sequence numbers.
    """
    if state is None:
        rows = Rows.of(pieces)
        return rows, merge_order(rows, spec, sorted_runs=sorted_runs)
    rows = Rows.of([state.piece, *pieces])
    if not pieces:
        return rows, Groups(np.zeros(1, np.int64), np.zeros(1, np.int64))
    new = Rows.of(pieces)
    groups = merge_order(new, spec, sorted_runs=sorted_runs)
    order = np.concatenate((np.zeros(1, np.int64), groups.order + 1))
    same = new.keys.scalar(int(groups.order[0])) == state.piece.keys.scalar(0)
    starts = groups.starts + 1
    starts = np.concatenate((np.zeros(1, np.int64), starts[1:] if same else starts))
    return rows, Groups(order, starts)


@dataclass
class Merger:
    """Merge of consecutive windows (key ranges); the result of an incomplete last key moves to the next window.

    The incomplete last key is called the open key.

    Attributes:
        function: merge function.
        spec: columns that order the rows.
        drop_delete: whether keys whose result is a retract are left out.
        counters: counters of the merge.
        carry: result so far of the open key, for engines that choose rows; None without an open key.
        state: result so far of the open key, for engines that build rows; None without an open key.
        newest: newest row of the open key, for engines that build rows; None without an open key.
        names: names of the inputs by (level, age rank), for errors.
        columns: columns of the result; None for all. Engines that build rows return all columns.
    """

    function: MergeFunction
    spec: KeySpec
    drop_delete: bool = False
    counters: MergeCounters = field(default_factory=MergeCounters)
    carry: OpenKey | None = None
    state: OpenState | None = None
    newest: Piece | None = None
    names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    columns: Collection[str] | None = None

    def merge(self, pieces: Sequence[Piece], open_end: bool, *, sorted_runs: bool = True) -> list[pa.RecordBatch]:
        """Merge the rows of a window; return the rows of complete keys as batches of at most 131,072 rows.

        Args:
            pieces: rows of the window (range of keys), one batch per piece.
            open_end: whether the last key may have later rows.
            sorted_runs: whether the rows are a few ascending runs.
        """
        self.counters.rows_in += sum(len(piece) for piece in pieces)
        if isinstance(self.function, FoldFunction):
            return self._fold(self.function, list(pieces), open_end, sorted_runs)
        carry, self.carry = self.carry, None
        pieces = pieces if carry is None else [carry.piece, *pieces]
        if not pieces:
            return []
        rows = Rows.of(pieces)
        kinds = rows.integers(VALUE_KIND, np.int8) if rows.has(VALUE_KIND) else None
        carry_folded = carry is not None and carry.folded
        # the full order is computed only where it is needed
        newest = newest_versions(rows, self.spec) if sorted_runs and self.function.takes_newest(kinds) else None
        groups: Groups | Newest
        if newest is not None:
            groups, picked = newest, newest.newest
        else:
            groups = merge_order(rows, self.spec, sorted_runs=sorted_runs)
            picked = self.function.pick(groups, kinds, carry_folded)
        self.counters.drop(OLDER_VERSION, len(rows) - len(groups))
        if open_end:
            folded = groups.last_size > 1 or (len(groups) == 1 and carry_folded)
            last = int(picked[-1]) if picked[-1] >= 0 else int(groups.newest[-1])
            self.carry = OpenKey(self._copy(rows, last), folded)
            picked = picked[:-1]
        has_result = picked >= 0
        if not has_result.all():
            self.counters.drop(IGNORED_DELETE, len(picked) - int(has_result.sum()))
            picked = picked[has_result]
        if self.drop_delete and kinds is not None and (is_deleted := retracts(kinds)).any():
            kept = picked[~is_deleted[picked]]
            self.counters.drop(DELETE_AT_BOTTOM, len(picked) - len(kept))
            picked = kept
        self.counters.rows_out += len(picked)
        return emit(rows, picked, self.columns)

    def _fold(
        self, function: FoldFunction, pieces: list[Piece], open_end: bool, sorted_runs: bool
    ) -> list[pa.RecordBatch]:
        """Merge the rows of a window with a merge engine that builds rows.

        Args:
            function: the merge engine.
            pieces: rows of the window (range of keys), one batch per piece.
            open_end: whether the last key may have later rows.
            sorted_runs: whether the rows are a few ascending runs.

        Returns:
            The rows of the complete keys.
        """
        from lsm_core.merge.engines.fold import FoldInput  # imported here: engines that choose rows do not need it

        state, self.state = self.state, None
        if not pieces and (state is None or open_end):
            self.state = state
            return []
        rows, groups = state_first(pieces, self.spec, state, sorted_runs)
        if state is not None:
            self._require_newer(rows, groups)
        kinds = rows.integers(VALUE_KIND, np.int8) if rows.has(VALUE_KIND) else None
        output = function.fold(FoldInput(rows, groups, kinds, state, open_end))
        self.state = output.state
        if output.state is None:
            self.newest = None
        elif self.newest is None or groups.newest[-1] > 0:  # row 0 alone is the state, whose newest row is unchanged
            self.newest = self._copy(rows, int(groups.newest[-1]))
        self.counters.keys_folded += output.folded
        self.counters.keys_one_by_one += output.alone
        batches = output.batches
        kept_open = output.state is not None
        self.counters.drop(OLDER_VERSION, len(rows) - sum(batch.num_rows for batch in batches) - kept_open)
        if self.drop_delete and kinds is not None:
            kept = [batch.filter(arrow_array(~retracts(numpy_array(batch.column(VALUE_KIND))))) for batch in batches]
            self.counters.drop(DELETE_AT_BOTTOM, sum(b.num_rows for b in batches) - sum(b.num_rows for b in kept))
            batches = [batch for batch in kept if batch.num_rows]
        self.counters.rows_out += sum(batch.num_rows for batch in batches)
        return batches

    def _require_newer(self, rows: Rows, groups: Groups) -> None:
        """Raise UnsortedInput if the open key has a version in ``rows`` that is older than one merged before.

        The open key is the last key of the previous window, whose versions continue in this window.
        """
        if self.newest is None or int(groups.ends[0]) < 2:
            return
        oldest = self._copy(rows, int(groups.order[1]))
        if merge_order(Rows.of([self.newest, oldest]), self.spec, sorted_runs=False).order[0] != 0:
            reason = "it repeats a key, and the versions are not in the order of their sequence"
            raise UnsortedInput(-1, self.names.get((oldest.level, oldest.age), ""), reason)

    def _copy(self, rows: Rows, row: int) -> Piece:
        """Return a copy of one row; a slice would keep its whole window in memory."""
        source = rows.piece_at(row)
        index = row - int(rows.offsets[rows.piece_of(np.array([row], np.int64))[0]])
        batch = source.batch if source.batch.num_rows == 1 else source.batch.slice(index, 1).take(arrow_array([0]))
        return Piece(batch, self.spec.keys(batch), source.level, source.age)


def merge_streams(
    inputs: Sequence[RunInput],
    function: MergeFunction,
    *,
    key_spec: KeySpec | None = None,
    drop_delete: bool = False,
    batch_rows: int | None = None,
    counters: MergeCounters | None = None,
    whole_keys: Callable[[Sequence[Piece]], list[pa.RecordBatch]] | None = None,
    columns: Collection[str] | None = None,
    helper: Executor | None = None,
) -> Iterator[pa.RecordBatch]:
    """Merge sorted ``inputs``, oldest first, into KV batches of at most 131,072 rows: keys ascending, each once.

    Batches keep the inputs' schema (`_KEY_*` or key columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, values).

    Args:
        inputs: streams of rows sorted by key, oldest first.
        function: merge function.
        key_spec: columns that order the rows; None for the ``key_spec`` of ``function``.
        drop_delete: leave out keys whose result is a retract.
        batch_rows: rows that each unfinished input must have buffered before each window (range of keys) is merged;
            None for the rows or bytes of the input's largest batch.
        counters: counters to update; None for new counters.
        whole_keys: merge function to use instead of ``function``, which receives all rows of its keys at once. All
            versions of a key are then in memory together.
        columns: columns to return, at least one; None for all. Engines that build rows return all columns.
        helper: second thread, which reads inputs together with the calling thread; None to read on this thread only.
            Then the inputs must not share state that is not safe for threads.

    Raises:
        UnsortedInput: an input is not in order; the error has the index or the name of the input.
    """
    spec = key_spec or function.key_spec
    buffers = [Buffer(source, index, spec) for index, source in enumerate(inputs)]
    names = {(part.level, part.age): part.name for source in inputs for part in source.parts or (source,)}
    counters = MergeCounters() if counters is None else counters
    merger = Merger(function, spec, drop_delete, counters, names=names, columns=columns)
    while True:
        fill_buffers(buffers, batch_rows, helper)
        pieces, open_end = take_window(buffers, spec) if whole_keys is None else (take_whole_keys(buffers), False)
        parts = window_parts(pieces)
        # a part's memory must be free while the consumer works on its output, so no variable may keep it
        del pieces
        while parts:
            part = parts.popleft()
            merged = merger.merge(part, open_end and not parts) if whole_keys is None else whole_keys(part)
            output = deque(merged)
            del merged
            done = not part
            del part
            while output:
                yield output.popleft()
        if done:
            return


def merge_unsorted(
    table: pa.Table, function: MergeFunction, key_spec: KeySpec | None = None, counters: MergeCounters | None = None
) -> pa.Table:
    """Merge the rows of a write buffer into a sorted table with unique keys and the same schema; deletes are kept.

    Args:
        table: rows in arrival order, which decides between rows that are equal in the merge order.
        function: merge function.
        key_spec: columns that order the rows; None for the ``key_spec`` of ``function``.
        counters: counters of the merge; None for new counters.
    """
    if table.num_rows == 0:
        return table
    spec = key_spec or function.key_spec
    batch = table.combine_chunks().to_batches()[0]
    merger = Merger(function, spec, counters=counters if counters is not None else MergeCounters())
    merged = merger.merge([Piece(batch, spec.keys(batch), 0, 0)], open_end=False, sorted_runs=False)
    return pa.Table.from_batches(merged, schema=table.schema)


def merge_runs(runs: Sequence[pa.RecordBatch], function: MergeFunction, *, drop_delete: bool = False) -> pa.RecordBatch:
    """Merge whole runs in memory into one batch.

    Args:
        runs: the runs, oldest first, each ascending by key.
        function: merge function.
        drop_delete: leave out keys whose result is a retract.
    """
    if not runs:
        return pa.RecordBatch.from_pylist([])
    inputs = [RunInput(iter((run,)), 0, age) for age, run in enumerate(runs)]
    merged = list(merge_streams(inputs, function, drop_delete=drop_delete))
    return pa.concat_batches(merged) if merged else runs[0].slice(0, 0)
