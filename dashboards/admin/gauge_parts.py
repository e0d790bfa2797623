"""How limits, their gauges and the queues behind them look in every list and page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobs.services.explain.queues import Queue, clears_at, queue_of, queues_behind
from queueops.screens import formatting
from ratelimits.costs import PER_CALL
from ratelimits.limiter.view.gauges import CounterGauge, gauges
from ratelimits.limits.catalogue import rules_of
from ratelimits.limits.validation import KINDS, NOUNS, figure
from ratelimits.models import Limit

WHOLE = 100.0
COUNTERS_OF_A_LIST = 50  # so many counters of a limit are read, the last changed first; the fullest is shown


@dataclass(frozen=True, slots=True)
class LimitStanding:
    """The state of one limit: the gauge of its fullest counter, and the jobs that wait for it."""

    fullest: CounterGauge | None
    waiting: int
    more: bool
    clears: SafeString | str
    cooling: int


def standings(limits: Sequence[Limit]) -> dict[int, LimitStanding]:
    """Read the state of each of these limits, with a bounded number of statements for all of them."""
    if not limits:
        return {}
    behind = queues_behind(rules_of(limits))
    read: dict[int, list[CounterGauge]] = {limit_id: [] for limit_id in behind}
    for gauge in gauges(list(behind), most=COUNTERS_OF_A_LIST):
        read[gauge.limit_id].append(gauge)
    shadows = {limit.pk for limit in limits if limit.shadow}
    return {one: _standing(read[one], behind[one], is_shadow=one in shadows) for one in behind}


def _standing(found: Sequence[CounterGauge], queues: Mapping[str, Queue], *, is_shadow: bool) -> LimitStanding:
    by_key = {gauge.key: queue_of(gauge, queues) for gauge in found}
    queues = by_key if is_shadow else {**queues, **by_key}
    ends = [clears_at(queues[gauge.key], gauge) for gauge in found]
    known = [end for end in ends if end is not None]
    return LimitStanding(
        fullest=found[0] if found else None,
        waiting=sum(queue.waiting for queue in queues.values()),
        more=any(queue.more for queue in queues.values()),
        clears=formatting.ago(max(known)) if known else formatting.NOTHING,
        cooling=sum(gauge.blocked_until is not None for gauge in found),
    )


def counter_rows(limit: Limit, *, most: int) -> list[dict[str, object]]:
    """Return the counters of a limit for its page, the fullest first."""
    behind = queues_behind(rules_of([limit]))[limit.pk]
    return [
        {
            "key": formatting.link("ratelimits_counter", gauge.counter_id, gauge.key),
            "gauge": gauge_bar(gauge),
            "marks": marks(gauge),
            "waiting": queue.count,
            "clears": formatting.ago(clears_at(queue, gauge)),
            "updated": formatting.ago(gauge.updated_at),
        }
        for gauge in gauges([limit.pk], most=most)[:most]
        for queue in [queue_of(gauge, behind)]
    ]


def gauge_bar(gauge: CounterGauge) -> SafeString:
    """Return a bar of the used part of a cap, with marks at the thresholds of notices and warnings."""
    noun = NOUNS[gauge.unit]
    used, cap = figure(round(gauge.used, 1)), figure(round(gauge.capacity, 3))
    return format_html(
        '<span class="qo-meter"><span class="qo-gauge qo-gauge-{}" role="meter"'
        ' style="--qo-notice:{}%;--qo-warning:{}%" aria-label="{}" aria-valuemin="0"'
        ' aria-valuemax="{}" aria-valuenow="{}"><span class="qo-bar-done" style="width:{}%"></span></span>'
        '<span><span class="qo-number">{}</span> of {} {} <span class="qo-muted">{}</span></span></span>',
        _tone(gauge),
        gauge.notice_percent,
        gauge.warning_percent,
        f"{gauge.limit} {gauge.key}",
        round(gauge.capacity, 3),
        round(gauge.used, 3),
        round(min(WHOLE, gauge.percent), 1),
        used,
        cap,
        noun,
        f"{gauge.percent:.0f} %",
    )


def marks(gauge: CounterGauge) -> SafeString:
    """Return badges for a counter's unusual states: full, cooled down, slowed, in shadow mode."""
    found: list[SafeString] = []
    if gauge.blocked_until is not None:
        words = format_html("<span>cooled down, ends {}</span>", formatting.ago(gauge.blocked_until))
        found.append(formatting.badge("amber", "ac_unit", words))
    elif gauge.next_free_at is not None and not gauge.holds_nothing:
        words = format_html("<span>full, next {}</span>", formatting.ago(gauge.next_free_at))
        found.append(formatting.badge("amber", "hourglass_top", words))
    if gauge.pressure < 1:
        found.append(formatting.badge("amber", "compress", f"slowed to {gauge.pressure:.0%}"))
    if gauge.share < 1:
        found.append(formatting.badge("amber", "trending_up", f"paced by the ramp: {gauge.share:.0%}"))
    if gauge.proposed_capacity is not None:
        found.append(formatting.badge("blue", "lightbulb", f"provider says {figure(gauge.proposed_capacity)}"))
    if gauge.override_ends_at is not None:
        words = format_html("<span>override, ends {}</span>", formatting.ago(gauge.override_ends_at))
        found.append(formatting.badge("blue", "timer", words))
    if gauge.shadow:
        found.append(formatting.badge("grey", "visibility", f"shadow: would have held {gauge.shadow_denials:,}"))
    return format_html_join(" ", "{}", ((one,) for one in found))


def state_badge(limit: Limit) -> SafeString:
    if not limit.enabled:
        return formatting.badge("grey", "block", "off")
    if limit.shadow:
        return formatting.badge("grey", "visibility", "shadow")
    return formatting.badge("green", "check", "on")


def cap_in_words(limit: Limit) -> str:
    """`300 calls a minute`, `9 at once and 4.85 calls a second`, `50 calls in flight`."""
    return KINDS[limit.algorithm].in_words(limit)


def counted_in_words(limit: Limit) -> str:
    """`write calls of a project`, `all tokens of a user, by model`."""
    calls = "all" if limit.call_type == "any" else limit.call_type
    noun = "calls" if limit.unit in PER_CALL else NOUNS[limit.unit]
    who = {"global": "everyone together", "project": "a project", "user": "a user"}.get(
        limit.scope, "a user of a project"
    )
    model = f" of {limit.model}" if limit.model else ", each model by itself" if limit.per_model else ""
    own = [f"of {limit.kind}" if limit.kind else "", f"of project {limit.project}" if limit.project else ""]
    return " ".join(filter(None, [f"{calls} {noun}", *own, f"of {who}{model}"]))


def _tone(gauge: CounterGauge) -> str:
    if gauge.holds_nothing:
        return "low"
    if gauge.blocked_until is not None or gauge.percent >= WHOLE:
        return "full"
    return "high" if gauge.level else "low"
