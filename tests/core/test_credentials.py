"""Secrets of providers: what is stored, who may use it, what an operator sees and what happens when keys change."""

from __future__ import annotations

import json
import logging
from base64 import urlsafe_b64encode
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.urls import reverse

from queueops.audit.models import AuditEntry
from queueops.core.env.reading import BadConfiguration, read
from queueops.core.secret_key import development_credential_key
from queueops.site.diagnosis.access import examine_credentials
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.tenancy.models import Credential, CredentialPool
from queueops.tenancy.secrets import credentials
from queueops.tenancy.secrets.credentials import (
    BadSecret,
    CredentialKeysMissing,
    CredentialUnreadable,
    UnknownCredential,
    find_principals,
    open_credential,
    open_for,
    open_named,
    parse_secret,
    rotate,
    seal,
)
from ratelimits.models import Limit
from tests.factories import make_project
from tests.support.all_faults import all_faults
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

OLD, NEW, FOREIGN = (urlsafe_b64encode(bytes([number]) * 32).decode() for number in range(3))
SECRET = {"api_key": "hunter2-hunter2", "nested": {"scope": "ß"}}


@pytest.fixture
def keys(settings):
    """Set the keys of this process; without arguments there are none, as in production."""

    def use(*words: str, debug: bool = False) -> None:
        settings.QUEUEOPS = replace(settings.QUEUEOPS, credential_keys=words, debug=debug)

    use(OLD)
    return use


def make_credential(name: str = "sheets", *, projects: tuple[str, ...] = (), **fields: Any) -> Credential:
    row = Credential.objects.create(
        name=name, **{"service": "google-sheets", "secret": seal({**SECRET, "of": name}), **fields}
    )
    row.projects.set([make_project(project) for project in projects])
    return row


def token_of(name: str) -> bytes:
    return bytes(Credential.objects.get(name=name).secret)


# Storing and opening


def test_a_secret_comes_back_as_it_was_and_is_not_in_what_is_stored(keys):
    token = seal(SECRET)
    assert b"hunter2" not in token
    row = Credential(name="a", service="s", secret=memoryview(token), base_url="https://x.test", quota_user="robot")
    opened = open_credential(row)
    assert opened.secret == SECRET
    assert (opened.name, opened.service, opened.base_url, opened.quota_project) == ("a", "s", "https://x.test", "")
    assert opened.quota_user == "robot"


def test_two_rows_with_one_secret_are_stored_differently(keys):
    assert seal(SECRET) != seal(SECRET)


def test_an_open_credential_does_not_show_its_secret_when_it_is_printed(keys):
    opened = open_credential(Credential(name="a", service="s", secret=seal(SECRET)))
    assert "hunter2" not in f"{opened} {opened!r}"


def test_a_wrong_key_is_an_error_that_names_the_credential_and_nothing_of_the_secret(keys):
    row = Credential(name="sheets", service="s", secret=seal(SECRET))
    keys(FOREIGN)
    with pytest.raises(CredentialUnreadable) as caught:
        open_credential(row)
    assert caught.value.details == {"credential": "sheets"}
    told = json.dumps(caught.value.as_dict())
    assert "'sheets'" in told
    assert not [word for word in ("hunter2", OLD, FOREIGN, bytes(row.secret).decode()) if word in told]


def test_a_damaged_token_is_that_error_too(keys):
    for damage in (b"", b"\x80 no token", b"gAAAAA"):
        with pytest.raises(CredentialUnreadable):
            open_credential(Credential(name="sheets", service="s", secret=damage))


def test_an_older_key_still_opens_what_it_encrypted(keys):
    row = Credential(name="a", service="s", secret=seal(SECRET))
    keys(NEW, OLD)
    assert open_credential(row).secret == SECRET


def test_without_keys_production_refuses_and_names_the_setting(keys):
    row = Credential(name="a", service="s", secret=seal(SECRET))
    keys()
    for refused in (lambda: seal(SECRET), lambda: open_credential(row)):
        with pytest.raises(CredentialKeysMissing, match="QUEUEOPS_CREDENTIAL_KEYS"):
            refused()


def test_development_makes_a_key_once_that_others_cannot_read(keys, tmp_path):
    key = development_credential_key(tmp_path / "data")
    assert development_credential_key(tmp_path / "data") == key
    assert (tmp_path / "data" / "credential_key").stat().st_mode & 0o077 == 0
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["credential_key"]
    keys(debug=True)
    kept = development_credential_key(settings.QUEUEOPS.data_dir)
    assert json.loads(Fernet(kept).decrypt(seal(SECRET))) == SECRET


def test_a_bad_key_stops_the_start_without_being_shown(tmp_path):
    for bad in ("short", "!" * 44, f"{OLD},nonsense", OLD[:-4]):
        with pytest.raises(BadConfiguration) as caught:
            read({"QUEUEOPS_CREDENTIAL_KEYS": bad}, default_data_dir=tmp_path)
        (problem,) = caught.value.problems
        assert problem.startswith("QUEUEOPS_CREDENTIAL_KEYS must be Fernet keys")
        assert problem.endswith("(not shown)")


def test_keys_are_read_newest_first(tmp_path):
    found = read({"QUEUEOPS_CREDENTIAL_KEYS": f"{NEW}, {OLD}"}, default_data_dir=tmp_path)
    assert found.credential_keys == (NEW, OLD)


def test_a_secret_that_is_no_json_object_is_refused_and_not_quoted():
    unclosed = ["[" * 50_000, "{" * 200_000]
    with all_faults() as of:
        for text in ["", "hunter2", '"hunter2"', "[1]", "{}", "null", '{"a": "hunter2",}', '{"a": NaN}', *unclosed]:
            with of(text[:20]):
                with pytest.raises(BadSecret) as caught:
                    parse_secret(text)
                assert "hunter2" not in caught.value.message
                assert caught.value.__context__ is None
                assert len(caught.value.message) < 200


def test_the_place_of_the_mistake_is_told():
    with pytest.raises(BadSecret, match="Line 2, column 1"):
        parse_secret('{"api_key": "x"\n"b": 1}')


# Opening them


def test_several_are_opened_at_once_and_one_that_cannot_be_stops_no_other(keys, caplog):
    make_credential("one")
    make_credential("two", secret=Fernet(FOREIGN).encrypt(b'{"api_key": "hunter2"}'))
    with caplog.at_level(logging.ERROR):
        assert set(open_for(["one", "one", "two", "three"])) == {"one"}
    assert "two" in caplog.text
    assert "hunter2" not in caplog.text
    assert open_named("one").secret["of"] == "one"
    with pytest.raises(CredentialUnreadable):
        open_named("two")
    with pytest.raises(UnknownCredential):
        open_named("three")


def test_principals_are_found_without_a_key(keys):
    make_credential("one", quota_project="cloud-1", quota_user="robot")
    make_credential("two")
    keys()
    assert find_principals(["one", "two", "three"]) == {"one": ("cloud-1", "robot"), "two": ("", "")}


def test_the_look_ups_of_no_names_ask_nothing(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert (open_for([]), find_principals([])) == ({}, {})


# Rotation


def test_rotating_encrypts_everything_with_the_newest_key_and_repeating_it_changes_nothing(keys):
    for name in ("one", "two", "three"):
        make_credential(name)
    keys(NEW, OLD)
    make_credential("newer")
    assert rotate() == credentials.Rotation(rotated=3, current=1, unreadable=())
    keys(NEW)
    assert {name: found.secret["of"] for name, found in open_for(["one", "two", "three", "newer"]).items()} == {
        name: name for name in ("one", "two", "three", "newer")
    }
    before = {name: token_of(name) for name in ("one", "two", "three", "newer")}
    assert rotate() == credentials.Rotation(rotated=0, current=4, unreadable=())
    assert before == {name: token_of(name) for name in before}
    assert Credential.objects.filter(rotated_at=None).values_list("name", flat=True).get() == "newer"


def test_rows_that_no_key_opens_are_named_left_alone_and_stop_no_other(keys):
    make_credential("lost", secret=Fernet(FOREIGN).encrypt(b"{}"))
    lost = token_of("lost")
    make_credential("fine")
    keys(NEW, OLD)
    out = StringIO()
    with pytest.raises(CommandError, match="1 cannot be opened by any key and stay as they are: lost"):
        call_command("rotate_credentials", stdout=out)
    assert token_of("lost") == lost
    keys(NEW)
    assert open_named("fine").secret["of"] == "fine"


def test_the_command_counts_what_it_did(keys, capsys):
    make_credential("one")
    make_credential("two")
    keys(NEW, OLD)
    call_command("rotate_credentials")
    call_command("rotate_credentials")
    assert capsys.readouterr().out.splitlines() == [
        "2 re-encrypted with the newest key, 0 had it already.",
        "0 re-encrypted with the newest key, 2 had it already.",
    ]


def test_the_command_says_that_there_is_no_key(keys):
    keys()
    with pytest.raises(CommandError, match="QUEUEOPS_CREDENTIAL_KEYS"):
        call_command("rotate_credentials")


@pytest.mark.django_db(transaction=True)
def test_an_interrupted_rotation_keeps_what_it_did_and_the_next_one_finishes(keys):
    for name in ("one", "two", "three"):
        make_credential(name)
    keys(NEW, OLD)
    seen: list[str] = []

    def pull_the_plug(execute, sql, *rest):
        if sql.startswith("UPDATE"):
            seen.append(sql)
            if len(seen) == 2:
                raise KeyboardInterrupt
        return execute(sql, *rest)

    with connection.execute_wrapper(pull_the_plug), pytest.raises(KeyboardInterrupt):
        rotate()
    connections.close_all()
    newest = Fernet(NEW)
    assert [credentials._opens(newest, token_of(name)) for name in ("one", "two", "three")] == [True, False, False]
    assert rotate() == credentials.Rotation(rotated=2, current=1, unreadable=())


def test_a_secret_that_is_replaced_while_it_is_rotated_does_not_come_back(keys):
    make_credential("one")
    keys(NEW, OLD)
    replaced = Fernet(OLD).encrypt(b'{"api_key": "the new one"}')
    raced: list[str] = []

    def replace_first(execute, sql, *rest):
        if sql.startswith("UPDATE") and not raced:
            raced.append(sql)
            Credential.objects.filter(name="one").update(secret=replaced)
        return execute(sql, *rest)

    with connection.execute_wrapper(replace_first):
        assert rotate().rotated == 1
    keys(NEW)
    assert open_named("one").secret == {"api_key": "the new one"}


# The doctor


def test_the_doctor_wants_keys_only_once_there_is_a_credential(keys):
    keys()
    assert examine_credentials().verdict is DoctorVerdict.OK
    keys(OLD)
    make_credential("one")
    assert examine_credentials().verdict is DoctorVerdict.OK
    keys()
    assert examine_credentials().verdict is DoctorVerdict.FAIL
    keys(FOREIGN)
    found = examine_credentials()
    assert (found.verdict, found.observation) == (DoctorVerdict.FAIL, "no key opens one")


# The admin

ADD = "admin:tenancy_credential_add"
GIVEN = {"name": "sheets", "service": "google-sheets", "quota_project": "cloud-1", "quota_user": "", "base_url": ""}


AT_NO_HOST = {"hosts": "", "placement": "bearer", "placement_name": "", "oauth_scopes": ""}
NO_SETTINGS = {"settings-TOTAL_FORMS": 0, "settings-INITIAL_FORMS": 0}


def post(client, address: str, **changes: Any):
    form = {**GIVEN, **AT_NO_HOST, **NO_SETTINGS, "projects": ["acme"], "new_secret": json.dumps(SECRET)}
    return client.post(address, {**form, **changes})


def page_of(row: Credential) -> str:
    return reverse("admin:tenancy_credential_change", args=[row.pk])


def only_entry() -> Any:
    return AuditEntry.objects.get()


def everything_written() -> str:
    with transaction.atomic():
        entries = [*AuditEntry.objects.values(), *LogEntry.objects.values()]
    return repr(entries)


def test_a_credential_is_added_with_an_audit_entry_that_holds_no_secret(keys):
    make_project("acme")
    client = signed_in("administrator")
    assert post(client, reverse(ADD)).status_code == 302
    row = Credential.objects.get()
    assert open_credential(row).secret == SECRET
    assert [project.pk for project in row.projects.all()] == ["acme"]
    entry = only_entry()
    assert (entry.action, entry.target, entry.before) == ("add_credential", "credential sheets", None)
    assert entry.after == {
        "name": "sheets",
        "service": "google-sheets",
        "quota_project": "cloud-1",
        "quota_user": "",
        "base_url": "",
        "hosts": [],
        "placement": "bearer",
        "placement_name": "",
        "oauth_scopes": "",
        "projects": ["acme"],
        "secret_replaced": True,
    }
    assert "hunter2" not in everything_written()


@pytest.mark.parametrize(("quota_user", "warned"), [("", True), ("robot@example.org", False)])
def test_the_form_warns_of_users_that_limits_count_apart_and_the_provider_as_one(keys, quota_user, warned):
    Limit.objects.all().delete()
    make_project("acme")
    client = signed_in("administrator")
    Limit.objects.create(name="users", service="google-sheets", scope="project_user", capacity=60)
    assert post(client, reverse(ADD), quota_user=quota_user).status_code == 302
    page = client.get(reverse("admin:tenancy_credential_changelist"))
    assert ("sheets has no quota user" in page.content.decode()) is warned


def test_no_page_shows_a_stored_secret_nor_its_token(keys):
    row = make_credential()
    client = signed_in("superuser")
    for address in (
        page_of(row),
        reverse("admin:tenancy_credential_changelist"),
        reverse("admin:tenancy_credential_delete", args=[row.pk]),
        reverse("admin:tenancy_credential_history", args=[row.pk]),
    ):
        page = client.get(address, follow=True)
        assert page.status_code == 200
        assert "hunter2" not in page.content.decode()
        assert bytes(row.secret).decode() not in page.content.decode()


def test_an_empty_field_keeps_the_secret_and_the_change_of_projects_is_audited(keys):
    row = make_credential(projects=("acme",))
    make_project("globex")
    client = signed_in("administrator")
    stored = bytes(row.secret)
    answer = post(client, page_of(row), new_secret="", projects=["globex"], service="sheets-v4")
    assert answer.status_code == 302
    assert token_of("sheets") == stored
    entry = only_entry()
    assert (entry.before["projects"], entry.after["projects"]) == (["acme"], ["globex"])
    assert (entry.before["service"], entry.after["service"]) == ("google-sheets", "sheets-v4")
    assert entry.after["secret_replaced"] is False


def test_a_new_secret_replaces_the_old_one(keys):
    row = make_credential()
    client = signed_in("administrator")
    assert post(client, page_of(row), projects=[], new_secret='{"access_token": "other-hunter2"}').status_code == 302
    assert open_named("sheets").secret == {"access_token": "other-hunter2"}
    assert Credential.objects.get().rotated_at is not None
    assert only_entry().after["secret_replaced"] is True
    assert "hunter2" not in everything_written()


def test_what_is_wrong_is_told_and_the_secret_is_not_sent_back(keys):
    make_project("acme")
    client = signed_in("administrator")
    with all_faults() as of:
        for field, value, told in (
            ("new_secret", "", "This field is required."),
            ("new_secret", '["hunter2"]', "must be a JSON object"),
            ("new_secret", '{"api_key": "hunter2"', "must be a JSON object. Line 1"),
            ("name", "two words", "valid “slug”"),
            ("base_url", "ftp://files.example.org", "begins with http:// or https://"),
            ("base_url", "https://me:hunter2@api.example.org", "no user, password, query or fragment"),
        ):
            with of(f"{field} {value}"):
                answer = post(client, reverse(ADD), **{field: value})
                page = answer.content.decode()
                assert answer.status_code == 200
                assert told in page
                assert field == "base_url" or "hunter2" not in page
                assert not Credential.objects.exists()
                assert not AuditEntry.objects.exists()


def test_the_form_keeps_the_hosts_and_the_placement_and_both_are_audited(keys):
    make_project("acme")
    client = signed_in("administrator")
    given = {"hosts": "API.example.org., *.example.net", "placement": "header", "placement_name": " X-Key "}
    assert post(client, reverse(ADD), **given).status_code == 302
    found = open_named("sheets")
    assert (found.hosts, found.placement, found.placement_name) == (
        ("api.example.org", "*.example.net"), "header", "X-Key"
    )  # fmt: skip
    assert only_entry().after["hosts"] == ["api.example.org", "*.example.net"]
    assert post(client, page_of(Credential.objects.get()), new_secret="", hosts="one.test").status_code == 302
    assert open_named("sheets").hosts == ("one.test",), "the stored secret was held against it"


def test_what_does_not_fit_together_for_http_calls_is_told_at_its_field(keys):
    make_project("acme")
    client = signed_in("administrator")
    account = json.dumps({"client_email": "me@acme.example", "private_key": "hunter2"})
    with all_faults() as of:
        for fields, field, told in (
            ({"hosts": "https://api.example.org"}, "hosts", "is no host: write api.example.org"),
            ({"hosts": ",".join(f"h{number}.test" for number in range(51))}, "hosts", "At most 50 hosts"),
            ({"hosts": "a.test", "placement": "header"}, "placement_name", "name of the header"),
            ({"hosts": "a.test", "placement": "header", "placement_name": "Host"}, "placement_name", "set by QueueOps"),
            ({"hosts": "a.test", "placement": "query", "placement_name": "a b"}, "placement_name", "of the parameter"),
            ({"hosts": "a.test", "placement": "basic"}, "placement", "without a colon"),
            ({"hosts": "a.test", "new_secret": '{"token": "hunter2"}'}, "placement", "needs"),
            ({"hosts": "a.test", "new_secret": account}, "hosts", "below googleapis.com only"),
            ({"hosts": "*.googleapis.com", "placement": "basic", "new_secret": account}, "placement", "goes as"),
        ):
            with of(f"{fields}"):
                answer = post(client, reverse(ADD), **fields)
                assert answer.status_code == 200
                assert told in " ".join(answer.context["adminform"].form.errors[field])
                assert "hunter2" not in answer.content.decode()
                assert not Credential.objects.exists()


def test_a_host_that_a_pool_sends_it_to_is_not_taken_away(keys):
    row = make_credential(hosts=["a.test", "b.test"], quota_project="cloud-1")
    pool = CredentialPool.objects.create(name="keys", service="google-sheets", hosts=["a.test"])
    pool.members.create(credential=row)
    client = signed_in("administrator")
    answer = post(client, page_of(row), new_secret="", projects=[], hosts="b.test")
    assert "The pool keys sends it to a.test." in answer.content.decode()
    assert post(client, page_of(row), new_secret="", projects=[], hosts="a.test").status_code == 302


def test_without_a_key_the_form_says_so(keys):
    make_project("acme")
    client = signed_in("administrator")
    keys()
    page = post(client, reverse(ADD)).content.decode()
    assert "QUEUEOPS_CREDENTIAL_KEYS must be set" in page
    assert not Credential.objects.exists()


def test_deleting_is_audited(keys):
    row = make_credential(projects=("acme",))
    client = signed_in("administrator")
    address = reverse("admin:tenancy_credential_delete", args=[row.pk])
    assert client.post(address, {"post": "yes"}).status_code == 302
    assert not Credential.objects.exists()
    entry = only_entry()
    assert (entry.action, entry.target) == ("delete_credential", "credential sheets")
    assert entry.before["projects"] == ["acme"]


def test_credentials_are_for_administrators(keys):
    row = make_credential()
    for role in (None, "viewer", "operator"):
        client = signed_in(role)
        for address in (reverse(ADD), page_of(row), reverse("admin:tenancy_credential_changelist")):
            assert client.get(address).status_code == 403, role
            assert post(client, address).status_code == 403, role
    assert not AuditEntry.objects.exists()
