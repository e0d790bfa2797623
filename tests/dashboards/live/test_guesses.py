"""Guesses at keys, against a process of their own: whoever has guessed too often is let wait, whatever comes next."""

from __future__ import annotations

import pytest

from tests.support.live import LiveClient

pytestmark = pytest.mark.django_db(transaction=True)


def test_guesses_at_keys_are_bounded(client: LiveClient):
    codes = {client.watch("me", key=f"qo_guess{number}").closed() for number in range(40)}
    assert codes == {4401, 4429}
