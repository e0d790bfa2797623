"""The bins of the flow's histograms. count_flow.sql counts into the same number of bins; a test compares them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

# Lower bounds of bins; one more bin lies below the first bound.
DURATION_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
SIZE_BYTES = (256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)

# In the order of FlowSample.answers. Older rows have shorter arrays: add a new class at the end.
ANSWERS = ("2xx", "3xx", "4xx", "429", "5xx", "none", "400", "401", "403", "404")
NAMED_4XX = ("400", "401", "403", "404")  # each has a remedy of its own; `4xx` counts the others


def percentile(counts: Sequence[int], bounds: Sequence[int], share: float) -> float | None:
    """
    Return the value that `share` of all values do not exceed, interpolated within its bin; None: there are no values.

    A value above the last bound counts as that bound: the last bin has no upper bound.
    """
    total = sum(counts)
    if not total:
        return None
    wanted = share * total
    for place, reached in enumerate(accumulate(counts)):
        if reached >= wanted and counts[place]:
            if place == len(bounds):
                break
            low = bounds[place - 1] if place else 0
            return low + (bounds[place] - low) * (1 - (reached - wanted) / counts[place])
    return float(bounds[-1])
