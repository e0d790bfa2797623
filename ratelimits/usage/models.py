"""Allowances of users for a month, their use, and the reservations and events behind it."""

from __future__ import annotations

import uuid
from typing import ClassVar

import uuid_utils.compat
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Greatest, Now

from queueops.tenancy.models import Project

MAX_QUOTA = 10**15
MAX_RESERVATION_SECONDS = 86_400
MAX_SERVICE_LENGTH = 64
MAX_IDEMPOTENCY_KEY_LENGTH = 200
LEVELS = (60, 80, 100)  # percent of a quota at which an alert opens or its severity rises
NEAR = 80  # the level from which a user is called near the quota
PASSED = 101  # the level once more than the whole quota was used

QUOTA_RANGE = (MinValueValidator(0), MaxValueValidator(MAX_QUOTA))


def new_reservation_id() -> uuid.UUID:
    """A UUIDv7: it sorts by time, so new rows share index pages, and old rows are found by id."""
    return uuid_utils.compat.uuid7()


def level_reached() -> models.Case:
    """The highest of LEVELS that `used` has reached, or PASSED. Computed in whole numbers, so rounding does no harm."""
    quota = models.F("quota")
    reached = [
        models.When(used__gte=quota - quota * (100 - percent) / 100, then=models.Value(percent))
        for percent in reversed(LEVELS)
    ]
    return models.Case(
        models.When(used=0, then=models.Value(0)),
        models.When(used__gt=quota, then=models.Value(PASSED)),
        *reached,
        default=models.Value(0),
    )


class AllowanceUnit(models.TextChoices):
    REQUESTS = "requests"
    TOKENS = "tokens"


class AllowancePolicy(models.TextChoices):
    STRICT = "strict", "strict: nothing is reserved beyond the quota"
    RECORD_OVERAGE = "record_overage", "record overage: reservations pass the quota and say so"


class Allowance(models.Model):
    """An allowance says how much every user of a project may use in a calendar month, and what happens beyond that."""

    Unit = AllowanceUnit
    Policy = AllowancePolicy

    project = models.OneToOneField(Project, models.CASCADE, primary_key=True, related_name="allowance")
    unit = models.CharField(max_length=8, choices=Unit, default=Unit.REQUESTS)
    quota = models.BigIntegerField(validators=QUOTA_RANGE, help_text="In the unit, for each user and month.")
    policy = models.CharField(max_length=14, choices=Policy, default=Policy.STRICT)
    time_zone = models.CharField(
        max_length=64, default="UTC", help_text="Where the month begins at midnight: Europe/Vienna."
    )
    reservation_seconds = models.PositiveIntegerField(
        default=300,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_RESERVATION_SECONDS)],
        help_text="A reservation that nobody confirmed is given back after so long. Longer than the longest call.",
    )
    set_by_operator = models.BooleanField(
        default=True, db_default=True, editable=False, help_text="No key of the project may change it."
    )
    updated_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ("project_id",)
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(quota__range=(0, MAX_QUOTA)), name="allowance_quota_in_range")
        ]

    def __str__(self) -> str:
        return f"{self.project_id}: {self.quota:,} {self.unit}"


class AllowanceOverride(models.Model):
    """Another quota for one user of a project."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="allowance_overrides", db_index=False)
    user_id = models.UUIDField()
    quota = models.BigIntegerField(validators=QUOTA_RANGE, help_text="In the allowance's unit, for each month.")
    note = models.TextField(blank=True)
    unit: str  # the unit of the project's allowance, set by `tell_units`

    class Meta:
        ordering = ("project_id", "user_id")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "user_id"], name="allowance_override_once"),
            models.CheckConstraint(
                condition=models.Q(quota__range=(0, MAX_QUOTA)), name="allowance_override_quota_in_range"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.project_id}/{self.user_id}: {self.quota:,}"


class UsageTracking(models.Model):
    """
    The use and reservations of one user in one month: the sums of the events and of the active reservations.

    Every use locks the row. No index may hold a column that every use changes; otherwise updates would not stay on
    their page (HOT).
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(
        Project, models.PROTECT, related_name="usage_months", db_constraint=False, db_index=False
    )
    user_id = models.UUIDField()
    month_year = models.CharField(max_length=7, help_text="YYYY-MM, in the allowance's time zone.")
    quota = models.BigIntegerField(validators=QUOTA_RANGE)
    used = models.BigIntegerField(default=0, db_default=0)
    reserved = models.BigIntegerField(default=0, db_default=0)
    overage = models.GeneratedField(
        expression=Greatest(models.F("used") - models.F("quota"), 0),
        output_field=models.BigIntegerField(),
        db_persist=True,
    )
    level = models.GeneratedField(
        expression=level_reached(),
        output_field=models.SmallIntegerField(),
        db_persist=True,
        help_text="Percent of the quota reached: 60, 80, 100; 101: passed.",
    )
    refused = models.IntegerField(default=0, db_default=0, help_text="Reservations refused for want of room.")
    expired = models.IntegerField(default=0, db_default=0, help_text="Reservations that nobody confirmed in time.")
    alerted_level = models.SmallIntegerField(default=0, db_default=0, help_text="The level that people were told.")
    unit: str  # the unit of the project's allowance, set by `tell_units`
    label: str  # the user's label, set by the list of months

    class Meta:
        verbose_name_plural = "usage tracking"
        permissions: ClassVar = [
            ("correct_usage", "Can correct usage and repair the ledger"),
            ("export_usage", "Can export usage"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "user_id", "month_year"], name="usage_tracking_once"),
            models.CheckConstraint(
                condition=models.Q(used__gte=0, reserved__gte=0), name="usage_tracking_counts_nothing_below_zero"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["id"],
                name="usage_tracking_untold_idx",
                condition=~models.Q(level=models.F("alerted_level")),
            ),
            # For lists, the newest first: of a month, of a project's month, and of users near their quota in a month.
            models.Index(fields=["month_year", "id"], name="usage_tracking_month_idx"),
            models.Index(fields=["project", "month_year", "id"], name="usage_tracking_project_idx"),
            models.Index(
                fields=["month_year", "id"], name="usage_tracking_near_idx", condition=models.Q(level__gte=NEAR)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.project_id}/{self.user_id} {self.month_year}"


class UsageReservation(models.Model):
    """An amount set aside before a call. It counts while it is `active`, a status that it leaves once and for good."""

    class Status(models.TextChoices):
        ACTIVE = "active"
        CONFIRMED = "confirmed"  # an event reported the use
        CANCELLED = "cancelled"
        EXPIRED = "expired"  # nobody reported anything before expires_at; a later event counts by itself

    id = models.UUIDField(primary_key=True, default=new_reservation_id, editable=False)
    project = models.ForeignKey(
        Project, models.PROTECT, related_name="usage_reservations", db_constraint=False, db_index=False
    )
    user_id = models.UUIDField()
    month_year = models.CharField(max_length=7, help_text="The month it was made in, whenever its event comes.")
    amount = models.BigIntegerField(validators=[MinValueValidator(1)])
    expires_at = models.DateTimeField()
    status = models.CharField(max_length=9, choices=Status, default=Status.ACTIVE, db_default=Status.ACTIVE)
    idempotency_key = models.CharField(max_length=MAX_IDEMPOTENCY_KEY_LENGTH, null=True)
    remaining = models.BigIntegerField(help_text="What was left after it; below 0: it passed the quota.")
    created_at = models.DateTimeField(db_default=Now())
    unit: str  # the unit of the project's allowance, set by `tell_units`

    class Meta:
        ordering = ("-id",)
        permissions: ClassVar = [("cancel_reservation", "Can cancel reservations of users")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "idempotency_key"],
                name="usage_reservation_key_once",
                condition=models.Q(idempotency_key__isnull=False),
            ),
            models.CheckConstraint(condition=models.Q(amount__gt=0), name="usage_reservation_amount_positive"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["expires_at"], name="usage_reservation_active_idx", condition=models.Q(status="active")
            )
        ]

    def __str__(self) -> str:
        return str(self.id)


class UsageEvent(models.Model):
    """One use, as it was reported. `UsageTracking.used` is the sum of the amounts. Rows are only added."""

    id = models.BigAutoField(primary_key=True)
    event_id = models.UUIDField(help_text="Chosen by whoever reports it: the same id counts once.")
    project = models.ForeignKey(
        Project, models.PROTECT, related_name="usage_events", db_constraint=False, db_index=False
    )
    user_id = models.UUIDField()
    month_year = models.CharField(max_length=7, help_text="The month that it counts in.")
    service = models.CharField(max_length=MAX_SERVICE_LENGTH, blank=True)
    tokens = models.BigIntegerField(default=0, db_default=0)
    amount = models.BigIntegerField(help_text="What it adds to `used`, in the allowance's unit of its time.")
    occurred_at = models.DateTimeField()
    created_at = models.DateTimeField(db_default=Now())
    reservation = models.UUIDField(null=True, help_text="The reservation that it named, live or not.")
    over_limit = models.BooleanField(default=False, db_default=False)
    correction = models.BooleanField(default=False, db_default=False, help_text="Made by an operator.")
    unit: str  # the unit of the project's allowance, set by `tell_units`

    class Meta:
        ordering = ("-id",)
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "event_id"], name="usage_event_once"),
            models.CheckConstraint(
                condition=models.Q(amount__gte=0) | models.Q(correction=True), name="usage_event_takes_nothing_back"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["project", "user_id", "month_year"], name="usage_event_month_idx")]

    def __str__(self) -> str:
        return str(self.event_id)
