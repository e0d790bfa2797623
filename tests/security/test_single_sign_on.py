"""Signing in by a provider (OpenID Connect), which runs as a process of its own."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from queueops.access.models import Identity
from queueops.access.services import provided, provider
from queueops.audit.models import AuditEntry
from queueops.site import roles
from queueops.site.diagnosis.access import examine_single_sign_on
from queueops.site.diagnosis.finding import DoctorVerdict
from tests.factories import make_project
from tests.security.people import CODE, LOGIN, SET_UP, code_now, is_signed_in, person, try_password, with_second_factor
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, providing
from tests.support.racing import run_together

pytestmark = [pytest.mark.django_db, pytest.mark.proves("S9")]

BEGIN = "/admin/login/provider/"
OPERATOR: dict[str, Any] = {"groups": ["ops", "lunch"]}


@pytest.fixture(scope="module")
def running():
    with providing() as started:
        yield started


@pytest.fixture
def theirs(running, configure):
    """A provider that this installation trusts."""
    roles.make_groups()
    trust(running, configure)
    running.behave(**OPERATOR)
    return running


def trust(running: Provider, configure: Any, **values: Any) -> None:
    configure(
        **{
            "oidc_issuer": running.issuer,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": CLIENT_SECRET,
            "oidc_roles": (("ops", "operator"), ("sre", "administrator"), ("ghosts", "no such role")),
            **values,
        }
    )


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


def at_the_provider(address: str) -> str:
    """Where the provider sends somebody who has signed in there."""
    try:
        urllib.request.build_opener(NoRedirects).open(address, timeout=10)
    except urllib.error.HTTPError as answer:
        return str(answer.headers["Location"])
    raise AssertionError("the provider sends nobody back")


def come_back(client: Client, *, begin: str = BEGIN) -> tuple[str, Any]:
    """Go to the provider and come back: the address one came by, and its answer."""
    asked = client.get(begin)
    assert asked.status_code == 302, asked.content.decode()
    back = at_the_provider(asked.headers["Location"])
    return back, client.get(back.removeprefix("http://testserver"))


def arrives() -> tuple[Client, Any]:
    client = Client()
    return client, come_back(client)[1]


def test_who_is_in_a_group_is_signed_in_with_its_role(theirs):
    theirs.behave(**OPERATOR, preferred_username="ann", email="ann@example.org", given_name="Ann")
    client, answer = arrives()
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
    assert is_signed_in(client)
    user = User.objects.get(username="ann")
    assert (user.email, user.first_name, user.is_staff, user.is_superuser) == ("ann@example.org", "Ann", True, False)
    assert list(user.groups.values_list("name", flat=True)) == ["operator"]
    assert user.has_perm("jobs.view_job")
    assert not user.has_usable_password()
    told = list(AuditEntry.objects.order_by("id").values_list("action", "actor"))
    assert told == [
        ("add_user", "system:provider"),
        ("link_account", "system:provider"),
        ("change_roles", "system:provider"),
        ("sign_in", f"user:{user.pk}"),
    ]


def test_it_is_asked_with_state_nonce_and_pkce(theirs):
    asked = parse_qs(urlsplit(Client().get(BEGIN).headers["Location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert {"state", "nonce", "code_challenge"} <= set(asked)
    assert asked["redirect_uri"] == ["http://testserver/admin/login/provider/callback/"]
    assert asked["scope"] == ["openid profile email"]


def test_one_goes_where_one_wanted_to_but_to_no_other_host(theirs):
    for wanted, found in (("/admin/jobs/job/", "/admin/jobs/job/"), ("https://evil.example/", "/admin/")):
        assert come_back(Client(), begin=f"{BEGIN}?next={wanted}")[1].headers["Location"] == found


def test_the_same_person_keeps_the_account_whatever_name_and_address_they_have_now(theirs):
    theirs.behave(**OPERATOR, preferred_username="ann")
    arrives()
    theirs.behave(**OPERATOR, preferred_username="ann.smith", email="smith@example.org")
    arrives()
    assert User.objects.get().username == "ann"
    assert User.objects.get().email == "smith@example.org"


def test_a_lost_group_takes_the_role_away_and_ends_what_is_open(theirs):
    theirs.behave(groups=["ops", "sre"])
    elsewhere, _ = arrives()
    user = User.objects.get()
    user.groups.add(Group.objects.get(name="viewer"))  # given here, and no business of the provider's
    theirs.behave(groups=["ops"])
    arrives()
    assert set(user.groups.values_list("name", flat=True)) == {"operator", "viewer"}
    assert is_signed_in(elsewhere)
    theirs.behave(groups=["lunch"])
    client, answer = arrives()
    assert answer.status_code == 403
    assert b"no_role" in answer.content
    assert not is_signed_in(client)
    assert not is_signed_in(elsewhere)
    make_project("acme")
    assert elsewhere.get("/api/v1/jobs/?project=acme").status_code in (401, 403)
    assert set(user.groups.values_list("name", flat=True)) == {"viewer"}
    theirs.behave(groups=["ops"])
    assert is_signed_in(arrives()[0])


@pytest.mark.parametrize("claims", [{"groups": []}, {"groups": ["lunch"]}, {"groups": ["ghosts"]}, {"groups": 7}])
def test_without_a_group_nobody_gets_in_and_no_account_is_made(theirs, claims):
    theirs.behave(**claims)
    client, answer = arrives()
    assert answer.status_code == 403
    assert b"You are in none of the groups" in answer.content
    assert not is_signed_in(client)
    assert not User.objects.exists()


@pytest.mark.parametrize("claims", [{}, {"_claim_names": {"groups": "src1"}, "hasgroups": True}])
def test_groups_that_were_left_out_are_not_none(theirs, claims):
    theirs.behave(**OPERATOR)
    elsewhere, _ = arrives()
    roles = set(User.objects.get().groups.values_list("name", flat=True))
    theirs.behave(**claims)
    client, answer = arrives()
    assert (answer.status_code, is_signed_in(client)) == (403, False)
    assert b"groups_missing" in answer.content
    assert set(User.objects.get().groups.values_list("name", flat=True)) == roles != set()
    assert is_signed_in(elsewhere)


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["ops"]}}),
        ("https://example.org/groups", {"https://example.org/groups": ["ops"]}),
        ("hd", {"hd": "ops"}),
        ("groups", {"userinfo": {"groups": ["ops"]}}),
    ],
)
def test_groups_are_found_in_any_claim_and_at_the_userinfo_address(theirs, configure, claim, told):
    trust(theirs, configure, oidc_group_claim=claim)
    theirs.behave(**told)
    assert is_signed_in(arrives()[0])


def test_userinfo_of_somebody_else_gives_nothing(theirs):
    theirs.behave(userinfo={"sub": "the-boss", "groups": ["sre"]})
    client, answer = arrives()
    assert (answer.status_code, is_signed_in(client)) == (403, False)
    assert b"bad_id_token (sub)" in answer.content


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("iss", "bad_id_token (iss)"),
        ("aud", "bad_id_token (aud)"),
        ("signature", "bad_id_token (signature)"),
        ("kid", "bad_id_token"),
        ("none", "bad_id_token"),
        ("hmac", "bad_id_token"),
        ("expired", "bad_id_token (expired)"),
        ("nonce", "bad_id_token (nonce)"),
        ("missing", "bad_id_token (missing)"),
        ("refuse", "provider_refused"),
    ],
)
def test_what_cannot_be_believed_signs_nobody_in(theirs, fault, code):
    theirs.behave(fault=fault, **OPERATOR)
    client, answer = arrives()
    assert answer.status_code == 403
    assert code in answer.content.decode()
    assert "You are not signed in" in answer.content.decode()
    assert not is_signed_in(client)
    assert not User.objects.exists()
    told = AuditEntry.objects.get()
    assert (told.action, told.target, (told.after or {})["wrong"]) == (
        "fail_sign_in",
        "sign-in provider",
        code.split()[0],
    )


def test_only_the_audiences_that_are_allowed_are_taken(theirs, configure):
    trust(theirs, configure, oidc_audiences=("another-client",))
    assert not is_signed_in(arrives()[0])
    theirs.behave(**OPERATOR, aud=[CLIENT_ID, "another-client"], azp=CLIENT_ID)
    assert is_signed_in(arrives()[0])


def test_a_state_is_good_once_and_in_its_own_browser(theirs):
    client = Client()
    back, _ = come_back(client)
    path = back.removeprefix("http://testserver")
    for browser in (client, Client()):
        browser.logout()
        answer = browser.get(path)
        assert (answer.status_code, is_signed_in(browser)) == (400, False)
        assert b"sign_in_stale" in answer.content
    forged = Client().get(f"{BEGIN}callback/?error=x&error_description=call+0900&state=made-up")
    assert (forged.status_code, b"0900" in forged.content) == (400, False)
    assert Client().get(f"{BEGIN}callback/").status_code == 400


def test_a_code_of_another_browser_is_worth_nothing(theirs):
    """The verifier stays here: PKCE."""
    mine, stolen = Client(), Client()
    code = parse_qs(urlsplit(at_the_provider(stolen.get(BEGIN).headers["Location"])).query)["code"][0]
    state = parse_qs(urlsplit(mine.get(BEGIN).headers["Location"]).query)["state"][0]
    answer = mine.get(f"{BEGIN}callback/?code={code}&state={state}")
    assert (answer.status_code, is_signed_in(mine)) == (403, False)


def test_a_provider_that_is_down_has_a_page_and_superusers_still_get_in(configure):
    roles.make_groups()
    with providing() as gone:
        gone.behave(**OPERATOR)
        trust(gone, configure, password_sign_in="superusers")
        client = Client()
        back = at_the_provider(client.get(BEGIN).headers["Location"])
        gone.stop()
        answer = client.get(back.removeprefix("http://testserver"))
        assert (answer.status_code, is_signed_in(client)) == (502, False)
        provider._client.cache_clear()
        answer = Client().get(BEGIN)
        assert answer.status_code == 502
        assert b"provider_unreachable" in answer.content
        assert examine_single_sign_on().verdict is DoctorVerdict.FAIL
    person("root", is_superuser=True)
    client = Client()
    try_password("root", client=client)
    assert is_signed_in(client)


def test_passwords_can_be_left_to_superusers(theirs, configure):
    person()
    person("root", is_superuser=True)
    trust(theirs, configure, password_sign_in="superusers")
    for name, is_let_in in (("ann", False), ("root", True)):
        client = Client()
        try_password(name, client=client)
        assert is_signed_in(client) is is_let_in
    page = Client().get(LOGIN).content.decode()
    assert "Sign in with single sign-on" in page
    assert "Passwords are for superusers here" in page


def test_no_account_is_taken_over_by_its_name_or_address(theirs):
    local = person("ann", email="ann@example.org")
    theirs.behave(**OPERATOR, preferred_username="ANN", email="ann@example.org", email_verified=True)
    client, _ = arrives()
    assert is_signed_in(client)
    made = User.objects.exclude(pk=local.pk).get()
    assert made.username.startswith("ANN-")
    assert not local.groups.exists()


@pytest.mark.parametrize(
    ("claims", "is_linked"),
    [
        ({"email": "ANN@example.org", "email_verified": True}, True),
        ({"email": "ann@example.org"}, False),
        ({"email": "ann@example.org", "email_verified": "true"}, False),
        ({"email": "root@example.org", "email_verified": True}, False),
        ({"email": "", "email_verified": True}, False),
    ],
)
def test_an_address_links_only_where_it_is_verified_and_never_a_superuser(theirs, configure, claims, is_linked):
    local = person("ann", email="ann@example.org")
    person("root", email="root@example.org", is_superuser=True)
    person("bob", email="")
    trust(theirs, configure, oidc_link_by_email=True)
    theirs.behave(**OPERATOR, **claims)
    arrives()
    made = User.objects.exclude(username__in=("ann", "root", "bob"))
    assert (Identity.objects.get().user == local) is is_linked
    assert made.exists() is not is_linked


def test_a_deactivated_account_stays_out(theirs):
    arrives()
    User.objects.update(is_active=False)
    client, answer = arrives()
    assert (answer.status_code, b"account_inactive" in answer.content) == (403, True)
    assert not is_signed_in(client)


def test_our_second_factor_is_asked_for_unless_the_provider_has_asked_for_one(theirs, configure):
    arrives()
    secret, _ = with_second_factor(User.objects.get())
    client, answer = arrives()
    assert answer.headers["Location"] == CODE
    assert not is_signed_in(client)
    client.post(CODE, {"code": code_now(secret)})
    assert is_signed_in(client)
    for methods, trusted, is_asked in (
        (["pwd"], ("mfa",), True),
        (["pwd", "mfa"], ("mfa",), False),
        (["pwd", "mfa"], ("never",), True),
        (None, ("*",), False),
    ):
        trust(theirs, configure, oidc_second_factor=trusted)
        theirs.behave(**OPERATOR, amr=methods)
        client, answer = arrives()
        assert (answer.headers["Location"] == CODE) is is_asked, (methods, trusted)
        assert is_signed_in(client) is not is_asked


def test_a_required_second_factor_is_set_up_on_the_way_in_without_a_password(theirs, configure):
    trust(theirs, configure, second_factor="required")
    client, answer = arrives()
    assert answer.headers["Location"] == SET_UP
    assert client.post(SET_UP, {"step": "begin"}).status_code == 302
    assert not is_signed_in(client)


def test_who_has_no_password_sets_a_second_factor_up_soon_after_signing_in(theirs):
    client, _ = arrives()
    session = client.session
    session["began_at"] -= 601
    session.save()
    answer = client.post(SET_UP, {"step": "begin"})
    assert b"Sign out and in again first" in answer.content
    client, _ = arrives()
    assert client.post(SET_UP, {"step": "begin"}).status_code == 302


def test_what_the_provider_vouched_for_stands_as_long_as_it_is_trusted(theirs, configure):
    theirs.behave(**OPERATOR, amr=["mfa"])
    client, _ = arrives()
    trust(theirs, configure, second_factor="required")
    assert is_signed_in(client)
    trust(theirs, configure, second_factor="required", oidc_issuer="")
    assert not is_signed_in(client)


def test_signing_out_leads_to_the_providers_own(theirs):
    client, _ = arrives()
    page = client.post("/admin/logout/")
    assert b"/admin/login/provider/end/" in page.content
    assert not is_signed_in(client)
    assert client.get(f"{BEGIN}end/").headers["Location"].startswith(f"{theirs.issuer}/end?client_id=queueops&post_")


def test_without_a_provider_its_addresses_do_not_exist():
    for path in (BEGIN, f"{BEGIN}callback/", f"{BEGIN}end/"):
        assert Client().get(path).status_code == 404
    assert b"single sign-on" not in Client().get(LOGIN).content


@pytest.mark.django_db(transaction=True)
def test_two_first_sign_ins_at_once_make_one_account(theirs):
    claims = {"sub": "ann-at-the-provider", "groups": ["ops"], "preferred_username": "ann"}
    assert len(set(run_together(8, lambda _: provided.welcome(claims).pk))) == 1
    assert User.objects.count() == 1


def test_the_doctor_reads_the_discovery_document(theirs, configure):
    found = examine_single_sign_on()
    assert (found.verdict, found.observation) == (DoctorVerdict.WARN, "QUEUEOPS_OIDC_ROLES names no such role")
    trust(theirs, configure, oidc_roles=(("ops", "operator"),))
    assert examine_single_sign_on().verdict is DoctorVerdict.OK
    theirs.behave(fault="discovery", **OPERATOR)
    provider._client.cache_clear()
    assert examine_single_sign_on().verdict is DoctorVerdict.FAIL
    assert Client().get(BEGIN).status_code == 502
    configure(oidc_issuer="")
    assert examine_single_sign_on().verdict is DoctorVerdict.OK
