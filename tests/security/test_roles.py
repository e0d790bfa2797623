"""The matrix of roles: every screen and every action of the admin, for every role that is shipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.urls import NoReverseMatch, reverse

from queueops.site import roles
from queueops.site.role_docs import roles_page
from tests.security.world import World
from tests.support.people import signed_in
from tests.support.screens import address_name, registered

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S5")]

ROLES = {role: roles.ROLES.get(role or "", frozenset()) for role in (None, *roles.ROLES)}
FOR_SUPERUSERS = {"django_q"}  # whatever permissions somebody was given


def screens() -> Iterator[tuple[str, Any]]:
    for model, model_admin in registered():
        yield address_name(model), model_admin


def actions() -> list[tuple[str, str, str, bool]]:
    """Screen, action, the permission it needs, and whether its address names a row."""
    found = []
    for screen, model_admin in screens():
        for kind in ("actions_detail", "actions_row", "actions_submit_line", "actions_list", "actions"):
            for name in getattr(model_admin, kind, None) or ():
                method = name if callable(name) else getattr(model_admin, name)
                found.append((screen, str(name), getattr(method, "needs", ""), kind != "actions_list"))
    return found


ACTIONS = actions()


def test_every_action_names_a_permission_that_exists():
    known = {
        f"{one.content_type.app_label}.{one.codename}" for one in Permission.objects.select_related("content_type")
    }
    assert len(ACTIONS) > 30
    assert {(screen, name): needs for screen, name, needs, _ in ACTIONS if needs not in known} == {}


def test_every_permission_of_a_role_exists():
    known = {
        f"{one.content_type.app_label}.{one.codename}" for one in Permission.objects.select_related("content_type")
    }
    assert {role: held - known for role, held in roles.ROLES.items() if held - known} == {}


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_an_action_opens_for_those_with_its_permission_alone(role):
    world = World.make()
    client = signed_in(role)
    wrong = {}
    for screen, name, needs, is_of_row in ACTIONS:
        try:
            address = reverse(f"admin:{screen}_{name}", args=[world.ids[screen]] if is_of_row else [])
        except NoReverseMatch:
            continue  # an action of the list: the next test
        status = client.post(address, {"confirmed": "yes"}).status_code
        if (status == 403) is (needs in ROLES[role]):
            wrong[screen, name] = status
    assert wrong == {}


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_the_lists_offer_the_actions_that_a_role_may_take_and_no_other(role, rf):
    client = signed_in(role)
    request = rf.get("/")
    request.user = roles_person(client)
    for screen, model_admin in screens():
        needs = {name: permission for where, name, permission, _ in ACTIONS if where == screen}
        offered = set(model_admin.get_actions(request)) - {"delete_selected"}
        assert offered <= {name for name, permission in needs.items() if permission in ROLES[role]}, screen


def roles_person(client: Any) -> Any:
    return User.objects.get(pk=client.session["_auth_user_id"])


@pytest.fixture(scope="module")
def ever_open() -> dict[tuple[str, str], bool]:
    """Which pages of which screens a superuser may open, as far as it was asked for."""
    return {}


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_a_screen_shows_adds_changes_and_deletes_for_those_with_the_permission_alone(role, ever_open):
    world = World.make()
    client, superuser = signed_in(role), signed_in("superuser")
    wrong = {}
    for screen, _ in screens():
        app, model = screen.split("_", 1) if not screen.startswith("django_q") else ("django_q", screen[9:])
        held = frozenset() if app in FOR_SUPERUSERS else ROLES[role]
        may_see = bool({f"{app}.view_{model}", f"{app}.change_{model}"} & held)
        pages = {"changelist": may_see, "add": f"{app}.add_{model}" in held}
        if screen in world.ids:
            pages |= {"change": may_see, "history": may_see, "delete": f"{app}.delete_{model}" in held}
        for page, expected in pages.items():
            of_row = page in {"change", "history", "delete"}
            address = reverse(f"admin:{screen}_{page}", args=[world.ids[screen]] if of_row else [])
            if (screen, page) not in ever_open:
                ever_open[screen, page] = superuser.get(address).status_code != 403
            if (client.get(address).status_code != 403) is not (expected and ever_open[screen, page]):
                wrong[address] = expected
    assert wrong == {}


EXTRA = {
    "jobs_deadletter_csv": "jobs.requeue_deadletter",
    "jobs_deadletter_ndjson": "jobs.requeue_deadletter",
    "jobs_deadletter_groups": "jobs.view_deadletter",
    "jobs_pauseswitch_pause_work": "jobs.pause_work",
    "auth_user_password_change": "auth.change_user",
    "ratelimits_usagetracking_top": "ratelimits.view_usagetracking",
    "ratelimits_usagetracking_csv": "ratelimits.export_usage",
    "ratelimits_allowance_repair": "ratelimits.correct_usage",
}


@pytest.mark.parametrize("role", ROLES, ids=str)
def test_pages_that_are_no_action_are_guarded_too(role):
    world = World.make()
    client = signed_in(role)
    for name, permission in EXTRA.items():
        args = [world.ids["auth_user"]] if name == "auth_user_password_change" else []
        status = client.get(reverse(f"admin:{name}", args=args)).status_code
        assert (status != 403) is (permission in ROLES[role]), (name, status)


def test_the_page_of_roles_lists_every_permission_of_each():
    page = roles_page()
    for role, held in roles.ROLES.items():
        assert role in page
        assert not [permission for permission in held if f"`{permission}`" not in page]
