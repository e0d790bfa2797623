"""Any limits, calls and times, as Hypothesis draws them for tests of the limiter."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ratelimits.limiter.decide import Call
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit, LimitOverride
from ratelimits.subjects import Subject

SERVICE = "svc"
SHAPES = [
    {"algorithm": "sliding_window", "window_seconds": 10},
    {"algorithm": "sliding_window", "window_seconds": 60},
    {"algorithm": "token_bucket", "refill_per_second": 0.7},
    {"algorithm": "leaky_bucket", "refill_per_second": 0.7, "capacity": 1},
    {"algorithm": "fixed_window", "window_seconds": 10},
    {"algorithm": "concurrency", "unit": "in_flight", "lease_seconds": 20},
]
limits = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(SHAPES),
        "scope": st.sampled_from(list(Limit.Scope)),
        "capacity": st.integers(1, 12),
        "headroom_percent": st.sampled_from([0, 0, 10]),
        "unit": st.sampled_from(["requests", "tokens", "input_tokens", "output_tokens"]),
        "counts_cached": st.booleans(),
        "call_type": st.sampled_from(["any", "write"]),
        "per_model": st.booleans(),
    }
)
subjects = st.builds(
    Subject,
    st.just(SERVICE),
    st.sampled_from(["read", "write"]),
    st.sampled_from(["acme", "beta"]),
    st.sampled_from(["", "ada", "bob"]),
    st.sampled_from(["", "small"]),
)
NOTHING_STATED: dict[str, int] = {}
vectors = st.just(NOTHING_STATED) | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(["input_tokens", "cached_tokens", "output_tokens", "tokens"], st.integers(0, 8))
)
calls = st.tuples(
    subjects, st.integers(1, 8), st.none() | st.integers(0, 8), st.booleans(), st.booleans(), vectors
).map(lambda drawn: Call(drawn[0], drawn[1], drawn[2], paced=drawn[3], crowded=drawn[4], amounts=drawn[5]))
histories = st.lists(st.tuples(st.floats(0, 15), st.lists(calls, max_size=8)), min_size=1, max_size=8)


def with_limits(drawn: list[dict[str, Any]]) -> tuple[catalogue.Rule, ...]:
    """Have these limits and no others, nothing counted."""
    Counter.objects.all().delete()
    LimitOverride.objects.all().delete()
    Limit.objects.all().delete()
    for number, one in enumerate(drawn):
        figures = {name: value for name, value in one.items() if name != "shape"} | one["shape"]
        if figures["algorithm"] == "leaky_bucket":
            figures["unit"] = "requests"
        Limit.objects.create(**{"name": f"limit-{number}", "service": SERVICE, "capacity": 10, **figures})
    catalogue.forget()
    return catalogue.rules()
