#!/bin/sh
# manage.py as the user of the units and with their environment. For root: deploy/manage.sh doctor
set -eu
cd "$(dirname "$0")/.."
set -a
. /etc/queueops/queueops.env
set +a
exec runuser -u queueops -- .venv/bin/python manage.py "$@"
