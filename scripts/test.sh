#!/bin/sh
# The whole suite; pytest's own last line is the last line printed.
set -eu
exec .venv/bin/python -m pytest tests "$@"
