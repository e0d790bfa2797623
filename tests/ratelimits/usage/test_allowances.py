"""Giving projects allowances and users quotas of their own: what it changes, and what the audit trail says."""

from __future__ import annotations

from uuid import uuid4

import pytest

from queueops.audit.models import AuditEntry
from ratelimits.errors import InvalidAllowance, NoAllowance
from ratelimits.models import Allowance, AllowanceOverride, UsageTracking
from ratelimits.usage.allowances import remove_override, set_allowance, set_override
from ratelimits.usage.models import MAX_QUOTA
from ratelimits.usage.standings import standing
from tests.factories import make_allowance, make_project, make_usage_event, make_usage_month
from tests.support.cases import every_case

pytestmark = pytest.mark.django_db

ACTOR = "user:1"
FIGURES = {"unit": "tokens", "quota": 500, "policy": "strict", "time_zone": "UTC", "reservation_seconds": 300}


def give(project="acme", **figures):
    return set_allowance(project, **{**FIGURES, **figures}, actor=ACTOR, reason="asked for")


def test_a_project_gets_an_allowance_and_the_trail_says_who_gave_it():
    make_project()
    assert give().changed == tuple(FIGURES)
    assert Allowance.objects.values(*FIGURES).get() == FIGURES
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.project_id, entry.reason) == (
        ACTOR,
        "set_allowance",
        "acme",
        "asked for",
    )
    assert (entry.before, entry.after) == (None, FIGURES)


def test_giving_it_again_changes_nothing_and_is_not_told():
    make_project()
    give()
    assert (give().changed, AuditEntry.objects.count()) == ((), 1)


@every_case(("figure", "value"), [
    ("unit", "bytes"), ("quota", -1), ("quota", MAX_QUOTA + 1), ("quota", None), ("policy", "lax"),
    ("time_zone", "Europe/Nowhere"), ("time_zone", "europe/vienna"), ("time_zone", ""), ("time_zone", "UTC\0"),
    ("time_zone", "CET"),
    ("reservation_seconds", 0), ("reservation_seconds", 86_401),
], undone=True)  # fmt: skip
def test_figures_that_cannot_be_are_refused_by_their_name(figure, value):
    make_project()
    with pytest.raises(InvalidAllowance) as refused:
        give(**{figure: value})
    assert list(refused.value.fields) == [figure]
    assert not Allowance.objects.exists()


def test_a_zone_that_was_taken_before_keeps_no_other_figure_from_being_changed():
    make_allowance(quota=5, time_zone="CET")
    assert "quota" in give(quota=9, time_zone="CET").changed
    assert give(quota=9, time_zone="Europe/Berlin").changed == ("time_zone",)
    with pytest.raises(InvalidAllowance):
        give(quota=9, time_zone="CET")


def test_only_a_project_that_exists_gets_one(user):
    for change in (give, lambda: set_override("acme", user, quota=1, actor=ACTOR)):
        with pytest.raises(InvalidAllowance):
            change()


def test_another_quota_changes_this_month_and_later_ones_and_leaves_those_before(user):
    make_allowance(quota=5)
    for month in ("2026-01", None, "2999-01"):
        make_usage_month(user, month=month)
    make_usage_month(uuid4())
    assert give(quota=9).months == 3
    assert dict(UsageTracking.objects.filter(user_id=user).values_list("month_year", "quota")) == {
        "2026-01": 5,
        standing("acme", user).month: 9,
        "2999-01": 9,
    }


def test_a_lower_quota_makes_overage_of_what_was_used(user):
    make_allowance(quota=10, unit="tokens")
    make_usage_event(user, amount=8)
    give(quota=5)
    row = UsageTracking.objects.get()
    assert (row.overage, row.level) == (3, 101)
    assert standing("acme", user).remaining == 0


def test_a_change_of_unit_or_zone_is_warned_of(user):
    make_project()
    assert give().warnings == ()
    assert give(unit="requests").warnings == ()
    make_usage_event(user)
    assert len(give(unit="tokens").warnings) == 1
    assert len(give(time_zone="Asia/Tokyo", unit="requests").warnings) == 2


def test_an_override_is_for_one_user_and_the_others_keep_theirs(user):
    make_allowance(quota=5)
    other = uuid4()
    make_usage_month(user)
    make_usage_month(other)
    saved = set_override("acme", user, quota=9, note="pays for it", actor=ACTOR, reason="asked for")
    assert (saved.changed, saved.months) == (("quota", "note"), 1)
    assert (standing("acme", user).quota, standing("acme", other).quota) == (9, 5)
    give(quota=6)
    assert dict(UsageTracking.objects.values_list("user_id", "quota")) == {user: 9, other: 6}
    assert set_override("acme", user, quota=9, note="pays for it", actor=ACTOR).changed == ()
    assert set_override("acme", user, quota=8, note="pays for it", actor=ACTOR).changed == ("quota",)
    assert UsageTracking.objects.get(user_id=user).quota == 8


def test_without_its_override_a_user_has_the_projects_quota_again(user):
    make_allowance(quota=5)
    make_usage_month(user)
    set_override("acme", user, quota=9, actor=ACTOR)
    assert remove_override("acme", user, actor=ACTOR)
    assert not remove_override("acme", user, actor=ACTOR)
    assert (UsageTracking.objects.get().quota, AllowanceOverride.objects.count()) == (5, 0)
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)) == [
        "set_allowance_override",
        "remove_allowance_override",
    ]


def test_an_override_needs_an_allowance_and_a_quota_that_can_be(user):
    make_project()
    with pytest.raises(NoAllowance):
        set_override("acme", user, quota=1, actor=ACTOR)
    make_allowance()
    with pytest.raises(InvalidAllowance):
        set_override("acme", user, quota=-1, actor=ACTOR)


def test_how_a_user_stands_makes_no_row(user):
    make_allowance(quota=7, policy="record_overage")
    found = standing("acme", user)
    assert (found.quota, found.used, found.reserved, found.overage, found.remaining) == (7, 0, 0, 0, 7)
    assert (found.unit, found.policy) == ("requests", "record_overage")
    assert not UsageTracking.objects.exists()
