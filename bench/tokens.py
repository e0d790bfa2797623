"""Whether limits of input and output tokens use all that the provider allows, and notice a hidden consumer."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate
from operator import itemgetter
from random import Random
from typing import Any

from bench.harness.processes import cluster
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from jobs.models import Job
from jobs.services.submit.submit import submit_batch
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.tuning.limits import create_limit
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox, running_sandbox

MODES = ("sliding", "aligned", "anchored")
HIDDEN = "hidden"  # another consumer, unknown to QueueOps, also uses its quota
HIDDEN_SHARE = 0.3
WINDOW_SECONDS = 10  # a minute, scaled
FULL_WINDOW_SECONDS = 60
LATE_SECONDS = 0.15  # as for the lanes
WINDOWS = 3.5  # any three whole windows in this time are judged
HIDDEN_WINDOWS = 10
INPUT_TOKENS, OUTPUT_TOKENS = 60_000, 40_000  # in a window; input tokens bind
FEWEST, MOST = 200, 400  # tokens of a prompt
ANSWER_TOKENS = 64
DEPTHS = {**dict.fromkeys(MODES, 1_500), HIDDEN: 2_500}
CACHED = "cached"
FREE, COUNTED = "free", "counted"  # cached input: free as at Anthropic, or counted as at OpenAI
CACHED_SHARE = 0.9
INSTRUCTION_TOKENS = 2_700  # the same in each call; about CACHED_SHARE of all its input
CACHED_QUOTAS = {FREE: INPUT_TOKENS, COUNTED: 10 * INPUT_TOKENS}  # in a window, for some 200 calls of either
CACHED_DEPTH = 1_500
CACHED_ANSWER_TOKENS = 16  # so few that input binds even if only a tenth of it counts
EMBED = "embed"
EMBED_TOKENS, EMBED_REQUESTS = 600_000, 100  # in a window; tokens bind
ALLOW_LOOPBACK = {"QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on"}

Counts = Callable[[Mapping[str, Any]], int]  # the tokens that a provider counts for a call


def measure(session: Session) -> None:
    if EMBED in session.options:
        measure_embed(session)
    else:
        (measure_cached if CACHED in session.options else measure_modes)(session)


def measure_embed(session: Session) -> None:
    """
    Send texts for llm.embed through a quota of tokens and one of requests in a window; 10,000 texts with `--full`.
    """
    window, texts = (FULL_WINDOW_SECONDS if session.full else WINDOW_SECONDS), 10_000 if session.full else 3_000
    with ExitStack() as stack:
        provider = stack.enter_context(running_sandbox())
        url = stack.enter_context(session.databases.copy("tokens", _seed))
        quota = {"tokens_per_minute": EMBED_TOKENS, "requests_per_minute": EMBED_REQUESTS}
        provider.turn(openai={"window_mode": "sliding", "window_seconds": window, **quota})
        for unit, capacity in (("tokens", EMBED_TOKENS), ("requests", EMBED_REQUESTS)):
            _limit(EMBED, unit, capacity, window)
        sizes = _sizes(EMBED, texts)
        _submit(EMBED, provider, [_text(number, tokens) for number, tokens in enumerate(sizes)])
        stack.enter_context(cluster(url, environ=ALLOW_LOOPBACK))
        begun = time.monotonic()
        wait_for(lambda: not Job.objects.exclude(status="completed").exists(), what="every vector", seconds=1_200)
        seconds, calls = time.monotonic() - begun, provider.calls()
    taken, report = [call for call in calls if call["accepted"]], session.report
    floor = (sum(sizes) / EMBED_TOKENS - 1) * window
    refused = sum(call["cause"] == "provider_quota" for call in calls)
    report.metric("embed_refusals", refused, "calls above a quota", "target: 0; the provider's count")
    report.metric("embed_calls_a_text", len(taken) / texts, "calls a text", f"{texts:,} texts, {len(taken):,} calls")
    report.metric("embed_seconds", seconds, "s until the last vector", f"{floor:.0f} s is the least that tokens allow")


def measure_modes(session: Session) -> None:
    window = FULL_WINDOW_SECONDS if session.full else WINDOW_SECONDS
    with ExitStack() as stack:
        providers = {name: stack.enter_context(running_sandbox()) for name in DEPTHS}
        url = stack.enter_context(session.databases.copy("tokens", _seed))
        for name, provider in providers.items():
            _set_up(name, provider, window)
        stack.enter_context(cluster(url, environ=ALLOW_LOOPBACK))
        wait_for(lambda: all(one.counters()["received"] for one in providers.values()), what="every provider's calls")
        begun = time.time()
        time.sleep(WINDOWS * window)
        until = time.time()
        used = {mode: _least_use(providers[mode].calls(), window, until) for mode in MODES}
        refused = {mode: _refused(providers[mode]) for mode in MODES}
        time.sleep(max(0.0, begun + HIDDEN_WINDOWS * window - time.time()))
        hidden, calls = _refused(providers[HIDDEN]), len(providers[HIDDEN].calls())
        own = _least_use(providers[HIDDEN].calls(), window, begun + HIDDEN_WINDOWS * window)
    report = session.report
    for mode in MODES:
        report.figure(f"{mode} windows", f"{refused[mode]} refused, {used[mode]:.1%} used", "of the input tokens")
    note = f"any three consecutive windows of {window} s"
    report.metric("refusals", sum(refused.values()), "calls above a quota", "target: 0; the provider's count")
    report.metric("utilisation_min", min(used.values()), "input tokens used, least", f"target: at least 0.96; {note}")
    report.metric(
        "hidden_consumer_refusals", hidden, "refused beside a consumer of 30 %", "target: at most 5 in ten windows"
    )
    report.figure("used beside the hidden consumer", f"{own:.1%}", f"{calls:,} calls; 70 % is left")


def measure_cached(session: Session) -> None:
    """Measure cached input. The first window, in which the cached share is learned, is left out."""
    window = FULL_WINDOW_SECONDS if session.full else WINDOW_SECONDS
    with ExitStack() as stack:
        providers = {name: stack.enter_context(running_sandbox()) for name in CACHED_QUOTAS}
        url = stack.enter_context(session.databases.copy("tokens", _seed))
        _set_up_cached(providers, window)
        stack.enter_context(cluster(url, environ=ALLOW_LOOPBACK))
        wait_for(lambda: all(one.counters()["received"] for one in providers.values()), what="every provider's calls")
        begun = time.time() + window
        time.sleep((1 + WINDOWS) * window)
        until = time.time()
        calls = {name: [call for call in one.calls() if call["at"] >= begun] for name, one in providers.items()}
        refused = sum(map(_refused, providers.values()))
    counts: dict[str, Counts] = {FREE: _uncached, COUNTED: itemgetter("cost_tokens")}
    used = {
        name: _least_use(calls[name], window, until, counts=counts[name], quota=quota)
        for name, quota in CACHED_QUOTAS.items()
    }
    note = f"any three consecutive windows of {window} s"
    report = session.report
    report.metric("cached_refusals", refused, "calls above a quota", "target: 0; the provider's count")
    report.metric("cached_free_utilisation", used[FREE], "used where cached input is free", f"least of {note}")
    report.metric("cached_counted_utilisation", used[COUNTED], "used where it counts", f"target: at least 0.96; {note}")
    for name, some in calls.items():
        cached = sum(call["cached_tokens"] for call in some) / max(1, sum(call["prompt_tokens"] for call in some))
        report.figure(f"{name}: of the input, a cache had", f"{cached:.0%}", f"{len(some):,} calls")


def _set_up_cached(providers: Mapping[str, Sandbox], window: float) -> None:
    quota = {"window_mode": "sliding", "window_seconds": window, "requests_per_minute": None}
    answers = {"output_tokens": CACHED_ANSWER_TOKENS}
    providers[FREE].turn(
        anthropic=quota
        | answers
        | {"input_tokens_per_minute": CACHED_QUOTAS[FREE], "output_tokens_per_minute": OUTPUT_TOKENS}
    )
    providers[COUNTED].turn(
        openai=quota | answers | {"tokens_per_minute": CACHED_QUOTAS[COUNTED], "cached_share": CACHED_SHARE}
    )
    for name, provider in providers.items():
        unit = "input_tokens" if name == FREE else "tokens"
        _limit(name, unit, CACHED_QUOTAS[name], window, counts_cached=name == COUNTED)
        asked = {"provider": "anthropic", "cache_system": True} if name == FREE else {"provider": "openai"}
        asked |= {"system": "word" * INSTRUCTION_TOKENS, "max_output_tokens": CACHED_ANSWER_TOKENS}
        _submit(name, provider, [_line(name, tokens, **asked) for tokens in _sizes(name, CACHED_DEPTH)])


def _seed() -> None:
    one_project()


def _set_up(name: str, provider: Sandbox, window: float) -> None:
    service = f"claude-{name}"
    provider.turn(
        anthropic={
            "window_mode": "sliding" if name == HIDDEN else name,
            "window_seconds": window,
            "requests_per_minute": None,
            "input_tokens_per_minute": INPUT_TOKENS,
            "output_tokens_per_minute": OUTPUT_TOKENS,
            "output_tokens": ANSWER_TOKENS,
            "hidden_share": HIDDEN_SHARE if name == HIDDEN else 0.0,
        }
    )
    for unit, capacity in (("input_tokens", INPUT_TOKENS), ("output_tokens", OUTPUT_TOKENS)):
        _limit(service, unit, capacity, window)
    _submit(service, provider, [_line(service, tokens) for tokens in _sizes(name, DEPTHS[name])])


def _limit(service: str, unit: str, capacity: int, window: float, *, counts_cached: bool = False) -> None:
    figures = {
        "name": f"{service}-{unit}".replace("_", "-"),
        "service": service,
        "scope": "project",
        "per_model": True,
        "unit": unit,
        "counts_cached": counts_cached,
        "algorithm": "sliding_window",
        "capacity": capacity,
        "window_seconds": window,
        "slack_seconds": LATE_SECONDS,
    }
    create_limit(figures, actor="user:1")


def _sizes(name: str, depth: int) -> list[int]:
    dice = Random(name)
    return [dice.randint(FEWEST, MOST) for _ in range(depth)]


def _submit(service: str, provider: Sandbox, lines: Sequence[dict[str, Any]]) -> None:
    credential = Credential.objects.create(
        name=service,
        service=service,
        quota_project=PROJECT,
        secret=seal({"api_key": f"project:{PROJECT}/user:bench"}),
        base_url=provider.url,
    )
    credential.projects.add(Project.objects.get(pk=PROJECT))
    submit_batch(lines, project_id=PROJECT, actor="bench")


def _line(service: str, tokens: int, **asked: Any) -> dict[str, Any]:
    payload = {
        "provider": "anthropic",
        "service": service,
        "credential": service,
        "model": "small-1",
        "prompt": "word" * tokens,
        "max_output_tokens": ANSWER_TOKENS,
        **asked,
    }
    return {"kind": "llm.generate", "payload": payload}


def _text(number: int, tokens: int) -> dict[str, Any]:
    payload = {"provider": "openai", "service": EMBED, "credential": EMBED, "model": "small-1"}
    return {"kind": "llm.embed", "payload": {**payload, "input": f"{number:04}" * tokens}}


def _uncached(call: Mapping[str, Any]) -> int:
    return int(call["prompt_tokens"] - call["cached_tokens"])


def _refused(provider: Sandbox) -> int:
    return sum(call["cause"] == "provider_quota" for call in provider.calls())


def _least_use(
    calls: Sequence[Mapping[str, Any]],
    window: float,
    until: float,
    *,
    counts: Counts = itemgetter("prompt_tokens"),
    quota: int = INPUT_TOKENS,
) -> float:
    """Return the least part of a quota that was used in any three windows in a row."""
    taken = sorted((call["at"], counts(call)) for call in calls if call["accepted"] and call["at"] <= until)
    times = [at for at, _ in taken]
    sums: list[int] = [0, *accumulate(tokens for _, tokens in taken)]
    span = 3 * window
    found = [
        sums[bisect_right(times, at + span)] - sums[bisect_left(times, at) + 1] for at in times if at + span <= until
    ]
    return float(min(found)) / (3 * quota)


if __name__ == "__main__":
    run(
        "tokens",
        measure,
        options={
            CACHED: "only input of which a cache has nine tenths, where it is free and where it counts",
            EMBED: "only texts that become vectors, and leave together",
        },
    )
