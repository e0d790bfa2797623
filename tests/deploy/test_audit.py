"""deploy/audit.py against sources on loopback that speak as OSV and npm's registry do."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest
from aiohttp import web

from tests.support.background import in_background
from tests.support.deployment import DEPLOY
from tests.support.http_server import serving

pytestmark = [pytest.mark.proves("S14"), pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")]

ADVISORY = {"id": 1, "severity": "high", "title": "a flaw", "url": "https://example.org", "vulnerable_versions": "*"}
VULNERABILITY = {
    "id": "PYSEC-2026-1",
    "summary": "a flaw",
    "affected": [{"package": {"name": "django", "ecosystem": "PyPI"}, "ranges": [], "versions": []}],
}


async def answers(request: web.Request) -> web.Response:
    """The first part of the path says what the source knows or does."""
    does, _, place = request.path.removeprefix("/").partition("/")
    if does == "refuses":
        return web.json_response({}, status=405)
    if request.method == "GET":  # npm looks for a version that has no flaw
        return web.json_response({}, status=404)
    body = await request.read()
    asked: Mapping[str, object] = json.loads(gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body)
    if place == "osv":
        package = asked["package"]
        assert isinstance(package, dict)
        return web.json_response({"vulns": [VULNERABILITY]} if (does, package["name"]) == ("knows", "django") else {})
    return web.json_response({"typescript": [ADVISORY]} if does == "knows" and "typescript" in asked else {})


@pytest.mark.parametrize(
    ("osv", "npm", "status", "said"),
    [
        ("silent", "silent", 0, ["requirements.lock: ", "package-lock.json: 3", "0 known"]),
        ("knows", "silent", 1, ["1 known", "django 5.", "PYSEC-2026-1"]),
        ("knows", "refuses", 1, ["PYSEC-2026-1", "package-lock.json: NOT AUDITED, no source could be reached"]),
        (
            "away",
            "knows",
            1,
            ["requirements.lock: NOT AUDITED, no source could be reached", "typescript: high, by https://example.org"],
        ),
        ("silent", "refuses", 3, ["package-lock.json: NOT AUDITED, no source could be reached: 405"]),
        ("away", "away", 3, ["requirements.lock: NOT AUDITED", "package-lock.json: NOT AUDITED"]),
    ],
)
def test_what_is_known_is_told_and_what_could_not_be_asked_is_never_called_clean(
    osv: str, npm: str, status: int, said: list[str]
):
    with in_background(serving(answers)) as base:
        sources = {"silent": base, "knows": base, "refuses": base, "away": "http://127.0.0.1:9"}
        done = subprocess.run(
            [
                *(sys.executable, str(DEPLOY / "audit.py")),
                *("--osv-url", f"{sources[osv]}/{osv}/osv", "--npm-registry", f"{sources[npm]}/{npm}/"),
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    for words in said:
        assert words in done.stdout
    if status == 3:
        assert ("0 known" in done.stdout) == (osv != "away")
