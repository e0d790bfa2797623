"""The pages of personal tokens: what they show, and what they refuse."""

from __future__ import annotations

import pytest
from django.urls import reverse

from queueops.access.models import PersonalToken
from tests.security.world import World
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db


def test_a_tokens_page_says_whose_it_is_what_it_opens_and_whether_it_is_usable():
    world = World.make("nightly import")
    address = reverse("admin:access_personaltoken_change", args=[world.ids["access_personaltoken"]])
    page = signed_in("superuser").get(address).content.decode()
    for shown in ("owner-", "all projects", "usable"):
        assert shown in page


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "x", "expires_at_0": "2020-01-01", "expires_at_1": "00:00"}, "In the future"),
        ({"name": "", "expires_at_0": "2099-01-01", "expires_at_1": "00:00"}, "This field is required"),
        (
            {"name": "x", "project": "nobody", "expires_at_0": "2099-01-01", "expires_at_1": "00:00"},
            "Select a valid choice",
        ),
    ],
)
def test_what_cannot_be_a_token_is_refused_where_it_is_wrong(given: dict[str, str], said: str):
    page = signed_in("viewer").post(reverse("admin:access_personaltoken_add"), given)
    assert said in page.content.decode()
    assert not PersonalToken.objects.exists()
