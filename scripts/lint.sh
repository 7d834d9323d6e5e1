#!/bin/sh
# Style, types and the import contracts: each must be silent.
set -eu
python=.venv/bin/python
$python -m ruff check --quiet .
$python -m ruff format --check --quiet .
$python scripts/prose.py --check
$python -m mypy --no-error-summary
$python -c 'import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())' --no-cache > .lint-imports.log \
    || { cat .lint-imports.log; rm -f .lint-imports.log; exit 1; }
rm -f .lint-imports.log
echo 'lint: ok'
