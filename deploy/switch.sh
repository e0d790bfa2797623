#!/bin/sh
# Makes a release the current one, and restarts the running units with it: first the workers, then the web processes one
# by one. To go back, name the older release: deploy/switch.sh /srv/queueops/releases/1.1.0
set -eu
: "${1:?which release}"
release=$(cd -P "$1" && pwd)
current=$(cd -P "$release/../.." && pwd)/current
[ -x "$release/.venv/bin/python" ] || { echo "$release is not installed: run $release/deploy/install.sh" >&2; exit 1; }
# Replace the link in one step, so that it is never missing.
ln -sfn "$release" "$current.new"
mv -T "$current.new" "$current"
command -v systemctl > /dev/null || exit 0
running() { systemctl list-units --plain --no-legend --state=active,activating --type=service "$1" | cut -d' ' -f1; }
for unit in $(running 'queueops-workers*'); do systemctl restart "$unit"; done
for unit in $(running 'queueops-web@*'); do
    systemctl restart "$unit"
    port=${unit#*@}
    curl --fail --silent --show-error --output /dev/null --retry 60 --retry-delay 1 --retry-all-errors "http://127.0.0.1:${port%.service}/readyz"
done
