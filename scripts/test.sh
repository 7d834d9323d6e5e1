#!/bin/sh
# The whole suite, in two processes (DREDGE_TEST_PROCESSES; 0: in this one); pytest's own last line is the last line printed.
set -eu
exec .venv/bin/python -m pytest tests -n "${DREDGE_TEST_PROCESSES:-2}" --dist loadscope --no-loadscope-reorder "$@"
