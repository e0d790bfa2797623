"""The image has what runs, and its commands are those of manage.py. tests/deploy/test_production.py carries it out."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import PurePosixPath

from tests.support.all_faults import all_faults
from tests.support.deployment import DEPLOY, HOME, dockerfile, is_command, stages
from tests.support.processes import ROOT

IGNORED = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def last(name: str) -> str:
    [*_, found] = [step.text for step in stages()[-1] if step.name == name]
    return found


def copied() -> set[str]:
    """What the first stage takes of the checkout."""
    return {source for step in stages()[0] if step.name == "COPY" for source in step.words[:-1]}


def locked(path: str) -> dict[str, str]:
    return dict(PINNED.findall((ROOT / path).read_text(encoding="utf-8")))


def test_both_stages_stand_on_a_base_that_can_be_chosen():
    assert dockerfile()[0].text.startswith("BASE=")
    assert [stage[0].text for stage in stages()] == ["${BASE}${DIGEST} AS build", "${BASE}${DIGEST}"]


def test_everything_copied_is_there_and_sent_to_the_builder_and_nothing_besides():
    assert [path for path in copied() if not (ROOT / path).exists()] == []
    assert IGNORED[0] == "*"
    assert {path.removeprefix("!") for path in IGNORED if path.startswith("!")} == copied()


def test_every_package_that_runs_is_copied_with_its_templates_and_runbooks():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {*contracts["root_packages"], "manage.py", "templates", "docs/runbooks"} <= copied()


def test_it_runs_as_nobody_who_owns_anything_in_it():
    user = last("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)  # by number: Kubernetes cannot check a name
    order = [step.name for step in stages()[-1]]
    assert order.index("USER") > max(place for place, name in enumerate(order) if name in {"RUN", "COPY"})


def test_its_commands_are_those_of_manage_py():
    assert json.loads(last("ENTRYPOINT")) == ["python", "manage.py"]
    assert is_command(json.loads(last("CMD"))[0])
    assert f"PATH={HOME}/.venv/bin:$PATH" in last("ENV")
    assert last("WORKDIR") == HOME
    assert PurePosixPath(HOME).name == "queueops"


def test_its_locks_have_what_runs_as_it_is_tested_and_no_tools():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tested = locked("requirements.lock")
    with all_faults() as of:
        for extra in ("", "mcp", "oidc", "otel", "s3"):
            runs = locked(f"deploy/requirements{extra and '-'}{extra}.lock")
            needed = [*project["dependencies"], *(project["optional-dependencies"][extra] if extra else [])]
            declared = {re.split(r"[^\w.-]", name)[0].lower() for name in needed}
            with of(extra or "no extra"):
                assert declared <= {name.lower() for name in runs}
                assert runs.items() <= tested.items()
                assert runs.keys() & {"pytest", "mypy", "ruff", "playwright"} == set()
