"""The assigner of dynamic buckets against Java's rules told one hash at a time, and its size and speed with ten million keys."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_core.errors import InvalidOption
from lsm_core.options import TableOptions
from lsm_core.write.assigner import LARGEST_BUCKET, AssignerRules, PartitionIndex, assigner_of


@dataclass
class OneByOne:
    """`PartitionIndex.assign`, a dictionary and a loop; where Java picks a bucket at random, by the hash."""

    rules: AssignerRules
    known: dict[int, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def assign(self, value: int) -> int:
        if value not in self.known:
            self.known[value] = bucket = self.place(value)
            self.counts[bucket] = self.counts.get(bucket, 0) + 1
        return self.known[value]

    def place(self, value: int) -> int:
        mine = [b for b in sorted(self.counts) if b % self.rules.assigners == self.rules.number]
        for bucket in mine:
            if self.counts[bucket] < self.rules.target_rows:
                return bucket
        most = LARGEST_BUCKET + 1 if self.rules.limit is None else self.rules.limit
        for bucket in range(self.rules.number, most, self.rules.assigners):
            if bucket not in self.counts:
                return bucket
        return mine[abs(value) % len(mine)]


hashes = st.integers(-40, 40) | st.integers(-(2**31), 2**31 - 1)


@given(
    st.lists(st.lists(hashes, max_size=40), max_size=6),
    st.integers(1, 9),
    st.none() | st.integers(3, 9),
    st.sampled_from([(1, 0), (2, 1), (3, 0)]),
    st.dictionaries(hashes, st.integers(0, 5), max_size=20),
)
def test_buckets_are_those_of_the_rules_told_one_hash_at_a_time(
    batches: list[list[int]], target: int, limit: int | None, assigner: tuple[int, int], known: dict[int, int]
) -> None:
    rules = AssignerRules(target, limit, "db.t", *assigner)
    counts = {bucket: list(known.values()).count(bucket) for bucket in set(known.values())}
    slow = OneByOne(rules, dict(known), counts)
    files = [
        (b, np.array([value for value, bucket in known.items() if bucket == b], np.int32))
        for b in sorted(set(known.values()))
    ]
    index = PartitionIndex(rules, files)
    changed: set[int] = set()
    for batch in batches:
        for value in set(batch) - slow.known.keys():
            changed.add(value)
        wanted = [slow.assign(value) for value in batch]
        assert index.assign(np.array(batch, np.int32)).tolist() == wanted
    assert len(index) == len(slow.known)
    assert index.changed == sorted({slow.known[value] for value in changed})
    for bucket in index.buckets:
        assert index.hashes_of(bucket).tolist() == sorted(v for v, b in slow.known.items() if b == bucket)


@given(st.lists(st.tuples(hashes, st.integers(0, 3)), max_size=60))
def test_hashes_that_another_assigner_placed_are_learnt_once(pairs: list[tuple[int, int]]) -> None:
    index = PartitionIndex(AssignerRules(5, None, "db.t"), [(0, np.array([7], np.int32))])
    known = {7: 0}
    for value, bucket in pairs:
        index.learn(np.array([value, value], np.int32), bucket)
        known.setdefault(value, bucket)
    assert index.assign(np.array(list(known), np.int32)).tolist() == list(known.values())
    for bucket in index.changed:
        index.settled(bucket)
    assert index.changed == []


@given(st.lists(hashes, max_size=50), st.integers(-(2**31), 2**31 - 1), st.integers(1, 7), st.integers(1, 9))
def test_every_hash_has_one_assigner_as_java_counts(
    values: list[int], partition: int, assigners: int, channels: int
) -> None:
    def remainder(value: int, by: int) -> int:  # Java's keeps the sign
        return abs(value) % by * (-1 if value < 0 else 1)

    wanted = [(abs(remainder(partition, channels)) + abs(remainder(value, assigners))) % channels for value in values]
    assert assigner_of(partition, np.array(values, np.int32), assigners, channels).tolist() == wanted


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("dynamic-bucket.max-buckets", "0", "-1 .no limit. or 1 to 32767"),
        ("dynamic-bucket.max-buckets", "-7", "-1 .no limit. or 1 to 32767"),
        ("dynamic-bucket.max-buckets", "40000", "-1 .no limit. or 1 to 32767"),
    ],
)
def test_rules_that_cannot_be_kept_name_option_and_table(key: str, value: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said) as caught:
        AssignerRules.of(TableOptions({key: value}, "db.t"), "db.t")
    assert "db.t" in str(caught.value) and key in str(caught.value)


def test_a_partition_without_a_free_bucket_number_is_an_error_that_names_the_option() -> None:
    index = PartitionIndex(AssignerRules(1, None, "db.t"))
    index.assign(np.arange(LARGEST_BUCKET + 1, dtype=np.int32))
    assert index.buckets[-1] == LARGEST_BUCKET
    with pytest.raises(InvalidOption, match=r"dynamic-bucket.target-row-num' of table db.t"):
        index.assign(np.array([-1], np.int32))


_TEN_MILLION = """
import numpy as np
from lsm_core.write.assigner import AssignerRules, PartitionIndex
made = np.arange(10_000_000, dtype=np.uint32) * np.uint32(2_654_435_761)  # odd: a permutation
files = [(bucket, made[bucket * 2_000_000 : (bucket + 1) * 2_000_000].view(np.int32)) for bucket in range(5)]
index = PartitionIndex(AssignerRules(2_000_000, None, "db.t"), files)
# not ru_maxrss, which begins with what the parent process had
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(len(index), peak >> 10)
"""


def test_ten_million_keys_are_held_in_little_memory() -> None:
    result = subprocess.run([sys.executable, "-c", _TEN_MILLION], capture_output=True, text=True, check=True)
    count, peak = result.stdout.split()
    assert int(count) == 10_000_000
    assert int(peak) <= 400
