#!/usr/bin/env python3
"""
Ask whether an installed package has a known vulnerability. OSV is asked about the packages of requirements.lock, npm's
registry about those of clients/typescript/package-lock.json. `make audit` runs this.

Exits with 0 if both answered and know no vulnerability, 1 if one is known, and 3 if none is known but a source was out
of reach.
"""

import argparse
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = "requirements.lock"
NPM_LOCK = "clients/typescript/package-lock.json"
OSV = "https://api.osv.dev/v1/query"

FOUND, NOT_ASKED = 1, 3


class NotAskedError(Exception):
    """No source answered about these packages."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--osv-url", default=OSV, metavar="URL", help="default: %(default)s")
    parser.add_argument("--npm-registry", metavar="URL", help="default: as npm is set up")
    given = parser.parse_args()
    found, silent = False, False
    for name, ask in ((LOCK, partial(ask_osv, given.osv_url)), (NPM_LOCK, partial(ask_npm, given.npm_registry))):
        try:
            asked, known = ask()
        except NotAskedError as error:
            silent = True
            print(f"{name}: NOT AUDITED, no source could be reached: {error}")
            continue
        found = found or bool(known)
        print(f"{name}: {asked} packages asked for, {len(known)} known vulnerabilities")
        for line in known:
            print(f"  {line}")
    return FOUND if found else NOT_ASKED if silent else 0


def ask_osv(url: str) -> tuple[int, list[str]]:
    """Return how many packages were asked for, and a line for each known vulnerability. Raises NotAskedError."""
    audit = [sys.executable, "-m", "pip_audit", "--requirement", LOCK, "--disable-pip", "--require-hashes"]
    report = run(
        [*audit, "--vulnerability-service", "osv", "--osv-url", url, "--format", "json", "--progress-spinner", "off"]
    )
    if "dependencies" not in report:
        raise NotAskedError(report["message"])
    packages = report["dependencies"]
    if skipped := [package["name"] for package in packages if "skip_reason" in package]:
        raise NotAskedError(f"skipped {', '.join(skipped)}")
    return len(packages), [
        f"{package['name']} {package['version']}: {one['id']}, mended in {', '.join(one['fix_versions']) or 'none'}"
        for package in packages
        for one in package["vulns"]
    ]


def ask_npm(registry: str | None) -> tuple[int, list[str]]:
    """Return how many packages were asked for, and a line for each known vulnerability. Raises NotAskedError."""
    audit = ["npm", "audit", "--json", "--package-lock-only", "--fetch-retries", "0"]
    report = run([*audit, *(["--registry", registry] if registry else [])], folder=Path(NPM_LOCK).parent)
    if "auditReportVersion" not in report:
        raise NotAskedError(report["message"])
    return report["metadata"]["dependencies"]["total"], [
        f"{name}: {one['severity']}, by {', '.join(via if isinstance(via, str) else via['url'] for via in one['via'])}"
        for name, one in report["vulnerabilities"].items()
    ]


def run(command: list[str], *, folder: Path = Path()) -> dict[str, Any]:
    """Run the command, and return the report that it prints, or its last line of errors as `message`."""
    try:
        done = subprocess.run(command, cwd=ROOT / folder, capture_output=True, text=True, check=False, timeout=600)
        report: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"message": str(error)}
    except json.JSONDecodeError:
        return {"message": done.stderr.strip().rpartition("\n")[2] or f"{command[0]} ended with {done.returncode}"}
    return report


if __name__ == "__main__":
    sys.exit(main())
