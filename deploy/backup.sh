#!/bin/sh
# Backs up into a new directory below $1, and then removes the backups there that are older than $2 days.
set -eu
: "${1:?where to}" "${2:?how many days to keep}"
cd -P "$(dirname "$0")/.."
.venv/bin/python manage.py backup "$1/$(date -u +%Y-%m-%dT%H%M%SZ)"
find "$1" -mindepth 1 -maxdepth 1 -type d -name '????-??-??T??????Z' -mtime "+$2" -exec rm -r {} +
