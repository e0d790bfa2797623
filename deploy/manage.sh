#!/bin/sh
# Runs manage.py as the units' user and with their environment. For root: /srv/queueops/current/deploy/manage.sh doctor
# The environment's file is no shell code: a value, such as a URL with an &, is read as systemd reads it.
set -eu
cd -P "$(dirname "$0")/.."
while read -r line || [ -n "$line" ]; do
    value=${line#*=}
    case $value in \"*\" | \'*\') value=${value#?} value=${value%?} ;; esac
    case $line in '#'*) ;; *=*) export "${line%%=*}=$value" ;; esac
done < /etc/queueops/queueops.env
exec runuser -u queueops -- deploy/run.sh "$@"
