#!/bin/sh
# Linters of the files around the code: workflows, containers, shell, YAML, pyproject.toml. Their versions: .github/requirements/tools.txt; actionlint is built by `go install`.
set -eu

fail() { printf 'lint_project: %s\n' "$1" >&2; exit 1; }

for tool in zizmor actionlint shellcheck hadolint yamllint check-jsonschema validate-pyproject; do
    command -v "$tool" >/dev/null 2>&1 \
        || fail "$tool is not on the path (pip install -r .github/requirements/tools.txt; actionlint: go install, as in ci.yml)"
done
zizmor --offline --quiet --persona auditor .github
# actionlint passes the commands of the workflows to shellcheck.
actionlint
shellcheck --severity warning scripts/*.sh .ci/run deploy/entrypoint.sh
hadolint deploy/Dockerfile
yamllint --strict .github deploy .pre-commit-config.yaml CITATION.cff dagster.yaml workspace.yaml
check-jsonschema --quiet --builtin-schema vendor.compose-spec deploy/compose.yaml
check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
# It warns of extras of entry points, by which `dredge` says what to install.
for file in pyproject.toml integrations/*/pyproject.toml; do
    validate-pyproject "$file" > /dev/null 2>&1 || fail "validate-pyproject $file: an invalid file; run this command for the reasons"
done
echo 'lint_project: ok'
