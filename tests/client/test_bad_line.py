"""The line that the proofs of this directory spoil does what it says."""

from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from aiohttp import web

from tests.support.background import in_background
from tests.support.bad_line import BadLine, bad_line
from tests.support.http_server import serving

Requests = Counter[str]


@pytest.fixture
def carried_out() -> Requests:
    return Counter()


@pytest.fixture
def line(carried_out: Requests) -> Iterator[BadLine]:
    async def answer(request: web.Request) -> web.Response:
        carried_out[request.path] += 1
        return web.Response(text="done")

    with in_background(serving(answer)) as url, bad_line(int(url.rpartition(":")[2])) as spoilt:
        yield spoilt


def test_it_passes_on_what_is_asked_and_answered(line, carried_out):
    with httpx.Client(base_url=line.url) as client:
        assert [client.get("/a").text for _ in range(3)] == ["done"] * 3
    assert (carried_out["/a"], line.carried) == (3, 1)


def test_a_cut_line_ends_what_is_open_and_lets_nothing_through_until_it_is_mended(line, carried_out):
    with httpx.Client(base_url=line.url) as client:
        client.get("/before")
        line.cut()
        for _ in range(2):
            with pytest.raises(httpx.TransportError):
                client.get("/cut")
        line.mend()
        client.get("/after")
    assert carried_out == {"/before": 1, "/after": 1}


def test_an_answer_is_lost_after_the_request_was_carried_out(line, carried_out):
    line.lose_answers(1)
    with httpx.Client(base_url=line.url) as client:
        with pytest.raises(httpx.TransportError):
            client.get("/lost")
        client.get("/kept")
    assert (carried_out["/lost"], carried_out["/kept"], line.answers_lost) == (1, 1, 1)


def test_a_slow_line_takes_its_time_both_ways(line):
    line.delay(0.2)
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=line.url, timeout=0.3) as client:
        client.get("/late")
    assert httpx.get(f"{line.url}/late", timeout=10).text == "done"
