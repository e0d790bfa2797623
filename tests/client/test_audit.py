"""The audit trail by the clients and by the command, against the real server."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from queueops.audit import trail
from queueops.audit.models import AuditEntry
from queueops_client import AsyncQueueOps, QueueOps
from tests.client.both import Both
from tests.client.typescript import TypeScriptQueueOps

pytestmark = pytest.mark.django_db(transaction=True)


def write(*targets: str, **fields: Any) -> None:
    for target in targets:
        trail.record(**{"actor": "user:1", "action": "try", "project_id": "acme", **fields}, target=target)


@pytest.mark.parametrize("form", [QueueOps, AsyncQueueOps, TypeScriptQueueOps])
def test_a_collector_goes_on_from_the_last_entry_that_it_has(form: Any, address: str, key: str):
    write(*"abcde")
    with Both(form, address, key) as client:
        assert [entry.target for entry in client.audit()] == [*"edcba"]
        assert {entry.cursor for entry in client.audit()} == {None}
        first = client.audit(order="oldest", page_size=2)
        assert [entry.target for entry in first] == [*"abcde"]
        assert [entry.cursor is None for entry in first] == [True, False, True, False, False]
        write("f")
        assert [entry.target for entry in client.audit(order="oldest", cursor=first[1].cursor)] == [*"cdef"]
        assert [entry.target for entry in client.audit(order="oldest", cursor=first[-1].cursor)] == ["f"]
        assert client.audit(actor="user:2") == []


def test_the_command_lists_narrows_and_exports(command: Any):
    write("job 1", reason="wrong sheet")
    write("\x1b[2Jjob 2", actor="key:qo_x")
    code, shown, _ = command("audit")
    assert code == 0
    assert shown.index("job 2") < shown.index("wrong sheet")
    assert "\x1b" not in shown
    assert "job 2" not in command("audit", "--actor", "user:1")[1]
    assert "There is none." in command("audit", "--action", "x")[1]
    assert "There may be more" in command("audit", "--limit", "1")[2]
    lines = [json.loads(line) for line in command("audit", "--json", "--oldest", "--all")[1].splitlines()]
    assert [line["id"] for line in lines] == list(AuditEntry.objects.order_by("pk").values_list("pk", flat=True))
    write("job 3")
    further = command("audit", "--json", "--oldest", "--cursor", lines[-1]["cursor"])[1]
    assert [json.loads(line)["target"] for line in further.splitlines()] == ["job 3"]


def test_what_a_limit_has_cut_off_is_gone_on_with(command: Any, monkeypatch):
    monkeypatch.setattr(import_module("queueops_client.cli.audit"), "PAGE", 2)
    for target in "abcdefg":
        write(target)
    everything = list(AuditEntry.objects.order_by("pk").values_list("pk", flat=True))
    for limit in (1, 2, 3, 5):
        lines = command("audit", "--json", "--oldest", "--limit", str(limit))[1].splitlines()
        first = [json.loads(line) for line in lines]
        assert len(first) == limit
        rest = command("audit", "--json", "--oldest", "--all", "--cursor", first[-1]["cursor"])[1]
        assert [line["id"] for line in first] + [json.loads(line)["id"] for line in rest.splitlines()] == everything


def test_the_command_says_what_is_wrong(command: Any):
    code, _, said = command("audit", "--after", "yesterday")
    assert (code, "created_after" in said) == (1, True)
    assert command("audit", "--cursor", "x")[0] == 2
