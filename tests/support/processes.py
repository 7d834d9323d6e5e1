"""Distribution of tests to processes: a file, and files that need the same costly server, run in one process."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = (
    (  # the one Spark session
        "tests/spark/",
        "tests/checks/test_checks_on_spark.py",
        "tests/docs/test_spark_blocks.py",
        "tests/integrations/",
        "tests/platform_core/test_spark_resource.py",
        "tests/security/test_places_and_secrets.py",
        "tests/sql/test_engines_agree.py",
        "tests/sql/test_invalid_statements.py",
        "tests/sql/test_queries.py",
        "tests/sql/test_spark_door.py",
        "tests/sql/test_store_assignment.py",
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
    (  # Java Paimon 2.0 and 2.1
        "tests/interop/test_newer_paimon.py",
        "tests/interop/test_newer_kinds.py",
        "tests/interop/test_manifest_sort.py",
        "tests/interop/test_clustered_keys.py",
        "tests/interop/test_primary_key_indexes.py",
        "tests/interop/test_variants.py",
    ),
    (  # PostgreSQL
        "tests/locks/",
        "tests/table/test_jdbc_catalog.py",
        "tests/interop/test_jdbc_catalogs.py",
        "tests/ui/test_deployment.py",
    ),
    (  # the S3 server
        "tests/storage/test_file_io.py",
        "tests/storage/test_object_store.py",
        "tests/storage/test_provider_stores.py",
        "tests/storage/test_store_keys.py",
        "tests/table/test_object_store_tables.py",
        "tests/table/test_external_files.py",
        "tests/table/test_rest_keys.py",
        "tests/interop/test_object_store_copies.py",
        "tests/orchestration/test_object_store_warehouse.py",
        "tests/faults/test_sweep.py",
    ),
    ("tests/interop/test_rest_catalogs.py",),  # a JVM and a catalog server of its own
    ("tests/interop/",),  # Java Paimon 1.4: a JVM that has run a while takes a fraction of the time
)
"""Folders and files whose tests run in one process, because a second server would cost more than it saves."""

SHARED_OUT: Final = ("tests/faults/test_side_files.py",)
"""Long files with independent tests; each test is a separate group."""

FIRST: Final = (
    TOGETHER[0][0],
    "tests/ui/",
    "tests/fuzz/test_fuzz.py",
    *SHARED_OUT,
    *(files[0] for files in TOGETHER[1:]),
)
"""Groups that start first, because they take longest; otherwise, other processes would wait for them at the end."""


def group_of(nodeid: str) -> str:
    """Return the group of a test; the tests of a group run in one process, in order."""
    path = nodeid.split("::", 1)[0]
    if path in SHARED_OUT:
        return nodeid
    return next((files[0] for files in TOGETHER if path.startswith(files)), path)


def turn_of(nodeid: str) -> int:
    """Return the sort key of a test: the position of its group in `FIRST`, or a larger number."""
    group = group_of(nodeid)
    return next((place for place, start in enumerate(FIRST) if group.startswith(start)), len(FIRST))


class ByGroup(LoadScopeScheduling):
    """Scheduler that gives whole groups to processes, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


__all__ = ["FIRST", "SHARED_OUT", "TOGETHER", "ByGroup", "group_of", "turn_of"]
