"""Sockets without credentials, and those of one tenant, beside the sockets of others."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards.live.hub import MAX_OF_ONE, MAX_OF_USER, MAX_SOCKETS, Hub
from dashboards.live.strangers import MAX_OF_ADDRESS, MAX_STRANGERS, Strangers
from dashboards.live.subjects import Refused
from dashboards.live.viewer import Viewer
from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.support.live import live_client

WITHOUT_CREDENTIALS = 1_100
OF_A_TENANT = 20


def test_where_strangers_have_no_room_the_oldest_of_the_address_with_the_most_goes():
    strangers, gone = Strangers(), []

    def come(address: str, number: int) -> Any:
        def put_out() -> None:
            gone.append((address, number))

        strangers.enter(address, put_out)
        return put_out

    first = come("a", 0)
    for number in range(1, MAX_OF_ADDRESS + 2):
        come("a", number)
    assert gone == [("a", 0), ("a", 1)]
    strangers.leave("a", first)  # it was told already
    assert len(strangers) == MAX_OF_ADDRESS
    others = [come(f"b{number}", 0) for number in range(MAX_STRANGERS - MAX_OF_ADDRESS)]
    assert len(gone) == 2
    come("c", 0)
    assert gone[2:] == [("a", 2)], "one that had no more than its share had to go"
    for number, other in enumerate(others):
        strangers.leave(f"b{number}", other)
    assert len(strangers) == MAX_OF_ADDRESS


def viewer(project: str | None, identity: str, *, expires_at: float | None = None) -> Viewer:
    return Viewer(project is None, project, None, "", identity, expires_at=expires_at)


def test_a_projects_keys_and_users_share_its_sockets_and_an_account_has_its_own():
    hub = Hub()

    def count(*arguments: Any, **options: Any) -> bool:
        try:
            hub._count(viewer(*arguments, **options))
        except Refused:
            return False
        return True

    assert all(count("acme", f"key:{number}") for number in range(MAX_OF_ONE - 1))
    assert count("acme", "token:1:a", expires_at=1.0)
    assert not count("acme", "key:another")
    assert not count("acme", "token:1:b", expires_at=1.0)
    assert sum(count("globex", "token:2:a", expires_at=1.0) for _ in range(30)) == MAX_OF_USER
    assert count("globex", "token:2:b", expires_at=1.0)
    staff = MAX_SOCKETS - MAX_OF_ONE - MAX_OF_USER - 1
    assert sum(count(None, f"user:{number % 2}") for number in range(MAX_SOCKETS)) == staff
    assert not count("initech", "key:1"), "a process has no more"


@pytest.mark.django_db(transaction=True)
@pytest.mark.proves("R15")
def test_sockets_without_credentials_keep_nobody_elses_out(figures: Any):
    key = ProducerKey.issue(make_project("acme"), name="producer")[1]
    with web_process() as (address, process), live_client(address) as client:
        mute = [client.watch("me") for _ in range(WITHOUT_CREDENTIALS)]
        sockets = [client.watch("me", key=key) for _ in range(OF_A_TENANT)]
        for socket in sockets:
            socket.first("snapshot")
        assert {socket.close_code for socket in sockets} == {None}
        assert process.runs, process.output
    figures(f"{sum(one.close_code == 4429 for one in mute)} of {WITHOUT_CREDENTIALS} mute sockets had to make room")
