"""The matrix of roles: every screen and every action of the admin, for every role that is shipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.template.response import TemplateResponse
from django.urls import reverse

from jobs.models import BulkOperation, Dependency, PauseSwitch, RefusedCalls
from jobs.states import JobState
from queueops.audit.models import AuditEntry
from queueops.screens.verbs import Verb
from queueops.site import roles
from queueops.site.documents.role_docs import roles_page
from ratelimits.models import Counter, ResumeRamp
from tests.factories import make_batch, make_dead_letter, make_job, make_provider_batch
from tests.security.world import World
from tests.support.people import signed_in
from tests.support.screens import address_name, registered
from tests.support.undone import rows_written, undone

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar"), pytest.mark.proves("S5")]

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
    assert len(VERBS) > 50
    assert {(screen, name) for screen, name, _ in VERBS} >= OTHERWISE | WITHOUT_A_REASON
    assert {(screen, name): needs for screen, name, needs, _ in ACTIONS if needs not in known} == {}


def test_every_permission_of_a_role_exists():
    known = {
        f"{one.content_type.app_label}.{one.codename}" for one in Permission.objects.select_related("content_type")
    }
    assert {role: held - known for role, held in roles.ROLES.items() if held - known} == {}


FORM = {
    "confirmed": "yes",
    "reason": "tested",
    "note": "tested",
    "delay": "5",
    "seconds": "5",
    "priority": "urgent",
    "spread_seconds": "0",
    "billed": "no",
    "payload": '{"method": "GET", "url": "http://127.0.0.1:9/"}',
}
STATE_OF = {"reset": JobState.IN_PROGRESS, "again": JobState.COMPLETED}
OF_LIMITS = {"ratelimits_limit", "ratelimits_counter"}
# Verbs that act on a row in a state that the world has none in, or that ask for more than FORM has.
OTHERWISE = {
    *(("jobs_providerbatch", "cancel"), ("jobs_providerbatch", "look"), ("jobs_schedule", "run")),
    *(("jobs_schedule", "pause"), ("jobs_maintenancewindow", "end"), ("jobs_bulkoperation", "go_on")),
    *(("tenancy_issuer", "fetch"), ("tenancy_issuer", "try_token"), ("tenancy_project", "at_once")),
    *(("auth_user", "reset_second_factor"), ("access_signincount", "unlock"), ("access_personaltoken", "revoke")),
    *(
        ("ratelimits_quotaalert", "silence"),
        ("ratelimits_usagetracking", "set_quota"),
        ("ratelimits_counter", "override"),
        ("ratelimits_counter", "end_override"),
        ("ratelimits_resumeramp", "go_on"),
    ),
}
WITHOUT_A_REASON = {("jobs_bulkoperation", "stop"), ("ratelimits_counter", "accept"), ("ratelimits_resumeramp", "end")}


def verbs() -> list[tuple[str, str, Verb]]:
    """Screen, name of the button, and what it does."""
    found = [
        (screen, name, getattr(getattr(model_admin, name), "verb", None))
        for screen, model_admin in screens()
        for name in getattr(model_admin, "actions_detail", None) or ()
    ]
    return [(screen, name, verb) for screen, name, verb in found if verb is not None]


VERBS = verbs()
OTHER_ACTIONS = [
    one for one in ACTIONS if one[:2] not in {verb[:2] for verb in VERBS} and not one[1].endswith("_selected")
]


def stopped_calls() -> PauseSwitch:
    figures = {"project_id": "acme", "service": "openai", "code": "credit_gone", "failures": 1}
    stopped = RefusedCalls.objects.create(name="openai of acme", stopped_at=Now(), **figures)
    return PauseSwitch.objects.create(scope="refused", key=stopped.name, paused_by="system")


OF_ITS_OWN = {
    ("jobs_pauseswitch", "try_now"): stopped_calls,
    ("jobs_providerbatch", "settle"): lambda: make_provider_batch(state="completed", closed_at=Now(), unanswered=1),
}


def rows_in_their_state(world: World) -> dict[tuple[str, str], str]:
    """A row of each verb that the verb will act on."""
    Counter.objects.update(proposed_capacity=200, proposed_at=Now())
    ResumeRamp.objects.update(held_share=None, over_seconds=3600)
    found = {(screen, name): world.ids[screen] for screen, name, _ in VERBS}
    for screen, name, _ in VERBS:
        row: Any = None
        if screen == "jobs_job":
            row = make_job(state=STATE_OF.get(name, JobState.RETRIED), held=name == "go_on")
            row = make_dead_letter().job if name == "requeue" else row
        elif screen == "jobs_batch":
            row = make_batch(paused=name == "resume")
            make_job(batch=row)
            if name == "retry_failed":
                make_dead_letter(batch=row)
        elif (screen, name) in OF_ITS_OWN:
            row = OF_ITS_OWN[screen, name]()
        elif screen == "jobs_deadletter":
            row = make_dead_letter()
        elif screen == "jobs_bulkoperation":
            row = BulkOperation.objects.create(action="cancel_jobs", parameters={}, total=1)
        if name == "go_on" and screen in {"jobs_job", "jobs_batch"}:
            named = {"on_id": make_job().pk, "on_batch": False, "on_failure": "hold", "project_id": "acme"}
            Dependency.objects.create(owner_id=row.pk, of_batch=screen == "jobs_batch", **named)
        if row is not None:
            found[screen, name] = str(row.pk)
    return found


def address_of(screen: str, name: str, pk: str) -> str:
    return reverse(f"admin:{screen}_{name}", args=[quote(pk)] if pk else [])


def may_take(role: str | None, verb: Verb) -> bool:
    return role == "superuser" or verb.permission in ROLES[role]


@pytest.mark.parametrize("role", [*ROLES, "superuser"], ids=str)
def test_a_verb_is_carried_out_for_those_with_its_permission_alone(role):
    world, client = World.make(), signed_in(role)
    rows = rows_in_their_state(world)
    trail = AuditEntry.objects.filter(actor__startswith="user:")
    faults: dict[tuple[str, str], Any] = {}
    for screen, name, verb in VERBS:
        with undone():
            told = trail.filter(reason="tested") if screen in OF_LIMITS else trail
            before, entries = rows_written(), told.count()
            answer = client.post(address_of(screen, name, rows[screen, name]), FORM)
            did = (answer.status_code, rows_written() > before, told.count() > entries)
        if not may_take(role, verb):
            fine = did == (403, False, False)
        else:
            fine = did == (302, True, True) or ((screen, name) in OTHERWISE and did[0] in {200, 302})
        if not fine:
            faults[screen, name] = did
    for screen, name, needs, is_of_row in OTHER_ACTIONS:
        with undone():
            answer = client.post(address_of(screen, name, world.ids[screen] if is_of_row else ""), FORM)
        if (answer.status_code == 403) is (role == "superuser" or needs in ROLES[role]):
            faults[screen, name] = answer.status_code
    assert faults == {}


def says_how_many(asked: Any) -> bool:
    """Whether a page says what would be done to how many rows; of a batch these are its jobs."""
    return (
        re.search(r"<strong>[1-9][\d,]*(?: [a-z ]+ of 1 batch)?</strong> will be", asked.content.decode()) is not None
    )


@pytest.mark.matrix
def test_a_verb_first_says_what_it_would_do_and_wants_a_reason_for_what_overrides():
    rows, client = rows_in_their_state(World.make()), signed_in("superuser")
    unconfirmed = {name: value for name, value in FORM.items() if name != "confirmed"}
    faults: dict[tuple[str, str, str], Any] = {}
    before = rows_written()
    for screen, name, verb in VERBS:
        address = address_of(screen, name, rows[screen, name])
        for asked in (client.get(address), client.post(address, unconfirmed)):
            says = says_how_many(asked) or (screen, name) in OTHERWISE
            if asked.status_code != 200 or not says:
                faults[screen, name, asked.request["REQUEST_METHOD"]] = asked.status_code
        if (verb.overrides or screen in OF_LIMITS) and (screen, name) not in WITHOUT_A_REASON:
            refused = client.post(address, {**FORM, "reason": " "})
            if refused.status_code != 200 or "This field is required" not in refused.content.decode():
                faults[screen, name, "no reason"] = refused.status_code
        if rows_written() != before:
            faults[screen, name, "wrote"], before = True, rows_written()
    assert faults == {}


@pytest.mark.parametrize("role", ["viewer", "superuser"])
@pytest.mark.matrix
def test_the_lists_action_asks_first_and_is_refused_without_permission(role):
    rows, client = rows_in_their_state(World.make()), signed_in(role)
    selectable = {(screen, name) for screen, name, _, _ in ACTIONS}
    faults = {}
    for screen, name, verb in VERBS:
        if (screen, f"{name}_selected") in selectable:
            chosen = {"action": f"{name}_selected", "_selected_action": [rows[screen, name]]}
            address, before, may = reverse(f"admin:{screen}_changelist"), rows_written(), may_take(role, verb)
            asks = (
                says_how_many(client.post(address, chosen)),
                rows_written() > before,
            )
            with undone():
                done = client.post(address, {**chosen, **FORM})
                wrote = rows_written() > before
            if asks not in {(may, False), (may and (screen, name) not in OTHERWISE, False)} or (
                (wrote != may or (role == "superuser" and done.status_code != 302))
                and not (may and (screen, name) in OTHERWISE)
            ):
                faults[screen, name] = (asks, wrote, done.status_code)
    assert faults == {}


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
def test_a_screen_shows_adds_changes_and_deletes_for_those_with_the_permission_alone(role, ever_open, monkeypatch):
    # Whether a page opens is decided before it is drawn.
    monkeypatch.setattr(TemplateResponse, "rendered_content", "")
    monkeypatch.setattr(admin.site, "each_context", lambda request: {})
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
            if expected and (screen, page) not in ever_open:
                ever_open[screen, page] = superuser.get(address).status_code != 403
            if (client.get(address).status_code != 403) is not (expected and ever_open[screen, page]):
                wrong[address] = expected
    assert wrong == {}


EXTRA = {
    "jobs_job_new": "jobs.add_upload",
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
