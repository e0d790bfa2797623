"""The form of a limit: the service's own checks, a simulation of the last hour, and warnings that must be confirmed."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminTextareaWidget

from queueops.core.errors import QueueOpsError
from queueops.screens.confirm_form import AskingForm
from queueops.screens.forms import SuggestingWidget
from ratelimits.errors import InvalidLimit
from ratelimits.limits.catalogue import rule_of
from ratelimits.limits.known_names import KnownName, suggested
from ratelimits.limits.overrides import fault_of_end
from ratelimits.limits.save_limit import EDITABLE
from ratelimits.limits.validation import check_override
from ratelimits.models import Limit, LimitOverride
from ratelimits.tuning.review_limit import propose_limit
from ratelimits.tuning.simulate import Simulation, simulate

SIMULATE = "_simulate"
DEFAULTED = ("guard_seconds", "lease_seconds", "headroom_percent")  # left empty, they get a new limit's defaults
STRONG_FACTOR = 2.0  # raising or lowering a cap by more than this factor must be confirmed


class LimitForm(AskingForm):
    """
    Attributes:
        simulation: How the last hour would have been under the new figures; None: not simulated.
    """

    class Meta:
        model = Limit
        fields = tuple(sorted(EDITABLE))
        widgets = {
            "note": UnfoldAdminTextareaWidget(attrs={"rows": 3}),
            **{name.value: SuggestingWidget(partial(suggested, name)) for name in KnownName},
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.simulation: Simulation | None = None
        for name in ("capacity", *DEFAULTED):
            if name in self.fields:  # the field is missing for people who may only look
                self.fields[name].required = False

    @property
    def wants_simulation(self) -> bool:
        return SIMULATE in self.data and self.stored is not None

    def figures(self) -> dict[str, Any]:
        """Return the figures to save: empty fields of DEFAULTED get their defaults."""
        blank = Limit()
        return {
            name: getattr(blank, name) if value is None and name in DEFAULTED else value
            for name, value in self.cleaned_data.items()
            if name in EDITABLE
        }

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if self.errors:
            return given
        if self.was_overtaken:
            self.add_error(
                None, "Somebody else has changed this limit meanwhile. Reload the page to see their figures."
            )
            return given
        figures = self.figures()
        proposed, found = propose_limit(self.stored.pk if self.stored else None, figures)
        for name, faults in found.faults.items():
            for fault in faults:
                self.add_error(name if name in self.fields else None, fault)
        self.warnings = list(found.warnings)
        if found.faults:
            return given
        self.warnings += _strong_changes(self.stored, proposed)
        if self.wants_simulation:
            self._simulate(figures)
        self.asks_first = self.wants_simulation or bool(self.is_unread and not given.get("confirmed"))
        return given

    def _simulate(self, figures: dict[str, Any]) -> None:
        try:
            self.simulation = simulate(self.instance.pk, figures)
        except InvalidLimit as error:
            self.add_error(None, error.message)
        except QueueOpsError as error:
            self.warnings.append(error.message)

    def _post_clean(self) -> None:
        """
        Set the figures without the model's own check: the service has checked them, and fills in fields that the
        model would refuse as empty.
        """
        if self.errors:
            return
        for name, value in self.figures().items():
            setattr(self.instance, name, value)


def _strong_changes(before: Limit | None, after: Limit) -> list[str]:
    if before is None:
        return []
    found = []
    old, new = _pace(before), _pace(after)
    if old and new and max(new / old, old / new) > STRONG_FACTOR:
        times = f"{max(new / old, old / new):.3g}"
        found.append(
            f"It lets {times} times as much through: be sure that the provider allows it."
            if new > old
            else f"It holds back {times} times as strongly as before: work waits longer."
        )
    if before.enabled and after.enabled and after.shadow and not before.shadow:
        found.append("From now on it holds nothing back.")
    if (not before.enabled and after.enabled) or (before.shadow and not after.shadow and after.enabled):
        found.append("From now on it holds work back.")
    return found


def _pace(limit: Limit) -> float:
    return rule_of(limit).rate_per_second("") or limit.capacity


class OverrideForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = LimitOverride
        fields = ("key", "capacity", "refill_per_second", "ends_at", "note")
        widgets = {"note": UnfoldAdminTextareaWidget(attrs={"rows": 1})}

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        limit = Limit.objects.filter(pk=self.instance.limit_id).first()
        if not self.errors and limit is not None:
            found = check_override(limit, given["key"], given["capacity"], given.get("refill_per_second"))
            for name, faults in found.faults.items():
                for fault in faults:
                    self.add_error(name, fault)
            if (end := given.get("ends_at")) and "ends_at" in self.changed_data and (fault := fault_of_end(end)):
                self.add_error("ends_at", fault)
        return given
