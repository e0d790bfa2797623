#!/bin/sh
# Runs manage.py of this file's release, for the units. It uses the directory's own name and not the link `current`:
# otherwise a running process would load its remaining modules from another release after a switch.
set -eu
cd -P "$(dirname "$0")/.."
exec "$PWD/.venv/bin/python" manage.py "$@"
