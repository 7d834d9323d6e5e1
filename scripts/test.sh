#!/bin/sh
# The whole suite in two processes; pytest's own last line is the last line printed.
set -eu
exec .venv/bin/python -m pytest tests -n "${DREDGE_TEST_PROCESSES:-2}" --dist loadgroup "$@"
