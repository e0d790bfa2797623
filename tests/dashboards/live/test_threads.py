"""Sockets' reads in threads."""

from __future__ import annotations

import asyncio

import pytest
from django.db import DatabaseError, connection

from dashboards.live.threads import in_thread

pytestmark = pytest.mark.django_db


def _read(*, dies: bool = False) -> int:
    with connection.cursor() as cursor:
        if dies:
            connection.connection.close()
        cursor.execute("SELECT 7")
        [number] = cursor.fetchone()
    return int(number)


def test_a_read_whose_connection_had_died_is_begun_again_once():
    tries: list[bool] = []

    def read(*, dies: int) -> int:
        tries.append(True)
        return _read(dies=len(tries) <= dies)

    assert asyncio.run(in_thread(lambda: read(dies=1))) == 7
    assert len(tries) == 2
    tries.clear()
    with pytest.raises(DatabaseError):
        asyncio.run(in_thread(lambda: read(dies=2)))
    assert len(tries) == 2


def test_a_read_that_fails_on_a_sound_connection_is_not_repeated():
    tries: list[int] = []

    def read() -> None:
        tries.append(_read())
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    with pytest.raises(DatabaseError):
        asyncio.run(in_thread(read))
    assert tries == [7]
