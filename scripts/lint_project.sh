#!/bin/sh
# Linters of the files around the code: workflows, containers, YAML. Their versions: .github/requirements/tools.txt; actionlint is built by `go install`.
set -eu

fail() { printf 'lint_project: %s\n' "$1" >&2; exit 1; }

for tool in zizmor actionlint hadolint yamllint; do
    command -v "$tool" >/dev/null 2>&1 \
        || fail "$tool is not on the path (pip install -r .github/requirements/tools.txt; actionlint: go install, as in ci.yml)"
done
zizmor --offline --quiet --persona auditor .github
actionlint
hadolint deploy/Dockerfile
yamllint --strict .github deploy .pre-commit-config.yaml CITATION.cff dagster.yaml workspace.yaml
echo 'lint_project: ok'
