#!/bin/sh
# manage.py of the release that this file is in, for the units: by the directory's own name and not by the link `current`,
# or a process that runs would load what it has not loaded yet from whatever the link leads to by then.
set -eu
cd -P "$(dirname "$0")/.."
exec "$PWD/.venv/bin/python" manage.py "$@"
