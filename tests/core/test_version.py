"""One version, told alike wherever it is told."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from drf_spectacular.generators import SchemaGenerator

from queueops.core import version
from queueops.core.version import VERSION, commit, full_version
from tests.support.processes import ROOT


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program stands."""
    monkeypatch.setattr(version, "CHECKOUT", tmp_path)
    # The process keeps what it knows of its own checkout: else a test that starts nothing would ask git.
    monkeypatch.setattr(version, "commit", cache(commit.__wrapped__))
    return tmp_path


def test_what_packages_and_images_are_called_is_the_version():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
    [image] = yaml.safe_load((ROOT / "deploy/kubernetes/kustomization.yaml").read_text())["images"]
    assert image == {"name": "queueops", "newTag": VERSION}
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    assert compose["services"]["web"]["image"] == f"queueops:${{QUEUEOPS_TAG:-{VERSION}}}"
    assert f"queueops:{VERSION} ." in (ROOT / "deploy/Dockerfile").read_text()


def test_the_changelog_has_a_section_for_it():
    sections = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    released = [section for section in sections if section != "Unreleased"]
    assert re.fullmatch(rf"{re.escape(VERSION)} - \d{{4}}-\d\d-\d\d", released[0])


def test_every_version_begins_with_at_most_ten_lines_that_an_operator_needs():
    text = (ROOT / "CHANGELOG.md").read_text()
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        needed = re.match(r".+\n\n### What you need to know\n\n((?:- .+\n)+)\n### ", section)
        assert needed is not None, section.splitlines()[0]
        assert len(needed[1].splitlines()) <= 10


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_command_tells_it(word):
    told = subprocess.run((sys.executable, ROOT / "manage.py", word), capture_output=True, text=True, check=True)
    assert told.stdout == f"QueueOps {full_version()}\n"


def test_a_probe_and_the_document_of_the_api_tell_it():
    assert Client().get("/healthz").json() == {"status": "alive", "version": VERSION}
    assert SchemaGenerator(patterns=[]).get_schema(public=True)["info"]["version"] == VERSION


@pytest.mark.django_db
def test_every_page_of_the_admin_tells_it_with_the_commit_and_only_to_who_is_signed_in():
    client = Client()
    login = client.get(reverse("admin:login")).content.decode()
    client.force_login(User.objects.create_superuser("ada"))
    for address in (
        reverse("admin:index"),
        reverse("admin:jobs_job_changelist"),
        reverse("admin:jobs_batch_changelist"),
    ):
        page = client.get(address).content.decode()
        [told] = re.findall(r'id="version">([^<]+)<', page)
        assert told == f"QueueOps {full_version()}"
    assert VERSION not in login


def test_the_commit_is_the_images_else_the_checkouts_else_none(elsewhere):
    assert full_version() == VERSION  # also where a checkout of something else is around it
    for line in (
        ["init", "--quiet"],
        ["-c", "user.name=a", "-c", "user.email=a", "commit", "--allow-empty", "-qm", "a"],
    ):
        subprocess.run(("git", "-C", elsewhere, *line), check=True)
    version.commit.cache_clear()
    assert re.fullmatch(rf"{re.escape(VERSION)} \([0-9a-f]{{7,}}\)", full_version())
    (elsewhere / ".commit").write_text("3f2a9c1")
    version.commit.cache_clear()
    assert full_version() == f"{VERSION} (3f2a9c1)"
