# Runs in namespaces of its own (test_production.py): what a machine has before the page begins, and after it what must hold.
# $1: a directory for everything; $2: a script of the page's commands.
set -eu
place=$1 page=$2

cp --archive /etc "$place/etc" && mount --bind "$place/etc" /etc
for directory in /srv /root /run /var/lib /var/log; do mount -t tmpfs tmpfs $directory; done
ip link set lo up
ip address add 93.184.215.14/32 dev lo  # a public address: production calls no other
echo '127.0.0.1 localhost queue.example.org' > /etc/hosts
rm -rf /etc/caddy && mkdir -p /etc/caddy /etc/systemd/system
printf '[Service]\nExecStart=%s run --config /etc/caddy/Caddyfile\nEnvironmentFile=%s\n' "$(command -v caddy)" "$place/caddy.home" \
    > /etc/systemd/system/caddy.service

install --directory --owner=postgres --mode=755 /run/postgresql "$place/database"
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
runuser -u postgres -- "$bin/initdb" -D "$place/database" --auth-local=peer --auth-host=scram-sha-256 > "$place/initdb.log"
runuser -u postgres -- "$bin/pg_ctl" -D "$place/database" -l /run/postgresql/log -w -o '-c unix_socket_directories=/run/postgresql' start > /dev/null
mkdir "$place/provider" && echo hello > "$place/provider/index.html"
python3 -m http.server 8080 --bind 93.184.215.14 --directory "$place/provider" > "$place/provider.log" 2>&1 &

key() { cat /root/acme.key; }
ask() { curl --fail --silent --show-error -H "Authorization: Bearer $(key)" "https://queue.example.org/api/v1/$1"; }
completed() {
    for _ in $(seq 600); do
        if [ "$(ask 'jobs/?state=completed' | grep -o '"state":"completed"' | wc -l)" = "$1" ]; then return; fi
        sleep 0.1
    done
    ask jobs/; exit 1
}
# From the first job on somebody reads and submits all the time: an upgrade and the way back are not to be seen.
watch() {
    while :; do
        curl -s -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $(key)" https://queue.example.org/api/v1/project/
        curl -s -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $(key)" -H 'Idempotency-Key: "watched"' \
            -H 'Content-Type: application/json' -d '{"kind": "http.request", "payload": {"method": "GET", "url": "http://93.184.215.14:8080/"}}' \
            https://queue.example.org/api/v1/jobs/
    done > "$place/answers" &
}
why=
trap 'if [ $? != 0 ]; then tail -n 20 /run/units/*.log; sort "$place/answers" | uniq -c; echo "$why"; fi' EXIT
fail() { why=$1; exit 1; }

begun=$(date +%s)
. "$page"
completed 3
sort "$place/answers" | uniq -c
[ "$(grep -cv '^20' "$place/answers")" = 0 ] || fail 'a restart was seen'
/srv/queueops/current/deploy/manage.sh check --deploy --fail-level WARNING
[ "$(ps -o user= -p "$(cat /run/units/queueops-web@8000.service.pid)")" = queueops ] || fail 'web runs as somebody else'
[ "$(ls /var/lib/queueops-backups | wc -l)" = 2 ] || fail 'there are not two backups'
if runuser -u queueops -- cat /etc/queueops/queueops.env > /dev/null 2>&1; then fail 'queueops reads its secrets'; fi
[ "$(curl -s -o /dev/null -w '%{http_code}' https://queue.example.org/metrics)" = 404 ] || fail 'metrics are public'
[ "$(curl -s -o /dev/null -w '%{redirect_url}' http://queue.example.org/)" = https://queue.example.org/ ] || fail 'no TLS'
systemctl stop queueops-workers.service queueops-web@8000.service queueops-web@8002.service caddy.service
[ -z "$(ps -u queueops -o pid=)" ] || fail "left behind: $(ps -u queueops -o args=)"
echo "from nothing to two jobs, a backup and an upgrade in $(($(date +%s) - begun)) s"
