"""Whose a credential is at the door, before it gets a thread or its body a place."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone

from queueops.access.services.personal_tokens import issue_token
from queueops.core.web.askers import CannotTell, ShownCredential
from queueops.site.whose import whose
from queueops.tenancy.models import ProducerKey
from tests.factories import make_project
from tests.support.issuers import ISSUER, Signer, make_issuer, publishing, shared_token
from tests.support.people import session_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def stays_connected():
    """A test's transaction is its connection's."""
    with patch("queueops.site.whose.connections.close_all"):
        yield


def bearer(text: str) -> str | None:
    return whose(ShownCredential("bearer", text))


def test_all_keys_and_tokens_of_a_project_are_one_and_what_is_made_up_is_nobodys():
    project = make_project("acme")
    keys = [ProducerKey.issue(project, name=name)[1] for name in ("a", "b")]
    make_issuer()
    tokens = [shared_token(f"user-{number}") for number in range(2)]
    assert {bearer(one) for one in (*keys, *tokens)} | {whose(ShownCredential("key", keys[0]))} == {"project:acme"}
    ProducerKey.objects.update(revoked_at=timezone.now())
    made_up = (*keys, "qo_made_up", "qp_made_up", "a.b.c", shared_token(secret="another" * 9), shared_token(exp=1))
    assert {bearer(one) for one in made_up} == {None}


def test_a_person_is_one_by_every_session_and_personal_token():
    session = session_of("operator")
    user = User.objects.get()
    token = issue_token(user, name="mine", expires_at=timezone.now() + timedelta(days=1), actor="test")[1]
    assert whose(ShownCredential("session", session)) == bearer(token) == f"user:{user.pk}"
    assert whose(ShownCredential("session", "made-up-session")) is None


def test_nothing_is_fetched_and_what_cannot_be_told_is_said_so():
    signer = Signer()
    with publishing(signer) as server:
        make_issuer(jwks_url=server.url, issuer=f"{ISSUER}/slow")
        with pytest.raises(CannotTell):
            bearer(signer.token(iss=f"{ISSUER}/slow"))
        assert server.fetches == 0
    with patch("queueops.site.whose.find_key", side_effect=OperationalError), pytest.raises(CannotTell):
        bearer("qo_a")
