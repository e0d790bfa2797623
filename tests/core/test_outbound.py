import asyncio
import gzip
import socket
import tracemalloc
import zlib
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from queueops.core.outbound.client import MAX_REDIRECTS, MAX_REFUSAL_BYTES, OutboundClient, OutboundFailed
from queueops.core.outbound.connector import Passage, _open_checked_socket, current_passage
from queueops.core.outbound.policy import OutboundPolicy, OutboundRefused
from tests.support.all_faults import all_faults
from tests.support.http_server import canary, raw_server, serving
from tests.support.played import played

pytestmark = pytest.mark.proves("S6")

STRICT = OutboundPolicy()
LOOPBACK = OutboundPolicy.of(allow_loopback=True)

# Every spelling of a forbidden target that we know; {port} is where the canary listens.
HOSTS = """
127.0.0.1 127.0.0.1. 127.1 127.0.1 127.255.255.254 0x7f000001 0x7f.0.0.1 0X7F.0x1 2130706433 017700000001
0177.0.0.1 127.0.0.0x1 0 0.0.0.0 localhost LOCALHOST. [::1] [0:0:0:0:0:0:0:1] [::] [::ffff:127.0.0.1]
[::ffff:7f00:1] [::127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b:1::7f00:1] [2002:7f00:1::] [2001:0:7f00:1::]
[fe80::1%25lo] [fec0::1] [fd00::1] [ff02::1] 100.64.0.1 10.0.0.1 172.16.0.1 192.168.0.1 224.0.0.1
255.255.255.255 user@127.0.0.1 name.example@127.0.0.1 127.0.0.1%2f@name.example rebound.example both.example
mapped.example word.example
"""
VECTORS = [
    *(f"http://{host}:{{port}}/" for host in HOSTS.split()),
    "http://169.254.169.254:{port}/latest/meta-data/",
    "http://\u2460\u2461\u2466.0.0.1:{port}/",
    "http://127\u30020\u30020\u30021:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "http://name.example#@127.0.0.1:{port}/",
    "http://name.example\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@name.example/",
    "https://127.0.0.1:{port}/",
    "ws://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/",
    "file:///etc/passwd",
]


class NamesOf(AbstractResolver):
    """Answers from a table; any other name is refused with an error."""

    def __init__(self, **names: list[str]) -> None:
        self.names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        label = host.partition(".")[0].lower()
        if label not in self.names:
            raise OSError(f"{host} is unknown")
        return [self.answer(host, port, address) for address in self.names[label]]

    def answer(self, host: str, port: int, address: str) -> ResolveResult:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return ResolveResult(
            hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST
        )

    async def close(self) -> None: ...


class TwoFaced(dict[str, Any]):
    """A resolver's answer that shows a public address when it is checked and another afterwards."""

    reads = 0

    def __getitem__(self, key: str) -> Any:
        if key != "host":
            return super().__getitem__(key)
        self.reads += 1
        return "93.184.216.34" if self.reads == 1 else "127.0.0.1"


class Rebinding(NamesOf):
    def answer(self, host: str, port: int, address: str) -> ResolveResult:
        return TwoFaced(super().answer(host, port, address))  # type: ignore[return-value]


@asynccontextmanager
async def client_of(resolver=None):
    client = OutboundClient(resolver=resolver)
    try:
        yield client
    finally:
        await client.close()


async def get(client, url, *, policy=LOOPBACK, method="GET", **options):
    options = {"timeout_seconds": 10, "max_response_bytes": 1_000, **options}
    return await client.send(method, url, policy=policy, **options)


async def failure_of(client, url, **options):
    """Why a call failed, and whether it was sent."""
    with pytest.raises(OutboundFailed) as failed:
        await get(client, url, **options)
    return failed.value.details["reason"], failed.value.details["outcome"]


@played
async def test_no_spelling_of_a_forbidden_target_makes_a_connection():
    names = NamesOf(
        rebound=["127.0.0.1"],
        both=["93.184.216.34", "127.0.0.1"],
        mapped=["::ffff:127.0.0.1"],
        word=["localhost"],
        localhost=["127.0.0.1"],
    )

    with all_faults() as of:
        async with canary() as bird:
            for url in VECTORS:
                async with client_of(names) as client:
                    with of(ascii(url)):
                        with pytest.raises((OutboundRefused, OutboundFailed)) as stopped:
                            await get(client, url.format(port=bird.port), policy=STRICT)
                        # name.example is unknown to the resolver: that URL's host is the public-looking name.
                        assert isinstance(stopped.value, OutboundRefused) or "#@" in url
                with of(f"connections after {url!a}"):
                    reached, bird.connections = bird.connections, 0
                    assert reached == 0


@played
async def test_the_canary_sings_when_loopback_is_allowed():
    async with canary() as bird, client_of() as client:
        response = await get(client, f"http://127.0.0.1:{bird.port}/")
        assert (bird.connections, response.body) == (1, b"secret")


@played
async def test_an_address_that_changes_between_check_and_connection_is_refused():
    async with canary() as bird, client_of(Rebinding(name=["93.184.216.34"])) as client:
        with pytest.raises(OutboundRefused):
            await get(client, f"http://name.example:{bird.port}/", policy=STRICT)
        assert bird.connections == 0


@played
async def test_the_socket_check_holds_by_itself():
    async with canary() as bird:
        connector = aiohttp.TCPConnector(socket_factory=_open_checked_socket)
        current_passage.set(Passage(host="127.0.0.1", policy=STRICT))
        async with aiohttp.ClientSession(connector=connector) as session:
            with pytest.raises(OutboundRefused):
                await session.get(f"http://127.0.0.1:{bird.port}/")
        assert bird.connections == 0


@played
async def test_a_kept_connection_is_not_lent_to_a_call_that_is_allowed_less():
    requests = []

    async def answer(request):
        requests.append(request.path)
        return web.Response(text="ok")

    async with serving(answer) as url, client_of(NamesOf(name=["127.0.0.1"])) as client:
        named = url.replace("127.0.0.1", "name.example")
        await get(client, named + "/allowed")
        with pytest.raises(OutboundRefused):
            await get(client, named + "/not-allowed", policy=STRICT)
    assert requests == ["/allowed"]


@played
async def test_a_call_is_not_refused_because_another_call_for_the_same_name_was():
    released = asyncio.Event()

    class Slow(NamesOf):
        async def resolve(self, host, port=0, family=socket.AF_UNSPEC):
            await released.wait()
            return await super().resolve(host, port, family)

    async with serving(_ok) as url, client_of(Slow(name=["127.0.0.1"])) as client:
        named = url.replace("127.0.0.1", "name.example")
        calls = [asyncio.create_task(get(client, named, policy=policy)) for policy in (STRICT, LOOPBACK)]
        await asyncio.sleep(0)  # both now wait for the look-up
        released.set()
        with pytest.raises(OutboundRefused):
            await calls[0]
        assert (await calls[1]).body == b"ok"


def test_a_redirect_to_a_forbidden_target_is_refused():
    async def answer(request):
        return web.Response(status=302, headers={"Location": location})

    async def scenario():
        async with serving(answer) as url, client_of(NamesOf(private=["10.0.0.1"])) as client:
            with pytest.raises(OutboundRefused):
                await get(client, url, follow_redirects=True)
            return (await get(client, url)).status

    with all_faults() as of:
        for location in (
            "http://10.0.0.1/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[::ffff:127.0.0.1]/",
            "//127.1/",
            "http://private.example/",
            "http://user:secret@name.example/",
            "file:///etc/passwd",
            "gopher://name.example/",
            "http://[broken",
        ):
            with of(location):
                assert asyncio.run(scenario()) == 302


@played
async def test_redirects_end_after_a_few():
    count = 0

    async def answer(request):
        nonlocal count
        count += 1
        return web.Response(status=307, headers={"Location": "/again"})

    async with serving(answer) as url, client_of() as client:
        with pytest.raises(OutboundRefused, match="redirects"):
            await get(client, url, follow_redirects=True)
    assert count == MAX_REDIRECTS + 1


@pytest.mark.parametrize("origin", ["same", "other"])
@played
async def test_credentials_stay_behind_when_a_redirect_changes_the_origin(origin):
    seen: dict[str, str] = {}

    async def final(request):
        seen.update(request.headers)
        return web.Response(text="done")

    async with serving(final) as other:

        async def first(request):
            if request.path == "/final":
                return await final(request)
            location = "/final" if origin == "same" else other + "/final"
            return web.Response(status=302, headers={"Location": location})

        async with serving(first) as url, client_of() as client:
            headers = {"Authorization": "Bearer s", "Cookie": "c=s", "X-Api-Key": "s", "X-Trace": "t"}
            await get(client, url, headers=headers, follow_redirects=True)
    kept = {"Authorization", "Cookie", "X-Api-Key"} & set(seen)
    assert len(kept) == (3 if origin == "same" else 0)
    assert seen["X-Trace"] == "t"


@played
async def test_a_post_is_repeated_at_the_new_place_only_where_nothing_was_done_at_the_old_one():
    async def answer(request):
        if request.path == "/final":
            return web.Response(text=f"{request.method} {await request.text()}")
        return web.Response(status=int(request.path[1:]), headers={"Location": "/final"})

    async with serving(answer) as url, client_of() as client:
        responses = [
            await get(client, f"{url}/{status}", method="POST", body=b"x", follow_redirects=True)
            for status in (301, 302, 303, 307, 308)
        ]
    assert [response.status for response in responses] == [301, 302, 303, 200, 200]
    assert responses[3].body == responses[4].body == b"POST x"


@played
async def test_a_gzip_bomb_is_cut_at_the_cap():
    bomb = gzip.compress(bytes(100_000_000))

    async def answer(request):
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    try:
        async with serving(answer) as url, client_of() as client:
            tracemalloc.start()
            response = await get(client, url, max_response_bytes=50_000)
            peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert response.is_truncated
    assert len(response.body) == 50_000
    assert peak < 10_000_000


AS_WRITTEN = [
    "/r/https%3A%2F%2Fcdn.example.org%2Fa.jpg",
    "/?sig=a%2Fb%3D&se=2026-01-01T00%3A00%3A00Z",
    "/path%28test%29?x=%7e",
    "/a//b/../c",
    "/k%2fv?sig=ab%2bcd%3d%3d",
    "/?a[]=1;b='2'&c=d+e%20f",
]


@played
async def test_a_url_goes_as_it_was_written_and_so_does_that_of_a_redirect():
    seen = []

    async def answer(request):
        seen.append(request.raw_path)
        if request.raw_path.startswith("/redirect/"):
            return web.Response(status=302, headers={"Location": AS_WRITTEN[int(request.raw_path[10:])]})
        return web.Response(text="done")

    async with serving(answer) as url, client_of() as client:
        for number, path in enumerate(AS_WRITTEN):
            await get(client, url + path)
            await get(client, f"{url}/redirect/{number}", follow_redirects=True)
        await get(client, f"{url}?q=1#part")
        await get(client, f"{url}/\u00e4?x=%e4<\u00f6>")
    assert seen[:-2] == [one for number, path in enumerate(AS_WRITTEN) for one in (path, f"/redirect/{number}", path)]
    assert seen[-2:] == ["/?q=1", "/%C3%A4?x=%e4%3C%C3%B6%3E"]


PACKED = {
    "gzip": gzip.compress(b"whole"),
    "GZIP": gzip.compress(b"wh") + gzip.compress(b"ole"),
    "x-gzip": gzip.compress(b"whole") + bytes(8),
    "deflate": zlib.compress(b"whole"),
    "Deflate": zlib.compress(b"whole", wbits=-15),
    "identity": b"whole",
    "UTF-8": b"whole",
    "none": b"whole",
    "aws-chunked": b"whole",
    "gzip, aws-chunked": gzip.compress(b"whole"),
    "": b"whole",
}


def packed(status, encoding, body):
    head = f"HTTP/1.1 {status} Told\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@played
async def test_a_body_is_read_whichever_way_it_was_packed():
    read = {}
    for encoding, body in PACKED.items():
        async with raw_server(packed(200, encoding, body)) as (url, _), client_of() as client:
            read[encoding] = (await get(client, url)).body
    assert read == dict.fromkeys(PACKED, b"whole")


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip", "gzip, br"])
@played
async def test_an_answer_that_cannot_be_read_was_given_all_the_same(encoding):
    async with raw_server(packed(200, encoding, b"\x1b\x03\x00")) as (url, _), client_of() as client:
        assert await failure_of(client, url) == ("unreadable_encoding", "answered")
    async with raw_server(packed(429, encoding, b"\x1b\x03\x00")) as (url, _), client_of() as client:
        response = await get(client, url)
    assert (response.status, response.body, response.is_truncated) == (429, b"", True)


@played
async def test_a_header_of_many_kilobytes_breaks_nothing():
    policy = " ".join(f"https://cdn{number}.example.org" for number in range(1_000))
    answer = f"HTTP/1.1 200 OK\r\nContent-Security-Policy: {policy}\r\nContent-Length: 2\r\n\r\nok".encode()
    async with raw_server(answer) as (url, _), client_of() as client:
        response = await get(client, url)
    assert (response.body, response.headers["Content-Security-Policy"]) == (b"ok", policy)


@played
async def test_what_is_complete_and_stays_open_is_closed(monkeypatch):
    monkeypatch.setattr("queueops.core.outbound.client.OPEN_END_SECONDS", 0.01)
    seen = bytearray()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe end"
    async with raw_server(answer, stay_open=True) as (url, _), client_of() as client:
        response = await get(
            client, url, timeout_seconds=600, on_piece=seen.extend, is_complete=lambda: seen.endswith(b"end")
        )
    assert (response.status, response.body, response.is_truncated) == (200, b"the end", False)


@played
async def test_a_body_of_exactly_the_cap_is_whole():
    async def answer(request):
        return web.Response(body=b"x" * 1_000)

    async with serving(answer) as url, client_of() as client:
        response = await get(client, url, max_response_bytes=1_000)
    assert (len(response.body), response.is_truncated) == (1_000, False)


def test_a_header_that_could_smuggle_another_is_refused_before_anything_is_sent():
    async def scenario():
        async with canary() as bird, client_of() as client:
            with pytest.raises(OutboundRefused):
                await get(client, f"http://127.0.0.1:{bird.port}/", headers=headers)
            return bird.connections

    with all_faults() as of:
        for headers in (
            {"X-A": "1\r\nX-Evil: 1"},
            {"X-A": "1\nX-Evil: 1"},
            {"X-A": "1\x00"},
            {"X-A": "\ud800"},
            {"X-A\r\nX-Evil": "1"},
            {"X A": "1"},
            {"X-A:": "1"},
            {"": "1"},
            {"X-A": "1", "x-a": "2"},
        ):
            with of(headers):
                assert asyncio.run(scenario()) == 0


@played
async def test_a_refused_connection_was_not_sent():
    async with serving(_ok) as url:
        pass
    async with client_of() as client:
        assert await failure_of(client, url) == ("connect_failed", "not_sent")


@played
async def test_an_unknown_name_was_not_sent():
    async with client_of(NamesOf()) as client:
        assert await failure_of(client, "http://nobody.example/") == ("dns_failed", "not_sent")


def test_a_broken_answer_leaves_the_outcome_unknown_and_is_not_sent_again():
    async def scenario():
        async with raw_server(answer) as (url, heads), client_of() as client:
            return *await failure_of(client, url, method=method, body=b"x"), len(heads)

    broken = [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", b"nonsense\r\n\r\n"]
    with all_faults() as of:
        for method, answer in product(("PUT", "POST"), broken):
            with of((method, answer)):
                assert asyncio.run(scenario()) == ("connection_broken", "unknown", 1)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"])
@played
async def test_an_answer_that_does_not_come_in_time_leaves_the_outcome_unknown(answer):
    async with raw_server(answer, stay_open=True) as (url, _), client_of() as client:
        assert await failure_of(client, url, timeout_seconds=0.2) == ("timeout", "unknown")


@pytest.mark.parametrize("stay_open", [False, True])
@played
async def test_a_429_with_a_broken_body_is_still_a_429(stay_open):
    answer = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 99\r\n\r\nslow down"

    async with raw_server(answer, stay_open=stay_open) as (url, _), client_of() as client:
        response = await get(client, url, timeout_seconds=0.2)
    assert (response.status, response.headers["Retry-After"]) == (429, "7")
    assert (response.body, response.is_truncated) == (b"slow down", True)


@played
async def test_connections_are_kept_only_for_calls_that_may_be_repeated():
    peers = []

    async def answer(request):
        peers.append(request.transport.get_extra_info("peername"))
        return web.Response(text="ok")

    async with serving(answer) as url, client_of() as client:
        for reuse in (True, True, False, False):
            await get(client, url, reuse_connection=reuse)
    assert peers[0] == peers[1]
    assert len(set(peers)) == 3


@played
async def test_cookies_are_not_carried_from_one_call_to_the_next():
    cookies = []

    async def answer(request):
        cookies.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "session=other-tenant"})

    async with serving(answer) as url, client_of(NamesOf(name=["127.0.0.1"])) as client:
        named = url.replace("127.0.0.1", "name.example")
        await get(client, named)
        await get(client, named)
    assert cookies == [None, None]


@played
async def test_a_proxy_of_the_environment_is_not_used(monkeypatch):
    async with canary() as bird, serving(_ok) as url, client_of() as client:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{bird.port}")
        assert ((await get(client, url)).body, bird.connections) == (b"ok", 0)


async def _ok(request):
    return web.Response(text="ok")


@played
async def test_no_more_of_a_refusal_is_kept_where_a_success_may_be_of_any_length():
    async def refuse(request):
        return web.Response(status=500, body=b"x" * 5_000_000)

    pieces: list[bytes] = []
    async with serving(refuse) as url, client_of() as client:
        answer = await get(client, url, on_piece=pieces.append, keeps_body=False, max_response_bytes=10**10)
    assert (answer.status, len(answer.body), answer.is_truncated) == (500, MAX_REFUSAL_BYTES, True)
    assert pieces == []


@played
async def test_a_success_is_handed_over_piece_by_piece_and_a_refusal_is_not():
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(request):
        response = web.StreamResponse(status=int(request.path[1:]))
        await response.prepare(request)
        for piece in (b"one", b"two"):
            await response.write(piece)
            if request.path == "/200":  # the second is not sent before the first has been handed over
                assert await arrived.get() == piece
        return response

    async with serving(answer) as url, client_of() as client:
        answers = [await get(client, f"{url}/{status}", on_piece=arrived.put_nowait) for status in (200, 400)]
        assert [answer.body for answer in answers] == [b"onetwo", b"onetwo"]
    assert arrived.empty()
