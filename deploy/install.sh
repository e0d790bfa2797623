#!/bin/sh
# Makes .venv from deploy/requirements.lock, which has what runs and nothing that only tests need, and compiles what is
# there: whoever runs it later may write nothing here. PYTHON names the interpreter.
set -eu
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes -r deploy/requirements.lock
for package in queueops ratelimits jobs dashboards demo; do
    if [ -d "$package" ]; then .venv/bin/python -m compileall -q "$package"; fi
done
