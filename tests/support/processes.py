"""How the suite is shared out among test processes: a file stays whole, and files that need the same costly server stay together."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = (
    (  # the one Spark session
        "tests/spark/",
        "tests/checks/",
        "tests/docs/test_spark_blocks.py",
        "tests/platform_core/test_spark_resource.py",
        "tests/security/test_places_and_secrets.py",
        "tests/sql/test_engines_agree.py",
        "tests/sql/test_queries.py",
        "tests/sql/test_spark_door.py",
    ),
    (  # pypaimon and pypaimon-rust, which take seconds to import
        "tests/interop/test_both_ways.py",
        "tests/interop/test_dynamic_buckets.py",
        "tests/interop/test_files_and_commits.py",
        "tests/interop/test_kinds_after_faults.py",
        "tests/interop/test_pypaimon_rust.py",
        "tests/interop/test_pypaimon_types.py",
        "tests/interop/test_vectors_in_pypaimon.py",
        "tests/interop/test_versions_in_pypaimon.py",
    ),
    ("tests/locks/", "tests/table/test_jdbc_catalog.py", "tests/interop/test_jdbc_catalogs.py"),  # PostgreSQL
    (  # the S3 server
        "tests/storage/test_file_io.py",
        "tests/storage/test_object_store.py",
        "tests/table/test_object_store_tables.py",
        "tests/interop/test_object_store_copies.py",
    ),
)
"""Folders and files whose tests run in one process, one after the other: a second server costs more than sharing them out would save."""

SHARED_OUT: Final = ("tests/interop/test_turns.py", "tests/faults/test_side_files.py")
"""Long files whose tests need nothing of each other: each of them is a group of its own."""

FIRST: Final = (
    TOGETHER[0][0],
    "tests/ui/",
    "tests/fuzz/test_fuzz.py",
    *SHARED_OUT,
    *(files[0] for files in TOGETHER[1:]),
)
"""Groups to begin with: the longest, and the one that mostly waits for a platform; last, the other processes would wait for them."""


def group_of(nodeid: str) -> str:
    """Tests of one group run in one process, in order: those of a file, or all that share a server."""
    path = nodeid.split("::", 1)[0]
    if path in SHARED_OUT:
        return nodeid
    return next((files[0] for files in TOGETHER if path.startswith(files)), path)


def turn_of(nodeid: str) -> int:
    """Place of a test's group: those of FIRST come first, the others after them as they were collected."""
    group = group_of(nodeid)
    return next((place for place, start in enumerate(FIRST) if group.startswith(start)), len(FIRST))


class ByGroup(LoadScopeScheduling):
    """Hands out whole groups, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


__all__ = ["FIRST", "SHARED_OUT", "TOGETHER", "ByGroup", "group_of", "turn_of"]
