#!/usr/bin/python3
"""
systemctl where systemd cannot run: starts and stops units as they are written, for tests/deploy/test_production.py.

What it knows: units with a word behind @, list-units of what runs, ExecStart, User, WorkingDirectory, Environment,
EnvironmentFile, StateDirectory or LogsDirectory, ProtectSystem=strict with PrivateTmp, NoNewPrivileges,
CapabilityBoundingSet, oneshot units, Wants, KillMode=mixed, TimeoutStopSec, drop-ins. What has to be killed is an
error. Needs nothing but Python.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

UNITS = Path("/etc/systemd/system")
STATE = Path("/run/units")
# As ProtectSystem=strict, PrivateTmp and the rest have it; $1: the user, $2: what may be written besides.
CONFINE = """
mount --make-rprivate /
[ -z "$2" ] || mount --bind "$2" "$2"
mount -t tmpfs tmpfs /tmp
for place in $(cut -d' ' -f2 /proc/self/mounts | sort -u); do
    case $place in "$2"|/tmp|/proc|/proc/*|/dev|/dev/*|/sys|/sys/*) ;; *) mount -o remount,ro,bind "$place" ;; esac
done
user=$1; shift 2
exec setpriv --reuid "$user" --regid "$user" --init-groups --no-new-privs --bounding-set=-all -- "$@"
"""


def unit(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    template, _, instance = name.removesuffix(".service").partition("@")
    files = [UNITS / (f"{template}@.service" if instance else name), *sorted((UNITS / f"{name}.d").glob("*.conf"))]
    for file in files:
        parser.read_string(file.read_text(encoding="utf-8").replace("%i", instance))
    service = parser["Service"]
    # A drop-in adds to the unit's.
    named = re.findall(r"^EnvironmentFile=(.*)$", "\n".join(file.read_text() for file in files), flags=re.MULTILINE)
    service["EnvironmentFile"] = " ".join(named)
    service["Wants"] = parser["Unit"].get("Wants", "") if parser.has_section("Unit") else ""
    return service


def environment(paths: str) -> dict[str, str]:
    text = "\n".join(Path(path).read_text() for path in paths.split())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def command(service: configparser.SectionProxy) -> list[str]:
    words = shlex.split(service["ExecStart"])
    if service.get("ProtectSystem") != "strict":
        return words
    kept = ""
    for name, place in (("StateDirectory", "/var/lib"), ("LogsDirectory", "/var/log")):
        if directory := service.get(name):
            kept = f"{place}/{directory}"
            Path(kept).mkdir(mode=int(service.get(f"{name}Mode", "755"), 8), exist_ok=True)
            shutil.chown(kept, service["User"], service["User"])
    return ["unshare", "--mount", "sh", "-ec", CONFINE, "sh", service["User"], kept, *words]


def start(name: str) -> None:
    if name.endswith(".timer") or runs(name):
        return
    service = unit(name)
    for wanted in service["Wants"].split():
        if (UNITS / wanted).exists():
            start(wanted)
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
    environ |= dict(word.split("=", 1) for word in shlex.split(service.get("Environment", "")))
    environ |= environment(service["EnvironmentFile"])
    once = service.get("Type") == "oneshot"
    with (STATE / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command(service),
            cwd=service.get("WorkingDirectory", "/"),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if once and process.wait():
        sys.exit(f"{name} ended with {process.returncode}:\n{(STATE / f'{name}.log').read_text()}")
    if not once:
        (STATE / f"{name}.pid").write_text(str(process.pid))


def process_of(name: str) -> int | None:
    try:
        return int((STATE / f"{name}.pid").read_text())
    except FileNotFoundError:
        return None


def runs(name: str) -> bool:
    try:
        return Path(f"/proc/{process_of(name)}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stop(name: str) -> None:
    pid = process_of(name)
    if pid is None or not runs(name):
        return
    service = unit(name)
    assert service.get("KillMode") == "mixed" or name == "caddy.service", "every process would be signalled"
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + float(service.get("TimeoutStopSec", "90"))
    while runs(name):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            sys.exit(f"{name} had to be killed:\n{(STATE / f'{name}.log').read_text()}")
        time.sleep(0.05)


def main() -> None:
    verb, *names = [word for word in sys.argv[1:] if not word.startswith("--")]
    STATE.mkdir(exist_ok=True)
    if verb == "list-units":
        found = (path.name.removesuffix(".pid") for path in sorted(STATE.glob("*.pid")))
        sys.stdout.writelines(f"{name} loaded active\n" for name in found if runs(name) and fnmatch(name, names[0]))
        return
    for name in names:
        if verb in {"stop", "restart"}:
            stop(name)
        if verb in {"start", "restart", "enable"}:
            start(name)


if __name__ == "__main__":
    main()
