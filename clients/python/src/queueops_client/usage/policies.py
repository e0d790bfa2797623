"""Whether a use goes ahead at once or asks the server first. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from queueops_client.errors import BadConfiguration
from queueops_client.usage.cache import RECORD_OVERAGE, View

NEAR = 0.1

Amount = int | float  # units, or a share of the quota between 0 and 1


class Policy(StrEnum):
    OPTIMISTIC = "optimistic"  # call, then report; never refused
    HYBRID = "hybrid"  # optimistic with plenty left, strict near the limit
    STRICT = "strict"  # always reserve first


@dataclass(frozen=True, slots=True)
class Rules:
    """
    Attributes:
        threshold: With less than this left, `hybrid` asks first.
        credit: The most units used by `hybrid` and not yet reported to the server; None: as much as `threshold`.
            n outboxes pass a quota by at most (n - 1) x credit: see "How far past the quota" in the README.
    """

    policy: Policy = Policy.HYBRID
    threshold: Amount = NEAR
    credit: Amount | None = None

    def __post_init__(self) -> None:
        for name, amount in (("threshold", self.threshold), ("credit", self.credit)):
            if amount is not None and (amount < 0 or (isinstance(amount, float) and not amount <= 1)):
                raise BadConfiguration(f"{name} is {amount!r}; give units, or a share of the quota from 0.0 to 1.0.")

    def goes_ahead(self, view: View | None, cost: int) -> bool:
        """Whether a use of so many units may begin without asking the server."""
        if self.policy is not Policy.HYBRID:
            return self.policy is Policy.OPTIMISTIC
        return (
            view is not None
            and view.remaining - cost >= units(self.threshold, view.quota)
            and view.unsettled + cost <= units(self.threshold if self.credit is None else self.credit, view.quota)
        )

    def may_go_on_alone(self, view: View | None) -> bool:
        """Whether a use may begin though the server does not answer: it may where overuse is only recorded."""
        return self.policy is Policy.HYBRID and view is not None and view.policy == RECORD_OVERAGE


def units(amount: Amount, quota: int) -> int:
    return math.floor(amount * quota) if isinstance(amount, float) else amount
