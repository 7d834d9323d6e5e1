#!/bin/sh
# The tests that need no Java, Spark, server or browser: the formats, the tree, merging, metadata, commits and reads.
# Arguments are passed to pytest. DREDGE_PYTHON: Python of another environment.
set -eu
unset PYTHONDONTWRITEBYTECODE

rooms="architecture commit format merge metadata options project read tree types vectors"
folders=
for room in $rooms; do folders="$folders tests/$room"; done
# shellcheck disable=SC2086 # a list of folders
"${DREDGE_PYTHON:-.venv/bin/python}" -m pytest $folders tests/test_*.py \
    -m "not (soak or hypothesis or spark or paimon_java or pypaimon or pypaimon_rust)" \
    -n "${DREDGE_TEST_PROCESSES:-2}" --dist loadscope --no-loadscope-reorder --durations=5 "$@"
