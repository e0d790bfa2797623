"""`http.request` with a stored credential: where its secret goes, where it never goes, and that nobody is shown it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from uuid import UUID

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.db import connection

from jobs.features.refused_calls import stops
from jobs.handlers.errors import ProviderError
from jobs.handlers.http.payload import HttpRequest
from jobs.handlers.http.request import http_request
from jobs.handlers.registry import Done, RunningJob, close_handlers
from jobs.models import DeadLetter, Job, JobEvent, RefusedCalls
from jobs.services.submit.prepare import Rules, prepare_job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_batch
from jobs.testing import drain
from queueops.tenancy.credential_pools import http_use, pools
from queueops.tenancy.credential_pools.http_use import is_among, read_host
from queueops.tenancy.models import Credential, CredentialPool, CredentialPoolMember
from queueops.tenancy.secrets.credentials import CredentialNotAllowed, OpenCredential, seal
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from tests.factories import make_project
from tests.support.background import in_background
from tests.support.cases import every_case
from tests.support.http_server import serving

SECRET = "s3cret/of+the tenant"
QUOTED = "s3cret%2Fof%2Bthe%20tenant"
HERE = ("127.0.0.1",)

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def opened(secret: dict[str, Any] | None = None, **fields: Any) -> OpenCredential:
    return OpenCredential("k", "http", secret or {"api_key": SECRET}, **{"hosts": HERE, **fields})


async def attempt(credential: OpenCredential | None, **payload: Any) -> Any:
    request = HttpRequest.model_validate({"method": "GET", "credential": "k", **payload})
    job = RunningJob(
        id=UUID(int=1), payload=request, project="demo", user_id=None, effect_key="e", attempt=1,
        report=lambda percent, message: None, credential=credential,
    )  # fmt: skip
    return (await cast("Awaitable[Done]", http_request(job))).result


def carry_out(credential: OpenCredential | None, answer: Answer, *, path: str = "/", **payload: Any) -> Any:
    async def scenario() -> Any:
        async with serving(answer) as url:
            try:
                return await attempt(credential, **{"url": url + path, **payload})
            finally:
                await close_handlers()

    return asyncio.run(scenario())


class Provider:
    """Keeps what it is sent, and repeats it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.raw_path, dict(request.headers)))
        return web.json_response({"you sent": [request.raw_path, list(request.headers.values()), SECRET]})


BASIC = base64.b64encode(f"me:{SECRET}".encode()).decode()


@every_case(
    ("fields", "header", "value", "path"),
    [
        ({}, "Authorization", f"Bearer {SECRET}", "/a?b=1"),
        ({"secret": {"access_token": SECRET}}, "Authorization", f"Bearer {SECRET}", "/a?b=1"),
        (
            {"placement": "basic", "secret": {"username": "me", "password": SECRET}},
            "Authorization",
            f"Basic {BASIC}",
            "/a?b=1",
        ),
        ({"placement": "header", "placement_name": "X-Thing"}, "X-Thing", SECRET, "/a?b=1"),
        ({"placement": "query", "placement_name": "key"}, "Authorization", None, f"/a?b=1&key={QUOTED}"),
    ],
)
def test_a_secret_is_placed_as_its_credential_says_and_masked_where_the_answer_repeats_it(fields, header, value, path):
    provider = Provider()
    result = carry_out(opened(**fields), provider.answer, path="/a?b=1")
    [(asked, headers)] = provider.asked
    assert (asked, headers.get(header)) == (path, value)
    told = json.dumps(result)
    assert not [text for text in (SECRET, QUOTED, BASIC) if text in told]
    assert "[masked]" in told


def test_a_parameter_begins_the_query_where_there_is_none():
    provider = Provider()
    carry_out(opened(placement="query", placement_name="key"), provider.answer, path="/a")
    assert provider.asked[0][0] == f"/a?key={QUOTED}"


@every_case(
    ("fields", "names"),
    [
        ({}, {"Authorization"}),
        ({"placement": "header", "placement_name": "X-Thing"}, {"X-Thing"}),
        ({"placement": "query", "placement_name": "key"}, set()),
    ],
)
def test_a_redirect_keeps_the_secret_within_its_origin_and_leaves_it_behind_at_another(fields, names):
    seen: list[tuple[str, set[str]]] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append((request.raw_path, {"Authorization", "X-Thing"} & set(request.headers)))
        return web.Response(text="done")

    async def scenario() -> None:
        async with serving(elsewhere) as other:

            async def first(request: web.Request) -> web.Response:
                seen.append((request.raw_path, {"Authorization", "X-Thing"} & set(request.headers)))
                # The same machine by another name: another origin, whatever the port.
                location = "/2" if request.path == "/1" else other.replace("127.0.0.1", "localhost") + "/3"
                return web.Response(status=307, headers={"Location": location})

            async with serving(first) as url:
                await attempt(opened(**fields, hosts=(*HERE, "localhost")), url=f"{url}/1", follow_redirects=True)
        await close_handlers()

    asyncio.run(scenario())
    query = f"?key={QUOTED}" if "key" in fields.values() else ""
    assert seen == [(f"/1{query}", names), (f"/2{query}", names), ("/3", set())]


@every_case("spelled", ["{path}", "/?next={quoted}", "/?next={plus}", "/{quoted}/"])
def test_a_redirect_that_would_take_the_secret_to_another_host_is_refused(spelled):
    reached: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        reached.append(request.raw_path)
        return web.Response()

    async def scenario() -> ProviderError:
        async with serving(elsewhere) as other:

            async def first(request: web.Request) -> web.Response:
                plus = QUOTED.replace("%20", "+")
                path = spelled.format(path=request.raw_path, quoted=QUOTED.lower(), plus=plus)
                return web.Response(status=302, headers={"Location": other.replace("127.0.0.1", "localhost") + path})

            async with serving(first) as url:
                with pytest.raises(ProviderError) as failed:
                    await attempt(opened(placement="query", placement_name="key"), url=url, follow_redirects=True)
        await close_handlers()
        return failed.value

    error = asyncio.run(scenario())
    assert (error.code, error.outcome, reached) == ("target_refused", "refused", [])
    assert "another host" in error.message
    assert SECRET not in repr((error.message, error.details))


@every_case(
    ("fields", "payload", "code", "told"),
    [
        ({"hosts": ("api.example.org",)}, {}, "credential_not_allowed", "only to api.example.org"),
        ({"hosts": ()}, {}, "credential_not_allowed", "names its hosts"),
        ({}, {"headers": {"authorization": "mine"}}, "credential_not_allowed", "leave it out"),
        ({"secret": {"key": SECRET}}, {}, "credential_unusable", '"api_key"'),
        ({"placement": "basic"}, {}, "credential_unusable", '"username"'),
        ({"placement": "header"}, {}, "credential_unusable", "name of the header"),
        ({"secret": {"api_key": f"a\n{SECRET}"}}, {}, "credential_unusable", "control character"),
        ({"secret": {"private_key": SECRET, "client_email": "x"}}, {}, "credential_unusable", "googleapis.com"),
    ],
)
def test_nothing_is_sent_with_a_credential_that_does_not_fit(fields, payload, code, told):
    provider = Provider()
    with pytest.raises(ProviderError) as failed:
        carry_out(opened(**fields), provider.answer, **payload)
    error = failed.value
    assert (error.code, error.outcome, provider.asked) == (code, "refused", [])
    assert told in error.message
    assert SECRET not in error.message


def test_a_call_that_names_a_credential_never_goes_without_one():
    provider = Provider()
    with pytest.raises(ProviderError, match="missing"):
        carry_out(None, provider.answer)
    assert provider.asked == []


def test_a_google_account_gives_a_token_of_its_scopes_and_another_where_that_is_refused(monkeypatch):
    monkeypatch.setattr(http_use, "GOOGLE", HERE)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    scopes, shown = [], []

    async def google(request: web.Request) -> web.Response:
        if request.path == "/token":
            claims = str((await request.post())["assertion"]).split(".")[1]
            scopes.append(json.loads(base64.urlsafe_b64decode(claims + "=="))["scope"])
            return web.json_response({"access_token": f"token-{len(scopes)}", "expires_in": 3600})
        shown.append(request.headers["Authorization"])
        return web.json_response({"token": shown[-1]}, status=401 if len(shown) == 1 else 200)

    async def scenario() -> Any:
        async with serving(google) as url:
            account = {"client_email": "robot@acme.example", "private_key": key.decode(), "token_uri": f"{url}/token"}
            try:
                return await attempt(opened(account, oauth_scopes="drive  docs"), url=f"{url}/drive/v3/files")
            finally:
                await close_handlers()

    result = asyncio.run(scenario())
    assert (scopes, shown) == (["drive docs"] * 2, ["Bearer token-1", "Bearer token-2"])
    assert result["body"] == {"token": "Bearer [masked]"}


# Hosts


@every_case(
    ("text", "host"),
    [
        ("API.Example.org.", "api.example.org"),
        ("*.Example.org", "*.example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("2001:DB8::1", "2001:db8::1"),
    ],
)
def test_a_host_is_kept_as_it_is_compared(text, host):
    assert read_host(text) == host


@every_case(
    "text",
    ["", "*", "*.", "*.org", "a b", "https://a.example", "a.example/x", "a.example:443", "me@a.example", "a..b", "?"],
)
def test_what_is_no_host_is_refused(text):
    with pytest.raises(ValueError, match="is no host"):
        read_host(text)


def test_a_pattern_stands_for_the_names_below_it_and_no_other():
    hosts = ("*.example.org", "one.test")
    found = [host for host in ("a.example.org", "a.b.example.org", "one.test") if is_among(host, hosts)]
    assert len(found) == 3
    assert not [host for host in ("example.org", "badexample.org", "a.one.test", "x.test") if is_among(host, hosts)]


# Submission


@pytest.fixture
def stored(db: None) -> Callable[..., Credential]:
    def make(name: str = "k", *, project: str | None = "acme", **fields: Any) -> Credential:
        given = {"service": "http", "secret": seal({"api_key": SECRET}), "hosts": ["api.example.org"], **fields}
        row = Credential.objects.create(name=name, **given)
        if project:
            row.projects.add(make_project(project))
        return row

    return make


def refusal_of(**payload: Any) -> CredentialNotAllowed:
    make_project("acme")
    request = {"method": "GET", "url": "https://api.example.org/", "credential": "k", **payload}
    with pytest.raises(CredentialNotAllowed) as refused:
        prepare_job(JobSpec(kind="http.request", payload=request), rules=Rules("acme"))
    return refused.value


@every_case(
    ("fields", "payload", "told"),
    [
        ({"name": "other"}, {}, ("credential", "does not exist")),
        ({"project": "globex"}, {}, ("credential", "does not exist")),
        ({}, {"url": "https://api.example.org.evil.example/"}, ("url", "it goes only to api.example.org")),
        ({"hosts": []}, {}, ("url", "an administrator names its hosts")),
        ({}, {"url": "http://api.example.org/"}, ("url", "over https only")),
        ({}, {"headers": {"AUTHORIZATION": "x"}}, ("headers", "sets AUTHORIZATION; leave it out")),
        ({"placement": "header", "placement_name": "X-K"}, {"idempotency_header": "x-k"}, ("headers", "sets x-k")),
        (
            {"placement": "query", "placement_name": "key"},
            {"url": "https://api.example.org/?key="},
            ("url", "sets key in the query"),
        ),
    ],
    undone=True,
)
@pytest.mark.django_db
def test_a_call_that_a_credential_may_not_make_is_refused_with_its_field(stored, fields, payload, told):
    stored(**fields)
    error = refusal_of(**payload)
    assert (error.code, list(error.fields)) == ("credential_not_allowed", [f"payload.{told[0]}"])
    assert told[1] in error.fields[f"payload.{told[0]}"][0]


@pytest.mark.django_db
def test_a_credential_of_any_service_is_accepted_at_its_hosts(stored):
    stored(service="google-sheets", hosts=["*.googleapis.com"])
    payload = {"method": "GET", "url": "https://WWW.googleapis.com/drive/v3/files", "credential": "k"}
    prepared = prepare_job(JobSpec(kind="http.request", payload=payload), rules=Rules("acme"))
    assert (prepared.details.credential, prepared.service) == ("k", "http:www.googleapis.com")


# From submission to the end


@contextmanager
def provider_at(answer: Answer) -> Iterator[str]:
    Limit.objects.all().delete()
    catalogue.forget()
    stops.forget()
    with in_background(serving(answer)) as url:
        yield url


def submit(url: str, count: int = 1, **payload: Any) -> None:
    lines = [{"kind": "http.request", "payload": {"method": "GET", "url": url, "credential": "k", **payload}}] * count
    batch = submit_batch(lines, project_id="acme", actor="key:test")
    assert batch.error_count == 0, batch.errors


def everything_stored() -> str:
    with connection.cursor() as cursor:
        told = ""
        for table in (Job, JobEvent, DeadLetter, RefusedCalls):
            cursor.execute(f"SELECT row_to_json(own)::text FROM {table._meta.db_table} AS own")  # noqa: S608 - our own names
            told += "".join(text for (text,) in cursor.fetchall())
    return told


@every_case("status", [200, 401, 500], undone=True)
@pytest.mark.django_db
def test_no_row_of_a_job_holds_the_secret_whatever_the_provider_answers(stored, caplog, status):
    stored(hosts=list(HERE), placement="query", placement_name="key")
    location = f"https://elsewhere.example/?key={QUOTED}"

    async def answer(request: web.Request) -> web.Response:
        assert QUOTED in request.raw_path
        said = f"you sent {request.raw_path} with {SECRET}"
        return web.Response(status=status, text=said, headers={"Location": location})

    with provider_at(answer) as url:
        submit(url)
        drain()
    stored_text = everything_stored()
    assert "[masked]" in stored_text
    assert "s3cret" not in stored_text
    logged = [record.getMessage() for record in caplog.records if record.name != "aiohttp.access"]  # the provider's own
    assert "s3cret" not in "".join(logged)


@pytest.mark.django_db
def test_twenty_refusals_in_a_row_hold_the_jobs_of_that_credential_at_that_host(stored):
    stored(hosts=list(HERE))

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=401)

    with provider_at(refuse) as url:
        submit(url, stops.STOPS_AFTER + 10)
        drain(seconds=5.0)
    assert DeadLetter.objects.filter(error_code="http_401").count() == stops.STOPS_AFTER
    assert Job.objects.filter(held=True).count() == 10
    assert RefusedCalls.objects.get().credential == "k"


@pytest.mark.django_db
def test_a_pools_calls_show_the_keys_of_its_members_and_a_refused_one_leaves_them_the_others(stored):
    pool = CredentialPool.objects.create(name="k", service="http", hosts=list(HERE))
    pool.projects.add(make_project("acme"))
    for name in ("one", "two"):
        member = stored(name, project=None, hosts=list(HERE), quota_project=name, secret=seal({"api_key": name}))
        CredentialPoolMember.objects.create(pool=pool, credential=member)
    pools.forget()
    shown: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        shown.append(request.headers["Authorization"])
        return web.Response(status=401 if shown[-1] == "Bearer one" else 200)

    with ExitStack() as stack:
        url = stack.enter_context(provider_at(answer))
        submit(url, 6)
        drain()
    assert Job.objects.filter(status="completed").count() == 6
    assert set(shown) == {"Bearer one", "Bearer two"}
    assert not DeadLetter.objects.exists()
    error = refusal_of(url="https://api.example.org/")
    assert "never sent to api.example.org; it goes only to 127.0.0.1" in error.fields["payload.url"][0]
