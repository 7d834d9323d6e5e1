#!/bin/sh
# The tests that need no Java, Spark, server or browser: the formats, the tree, merging, commits, reads, the facade and the policies.
# About a minute on two cores. Arguments are passed to pytest. DREDGE_PYTHON: Python of another environment.
set -eu
unset PYTHONDONTWRITEBYTECODE

rooms="architecture commit compact files format locks merge metadata options platform_core project read tree types vectors"
folders=
for room in $rooms; do folders="$folders tests/$room"; done
# shellcheck disable=SC2086 # a list of folders
"${DREDGE_PYTHON:-.venv/bin/python}" -m pytest $folders tests/test_*.py \
    --ignore tests/platform_core/test_spark_resource.py \
    -m "not (soak or hypothesis or spark or paimon_java or pypaimon or pypaimon_rust)" \
    -n "${DREDGE_TEST_PROCESSES:-2}" --dist loadscope --no-loadscope-reorder --durations=5 "$@"
