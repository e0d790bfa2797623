"""Errors of requests that limits, allowances and budgets cannot carry out."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class InvalidLimit(QueueOpsError):
    """These figures cannot be a limit's."""

    code = "invalid_limit"
    status = 422


class UnknownLimit(QueueOpsError):
    """There is no such limit."""

    code = "unknown_limit"
    status = 404
    detail_fields = ("limit_id",)


class LimitChanged(QueueOpsError):
    """Somebody else has changed this limit meanwhile; look at it again."""

    code = "limit_changed"
    status = 409


class SharedLimit(QueueOpsError):
    """Projects share it, so an operator changes it. A key may give its own project another capacity: an override."""

    code = "shared_limit"
    status = 403


class OperatorsCap(QueueOpsError):
    """How many calls may be in flight at once is said by operators; a key of the project sees it."""

    code = "operators_cap"
    status = 403


class NothingProposed(QueueOpsError):
    """The provider has not stated another cap for this limit, or it was dealt with meanwhile."""

    code = "nothing_proposed"
    status = 409


class UnknownCounter(QueueOpsError):
    """There is no such counter; it may have been idle and removed."""

    code = "unknown_counter"
    status = 404
    detail_fields = ("counter_id",)


class InvalidCoolDown(QueueOpsError):
    """The cool-down is negative or too long."""

    code = "invalid_cool_down"
    status = 422


class NotSimulable(QueueOpsError):
    """A cap on calls in flight, or on what is enqueued, cannot be played again: nobody keeps how long each took."""

    code = "not_simulable"
    status = 409


class InvalidAllowance(QueueOpsError):
    """These figures cannot be an allowance's."""

    code = "invalid_allowance"
    status = 422


class NoAllowance(QueueOpsError):
    """This project has no allowance; an operator gives it one, or a key with the scope `limits`."""

    code = "no_allowance"
    status = 404


class AllowanceExists(QueueOpsError):
    """The project has an allowance already: change that."""

    code = "allowance_exists"
    status = 409


class AllowanceInUse(QueueOpsError):
    """Its users have used or reserved some of this month, which would count nowhere. A quota of 0 ends it at once."""

    code = "allowance_in_use"
    status = 409


class OperatorsAllowance(QueueOpsError):
    """An operator has set this allowance; keys of its project may look at it."""

    code = "operators_allowance"
    status = 403


class QuotaExceeded(QueueOpsError):
    """The user's allowance of this month does not hold so much any more."""

    code = "quota_exceeded"
    status = 409
    detail_fields = ("remaining", "resets_at", "quota")


class UnknownReservation(QueueOpsError):
    """There is no such reservation."""

    code = "not_found"
    status = 404


class InvalidCorrection(QueueOpsError):
    """This month cannot be corrected so."""

    code = "invalid_correction"
    status = 422


class NoRamp(QueueOpsError):
    """No ramp is on; it may have reached its end."""

    code = "no_ramp"
    status = 409


class InvalidRamp(QueueOpsError):
    """A ramp takes from a second to a week."""

    code = "invalid_ramp"
    status = 422


class InvalidBudget(QueueOpsError):
    """These figures cannot be a budget's."""

    code = "invalid_budget"
    status = 422


class UnknownBudget(QueueOpsError):
    """There is no such budget."""

    code = "unknown_budget"
    status = 404


class OperatorsBudget(QueueOpsError):
    """An operator has set this budget; keys of its project may look at it and make others."""

    code = "operators_budget"
    status = 403
