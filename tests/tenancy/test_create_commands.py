"""Projects and keys from a terminal, where nobody has signed in yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from queueops.audit.models import AuditEntry
from queueops.core.env.reading import BadConfiguration, read
from queueops.tenancy.models import ProducerKey, Project, ProjectMove, digest_of

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(*arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_a_project_and_its_key_are_made_and_audited(client):
    said, _ = run("create_project", "acme", "--name", "Acme Ltd", "--weight", "2")
    assert "create_key acme" in said
    project = Project.objects.get(pk="acme")
    assert (project.name, project.weight) == ("Acme Ltd", 2.0)
    secret, told = run("create_key", "acme", "--name", "nightly", "--days", "30", "--requests-per-minute", "120")
    key = ProducerKey.objects.get()
    assert key.digest == digest_of(secret.strip())
    assert (key.scopes, key.requests_per_minute) == (["read", "submit"], 120)
    assert key.expires_at is not None
    assert timedelta(days=29) < key.expires_at - timezone.now() <= timedelta(days=30)
    assert secret.strip() not in told
    answer = client.get("/api/v1/project/", headers={"Authorization": f"Bearer {secret.strip()}"})
    assert answer.json()["id"] == "acme"
    entries = AuditEntry.objects.order_by("pk").values_list("action", "actor", "project_id")
    assert list(entries) == [
        ("add_project", "system:create_project", "acme"),
        ("issue_key", "system:create_key", "acme"),
    ]
    assert secret.strip() not in str(list(AuditEntry.objects.values()))


def test_a_key_has_the_scopes_that_are_named_once_each():
    run("create_project", "acme")
    assert Project.objects.get().name == "acme"
    run("create_key", "acme", "--name", "a", "--scope", "usage", "--scope", "decide", "--scope", "usage")
    assert ProducerKey.objects.get().scopes == ["decide", "usage"]


def test_a_project_that_has_moved_has_no_new_keys_here_and_where_it_is_is_told():
    run("create_project", "acme")
    Project.objects.update(move=ProjectMove.MOVED, moved_to="https://two.example")
    with pytest.raises(CommandError, match=r"acme has moved to https://two.example.*Issue it there"):
        run("create_key", "acme", "--name", "a")
    assert not ProducerKey.objects.exists()
    Project.objects.update(move=ProjectMove.MOVING)
    run("create_key", "acme", "--name", "a")  # as people may in the admin: the move finds it


WRONG: list[tuple[tuple[str, ...], str]] = [
    (("create_project", "Acme"), "id: Use 1 to 63 lower-case"),
    (("create_project", ""), "id: This field cannot be blank"),
    (("create_project", "new", "--name", " "), "name: Give a name"),
    (("create_project", "new", "--name", "a\x1b[31m"), "name: Give a name"),
    (("create_project", "new", "--weight", "nan"), "weight: "),
    (("create_project", "new", "--weight", "inf"), "weight: "),
    (("create_key", "there", "--name", " "), "name: Give a name"),
    (("create_key", "there", "--name", "a\x00"), "name: Give a name"),
    (("create_key", "there", "--name", "n" * 201), "name: Ensure"),
    (("create_project", "there"), "already exists"),
    (("create_project", "acme", "--weight", "0"), "0.01"),
    (("create_project", "acme", "--name", "x" * 201), "200 characters"),
    (("create_key", "nobody", "--name", "a"), "create_project makes one"),
    (("create_key", "there", "--name", "a", "--days", "0"), "--days 0"),
    (("create_key", "there", "--name", "a", "--days", "99999"), "--days 99999"),
    (("create_key", "there", "--name", "a", "--requests-per-minute", "0"), "greater than or equal to 1"),
    (("create_key", "there", "--name", ""), "name: Give a name"),
    (("create_key", "there", "--name", "a", "--scope", "everything"), "invalid choice"),
]


def test_wrong_input_is_refused_and_nothing_is_made():
    run("create_project", "there")
    faults = {}
    for arguments, told in WRONG:
        try:
            faults[arguments] = run(*arguments)[0]
        except CommandError as error:
            if told not in str(error):
                faults[arguments] = str(error)
    assert faults == {}
    assert [project.pk for project in Project.objects.all()] == ["there"]
    assert not ProducerKey.objects.exists()


def test_a_key_names_its_cell_and_keys_of_before_go_on(client, settings):
    run("create_project", "acme")
    old, _ = run("create_key", "acme", "--name", "old")
    settings.QUEUEOPS = replace(settings.QUEUEOPS, cell="eu12")
    new, _ = run("create_key", "acme", "--name", "new")
    assert new.startswith("qo_eu12_")
    assert ProducerKey.objects.get(name="new").prefix == new[:16]
    for secret in (old, new):
        assert client.get("/api/v1/project/", headers={"Authorization": f"Bearer {secret.strip()}"}).status_code == 200
    with pytest.raises(BadConfiguration, match="QUEUEOPS_CELL must be one to four small letters and digits"):
        read({"QUEUEOPS_CELL": "Europe"}, default_data_dir=Path())
