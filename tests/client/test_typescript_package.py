"""The TypeScript client's package: packed, it works alone in a clean directory, and its types are the API's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command

from jobs.models import Job
from tests.api.conftest import SPEC
from tests.factories import move_along
from tests.support.processes import started
from tests.support.typescript import NODE_OPTIONS, PACKAGE, node, run

PROGRAM = """
import { QueueOps } from "queueops-client";

const [address, key, kind, payload] = process.argv.slice(2) as [string, string, string, string];
const queue = new QueueOps(address, key);
const job = await queue.submit(kind, JSON.parse(payload), { priority: "low" });
console.log(`submitted ${job.id}`);
for await (const update of queue.watch(job)) {
  const { subject, event } = update;
  console.log(`${update.kind} ${event?.to ?? ("state" in subject ? subject.state : "")}`);
}
console.log(`ended ${(await queue.wait(job)).state}`);
"""
COMPILER = ("--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "--types", "node")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean directory into which the packed package was installed, and the program, compiled."""
    command, directory = node(), tmp_path_factory.mktemp("package")
    run("npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", str(directory))
    [packed] = directory.glob("*.tgz")
    (directory / "package.json").write_text('{"type": "module"}')
    run("npm", "install", "--offline", "--no-audit", "--no-fund", str(packed), cwd=directory)
    (directory / "app.ts").write_text(PROGRAM)
    # The types of Node alone come from the checkout: the program prints.
    types = ("--typeRoots", str(PACKAGE / "node_modules/@types"))
    run(command, str(PACKAGE / "node_modules/typescript/bin/tsc"), *COMPILER, *types, "app.ts", cwd=directory)
    return directory


def test_nothing_comes_along_and_no_source_is_missing(installed: Path):
    assert [path.name for path in (installed / "node_modules").iterdir() if path.name[0] != "."] == ["queueops-client"]
    package = installed / "node_modules/queueops-client"
    assert {path.name for path in package.iterdir()} == {
        "LICENSE",
        "README.md",
        "dist",
        "examples",
        "package.json",
        "src",
    }
    for source in (package / "src").rglob("*.ts"):
        built = package / "dist" / source.relative_to(package / "src")
        assert built.with_suffix(".js").exists(), source
        assert built.with_suffix(".d.ts").exists(), source
    assert "dependencies" not in json.loads((package / "package.json").read_text())


@pytest.mark.parametrize("runtime", ["the package's", "the system's"])
@pytest.mark.django_db(transaction=True)
def test_a_small_program_submits_a_job_and_watches_it(installed: Path, address: str, key: str, runtime: str):
    command = node()
    if runtime == "the system's":  # often an older one, without a WebSocket of its own
        command = shutil.which("node") or command
    arguments = (str(installed / "app.js"), address, key, SPEC["kind"], json.dumps(SPEC["payload"]))
    with started(command, *arguments) as program:
        program.wait_for_output("state queued")
        move([Job.objects.get().pk])
        program.wait_for_output("ended completed")
        assert program.process.wait(120) == 0
        assert str(Job.objects.get().pk) in program.output


def test_its_own_tests_pass():
    """They test the stores and a tracker on each of them, ids, numbers and signals."""
    tests = [str(path) for path in (PACKAGE / "test").glob("*.test.mjs")]
    assert tests
    run(node(), NODE_OPTIONS, "--test", *tests)


def move(ids: list[UUID]) -> None:
    for edge in ("dispatch", "start", "complete"):
        move_along(edge, ids)


def test_the_types_are_those_of_the_openapi_document(tmp_path: Path):
    """If it fails: `make docs`."""
    command = node()
    call_command("spectacular", "--format", "openapi-json", "--file", str(tmp_path / "openapi.json"))
    written = tmp_path / "openapi.ts"
    run(command, "generate_types.mjs", str(written), input=(tmp_path / "openapi.json").read_text())
    assert written.read_text() == (PACKAGE / "src/openapi.ts").read_text()


def test_the_lock_names_no_registry():
    lock: dict[str, Any] = json.loads((PACKAGE / "package-lock.json").read_text())
    assert lock["packages"]
    for name, package in lock["packages"].items():
        assert "resolved" not in package, name
