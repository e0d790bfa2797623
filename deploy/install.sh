#!/bin/sh
# Makes .venv from deploy/requirements.lock, without packages that only tests need, and compiles all modules: the user
# who runs them later may write nothing here. As root it then tries to run the program as the user queueops, who can
# read neither files that a shell with umask 077 wrote nor an interpreter in somebody's home. PYTHON names an
# interpreter other than the system's.
set -eu
umask 022
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd -P "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes -r deploy/requirements.lock
for package in queueops ratelimits jobs dashboards demo; do
    if [ -d "$package" ]; then .venv/bin/python -m compileall -q "$package"; fi
done
if [ "$(id -u)" != 0 ] || [ ! -f manage.py ]; then exit 0; fi
if ! id queueops > /dev/null 2>&1; then
    echo "There is no user queueops, so nobody has tried to run it. Make that user, and run this again." >&2
    exit 1
fi
if ! told=$(cd / && runuser -u queueops -- env QUEUEOPS_SECRET_KEY="$(head -c 48 /dev/urandom | base64)" \
    "$OLDPWD/deploy/run.sh" version 2>&1); then
    echo "The user queueops cannot run it: $(echo "$told" | tail -n 1)" >&2
    echo "Let others read it and pass into it (chmod -R go+rX $PWD, and each directory above), or set PYTHON." >&2
    exit 1
fi
echo "$told can be run by queueops in $PWD"
