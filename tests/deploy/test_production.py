"""
docs/how-to/production.md as it is written: on a machine of its own, from a clone to the first job over TLS.

The machine is namespaces: files, network and processes are the test's. What cannot run in them stands aside: apt-get,
for what the page installs is there, and systemd, whose units tests/support/systemctl.py runs as they are written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import ROOT

PAGE = ROOT / "docs/how-to/production.md"
WANTED = ("unshare", "caddy", "psql", "git", "ip", "curl", "setpriv", "/usr/bin/python3")
MISSING = [name for name in WANTED if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
MAX_SECONDS = 20 * 60
# The page's words, and what stands for them here.
INSTEAD = {
    " --branch v1.1.0": "",  # what is to become of this checkout has no tag yet
    " --branch v1.2.0": "",
    '-d \'{"kind": "http.request", "payload": {"method": "GET", "url": "https://example.org/"}}\'': (
        '-d \'{"kind": "http.request", "payload": {"method": "GET", "url": "http://93.184.215.14:8080/"}}\''
    ),
    "createsuperuser ": "createsuperuser --noinput ",  # no terminal
    "> /etc/queueops/caddy.env\n": "> /etc/queueops/caddy.env\necho 'TLS=tls internal' >> /etc/queueops/caddy.env\n",
}

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces"),
    pytest.mark.skipif(MISSING != [], reason=f"not installed: {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What deploy/install.sh will install: its namespace has no way out."""
    directory = tmp_path_factory.mktemp("wheels")
    lock = ROOT / "deploy/requirements.lock"
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "-r", lock, "-d", directory)
    subprocess.run(pip, check=True)
    return directory


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that other users can pass into."""
    for directory in (tmp_path, *tmp_path.parents[:3]):
        if directory != Path("/tmp"):  # noqa: S108
            directory.chmod(0o755)
    return tmp_path


def commands() -> str:
    """The page's shell commands; the first job is waited for before what comes after it."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    [first_job] = [number for number, block in enumerate(blocks) if "create_key" in block]
    blocks.insert(first_job + 1, "completed 1\nwatch\n")
    blocks.append(blocks[first_job][blocks[first_job].index("curl") :])  # another job, after the upgrade
    text = "".join(blocks)
    for word, instead in INSTEAD.items():
        assert word in text, word
        text = text.replace(word, instead)
    return text


def environ(place: Path, wheels: Path) -> dict[str, str]:
    stand_ins = place / "stand-ins"
    stand_ins.mkdir()
    shutil.copy(ROOT / "tests/support/systemctl.py", stand_ins / "systemctl")
    (stand_ins / "apt-get").write_text("#!/bin/sh\n")
    (stand_ins / "apt-get").chmod(0o755)
    found = {str(Path(str(shutil.which("caddy"))).parent), "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
    return {
        "PATH": ":".join([str(stand_ins), *sorted(found, key=lambda name: name != "/usr/bin")]),
        "LANG": "C.UTF-8",
        "HOME": "/root",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "DJANGO_SUPERUSER_PASSWORD": "an afternoon's password",
        "CURL_CA_BUNDLE": "/root/caddy/pki/authorities/local/root.crt",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": f"url.{place}/origin.git.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://git.example.org/queueops.git",
        "GIT_CONFIG_KEY_1": "safe.directory",
        "GIT_CONFIG_VALUE_1": "*",
    }


def test_the_page_leads_from_nothing_to_the_first_job(place, wheels):
    subprocess.run(("git", "clone", "--quiet", "--bare", ROOT, place / "origin.git"), check=True)
    (place / "page.sh").write_text(commands())
    (place / "caddy.home").write_text("XDG_DATA_HOME=/root\nXDG_CONFIG_HOME=/root\n")
    machine = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")
    script = ROOT / "tests/deploy/afternoon.sh"
    begun = time.monotonic()
    done = subprocess.run(
        (*machine, "bash", script, place, place / "page.sh"),
        env=environ(place, wheels),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    print(done.stdout[-4_000:], f"{time.monotonic() - begun:.0f} s")  # noqa: T201 - with -rP: how long it took
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-4_000:]
