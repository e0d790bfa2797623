"""A rehearsal: a file of jobs against the sandbox, under limits of elsewhere, and nothing of it stays."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobs.models import Job
from queueops.tenancy.models import Credential, Project
from ratelimits.models import Counter, Limit
from tests.factories import make_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    sheet: dict[str, Any] = {"credential": "robot", "range": "Sheet1!A1", "values": [["1"]]}
    jobs: list[dict[str, Any]] = [  # to a spreadsheet each, or they would leave as one call
        {"kind": "google_sheets.values_append", "payload": {**sheet, "spreadsheet_id": f"s{n}"}} for n in range(6)
    ]
    jobs.append({"kind": "http.request", "payload": {"method": "GET", "url": "https://api.example.com/a"}})
    for provider in ("openai", "anthropic", "gemini"):
        asked: dict[str, Any] = {"provider": provider, "credential": provider, "model": "m", "prompt": "hello"}
        jobs.append({"kind": "llm.generate", "payload": {**asked, "max_output_tokens": 64}})
    path = tmp_path / "jobs.ndjson"
    path.write_text("\n".join(map(json.dumps, jobs)))
    return path


def allow(settings: Any) -> None:
    settings.QUEUEOPS = replace(settings.QUEUEOPS, allow_loopback_targets=True)


def said(*arguments: Any) -> str:
    out = StringIO()
    call_command("rehearse", *map(str, arguments), stdout=out)
    return out.getvalue()


def test_a_file_meets_the_limits_of_elsewhere_at_the_sandbox_and_leaves_nothing(file, tmp_path, settings):
    allow(settings)
    Limit.objects.create(
        name="sheets-write", service="google-sheets", call_type="write", scope="project", capacity=4, window_seconds=2
    )
    limits, knobs = tmp_path / "limits.json", tmp_path / "knobs.json"
    said("--write-limits", limits)
    Limit.objects.all().delete()
    knobs.write_text(json.dumps({"google_sheets": {"writes_per_user": 1000}}))
    told = said(file, "--limits", limits, "--knobs", knobs, "--minutes", "0.5")
    assert "10 jobs in" in told
    assert "10 completed" in told.lower()
    assert "took 10 calls and refused 0" in told
    assert "6 sheets-write" in told
    assert "sheets-write (project:rehearsal) lets it through in" in told
    assert "The whole file, 10 jobs" in told
    left = [model.objects.exists() for model in (Job, Limit, Counter, Credential)]
    assert [*left, Project.objects.filter(pk="rehearsal").exists()] == [False] * 5


def test_what_cannot_be_rehearsed_is_said_before_anything_is_begun(file, tmp_path, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, allow_loopback_targets=False)
    with pytest.raises(CommandError, match="QUEUEOPS_ALLOW_LOOPBACK_TARGETS"):
        said(file)
    allow(settings)
    own = tmp_path / "own.ndjson"
    own.write_text('{"kind": "acme.invoice", "payload": {}}')
    with pytest.raises(CommandError, match=r"acme\.invoice: the sandbox stands for no service"):
        said(own)
    with pytest.raises(CommandError, match="cannot be read"):
        said(tmp_path / "none")
    make_job()
    with pytest.raises(CommandError, match="Jobs wait here"):
        said(file)
