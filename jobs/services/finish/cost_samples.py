"""Learns from the real costs of calls, so that limits reserve amounts closer to the next calls' costs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ratelimits.costs import Usage
from ratelimits.limiter.estimates import MAX_SAMPLES, Sample, record_actuals

from .claimed import ClaimedJob
from .outcomes import GivenBack, Outcome, Succeeded

LEARN_SECONDS = 5.0


class CostSamples:
    """The real costs of one executor's calls, less the part known before the call; written every LEARN_SECONDS."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=10 * MAX_SAMPLES)
        self._ratios: deque[Sample] = deque(maxlen=10 * MAX_SAMPLES)
        self._outputs: deque[Sample] = deque(maxlen=10 * MAX_SAMPLES)
        self._cached: deque[Sample] = deque(maxlen=10 * MAX_SAMPLES)
        self._next = 0.0

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Keep real costs beside estimates, but not of jobs done in parts: their known cost is the largest part's."""
        for outcome in outcomes:
            if isinstance(outcome, Succeeded | GivenBack) and outcome.usage:
                self._note_usage(outcome.job, outcome.usage)
            job = outcome.job
            # If several jobs left together, the outcome of one has the cost of all.
            alone = job.partial is None and job.coalesce_key is None
            if not isinstance(outcome, Succeeded) or outcome.cost is None or not alone:
                continue
            known = job.cost if job.known_cost is None else job.known_cost
            if job.known_cost is not None:
                self._samples.append((job.alike, float(outcome.cost - job.known_cost)))
            if outcome.known_cost is not None and known > 0:
                self._ratios.append((job.alike, outcome.known_cost / known))

    def _note_usage(self, job: ClaimedJob, usage: Usage) -> None:
        if usage.output_tokens is not None:
            self._outputs.append((job.alike, float(usage.output_tokens)))
        if usage.input_tokens and usage.cached_tokens is not None:
            self._cached.append((job.alike, min(1.0, usage.cached_tokens / usage.input_tokens)))

    def write(self, now: float) -> None:
        """
        Write the noted costs, in a transaction of its own, if LEARN_SECONDS have passed since the last write.

        Args:
            now: Seconds of the monotonic clock; infinite: write now, for the last time.
        """
        noted = (self._samples, self._ratios, self._outputs, self._cached)
        if not any(noted) or now < self._next:
            return
        self._next = now + LEARN_SECONDS
        told = [list(one) for one in noted]
        for one in noted:
            one.clear()
        record_actuals(*told)
