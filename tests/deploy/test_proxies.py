"""What is configured for Caddy and HAProxy is understood by them, where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.deployment import DEPLOY

PATH = f"{os.environ['PATH']}:/usr/sbin"


def run(
    program: str, *arguments: str | Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    found = shutil.which(program, path=PATH)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return subprocess.run((found, *arguments), env=environ, capture_output=True, text=True, check=False)


def test_haproxy_understands_its_file():
    checked = run(
        "haproxy",
        "-c",
        "-f",
        DEPLOY / "ha/haproxy.cfg",
        environ={f"HOST_{number}": f"10.0.0.1{number}" for number in (1, 2, 3)},
    )
    assert (checked.returncode, "warning" in checked.stderr.lower()) == (0, False), checked.stderr


@pytest.mark.parametrize("tls", ["", "tls internal", "tls cert.pem key.pem"])
def test_caddy_understands_its_file_and_knows_the_name_and_every_web_process(tls, tmp_path):
    upstreams = "10.0.0.21:8000 10.0.0.22:8000"
    environ = {"DOMAIN": "queue.example.org", "UPSTREAMS": upstreams, "TLS": tls, "HOME": str(tmp_path)}
    adapted = run("caddy", "adapt", "--config", DEPLOY / "Caddyfile", environ=environ)
    assert adapted.returncode == 0, adapted.stderr
    assert [address in adapted.stdout for address in ("queue.example.org", *upstreams.split())] == [True] * 3
    assert '"uri":"/readyz"' in adapted.stdout
