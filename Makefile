# Everything goes through these targets; .ci/run calls `make test` and nothing else.
# Recipes use relative paths and quote nothing that make splits, so any folder name works, also with spaces.
SHELL := /bin/sh
PY := .venv/bin/python
export GX_ANALYTICS_ENABLED := false
export DAGSTER_DISABLE_TELEMETRY := yes

.PHONY: help setup lint lint-project test test-fast test-lowest compiled demo demo-headless peers docs wheel screenshots soak bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 18

setup:  ## create .venv with every pinned package (nothing to do when it is current)
	@sh scripts/setup.sh

lint: setup  ## ruff, mypy --strict, import contracts
	@sh scripts/lint.sh

lint-project:  ## linters of workflows, containers, shell and YAML, where they are installed (.github/requirements/tools.txt)
	@sh scripts/lint_project.sh

test-fast: setup  ## the tests without Java, Spark, servers and a browser
	@sh scripts/test_fast.sh

test-lowest:  ## the same, and tests of SQL, command line and Spark, with the lowest versions that pyproject.toml allows (needs uv)
	@sh scripts/test_lowest.sh

peers: setup  ## fetch the real Java Paimon, pypaimon, pypaimon-rust and Iceberg readers into .peers (each in an environment of its own)
	@$(PY) scripts/peers.py

test: setup  ## lint, beside which the peers are fetched and the tests compiled; then the whole test suite
	@$(MAKE) --no-print-directory -j2 lint compiled
	@sh scripts/test.sh

# Each test process would else compile every test for itself, all at the same time. What is wrong with a test, the suite tells.
compiled: peers
	@ls tests/*/__pycache__/*-pytest-* > /dev/null 2>&1 \
		|| env -u PYTHONDONTWRITEBYTECODE $(PY) -m pytest tests --collect-only > /dev/null 2>&1 || true

demo: setup  ## replay a year of flights, let Dredge maintain it, leave the Dagster UI up
	@$(PY) -m lsm_core.cli demo

demo-headless: setup  ## the same, asserts every expected number, then exits
	@$(PY) -m lsm_core.cli demo --headless

docs: setup  ## write the generated pages anew, build the site into build/site, check every link
	@$(PY) scripts/docs.py

wheel: setup  ## build dist/dredge-*.whl (tests/docs installs it into a clean environment and starts it)
	@$(PY) -m hatchling build -t wheel

screenshots: setup  ## the pictures of docs/images: the demo's pages, and those of the journeys (needs Debian's chromium)
	@$(PY) scripts/screenshots.py
	@DREDGE_PICTURES=docs/images/journeys $(PY) -m pytest tests/ui/test_journeys.py -m soak

soak: setup  ## the long random runs that are too slow for `make test`, and all examples of the properties
	@$(PY) scripts/peers.py --spark-connector --stores
	@sh scripts/test.sh -m "soak or hypothesis" --hypothesis-profile soak

bench: setup  ## every benchmark, with targets
	@$(PY) -m bench

clean:  ## remove what the targets made
	rm -rf .venv .peers .dredge build dist
