#!/bin/sh
# Puts the instance's settings into DAGSTER_HOME unless it has its own, then becomes the given command.
set -eu
if [ ! -e "$DAGSTER_HOME/dagster.yaml" ]; then cp /etc/dredge/dagster.yaml "$DAGSTER_HOME/dagster.yaml"; fi
exec "$@"
