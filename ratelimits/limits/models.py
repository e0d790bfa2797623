"""Limits, and the live state of each limit for every key."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from ratelimits.subjects import MAX_ID_LENGTH, MAX_KEY_LENGTH, MAX_NAME_LENGTH


class LimitCallType(models.TextChoices):
    READ = "read"
    WRITE = "write"
    ANY = "any"


class Unit(models.TextChoices):
    """The unit that a limit counts; `ratelimits.costs` says how much a call takes of each."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens", "input tokens"
    OUTPUT_TOKENS = "output_tokens", "output tokens"
    ENQUEUED_TOKENS = "enqueued_tokens", "tokens enqueued at the provider"
    IN_FLIGHT = "in_flight", "calls in flight"


class LimitScope(models.TextChoices):
    GLOBAL = "global", "everyone together"
    PROJECT = "project"
    USER = "user"
    PROJECT_USER = "project_user", "user of a project"


class Limit(models.Model):
    """
    A cap on the calls of one service, counted for every key of its scope.

    Each algorithm reads figures of its own:

    - sliding window: `capacity`, `window_seconds`, `slack_seconds`;
    - token bucket: `capacity` (the burst), `refill_per_second`;
    - leaky bucket: `refill_per_second`;
    - fixed window: `capacity`, `guard_seconds`, and either `reset_zone` or `window_seconds`;
    - concurrency: `capacity`, `lease_seconds`.
    """

    Scope = LimitScope

    class Algorithm(models.TextChoices):
        SLIDING_WINDOW = "sliding_window"
        TOKEN_BUCKET = "token_bucket"  # noqa: S105 - no password
        LEAKY_BUCKET = "leaky_bucket"
        FIXED_WINDOW = "fixed_window"
        CONCURRENCY = "concurrency"

    class Reserves(models.TextChoices):
        USED = "used", "what calls use"
        MAX = "max", "all that they may bring"

    name = models.SlugField(max_length=100, unique=True, help_text="Shown wherever the limit binds.")
    service = models.CharField(
        max_length=64,
        blank=True,
        help_text="The external API, as its handlers name it: google-sheets. Empty: calls in flight to any.",
    )
    call_type = models.CharField(max_length=5, choices=LimitCallType, default=LimitCallType.ANY)
    scope = models.CharField(max_length=12, choices=Scope, default=Scope.PROJECT)
    model = models.CharField(max_length=100, blank=True, help_text="Only calls of this model. Empty: of every model.")
    project = models.CharField(
        max_length=MAX_NAME_LENGTH,
        blank=True,
        default="",
        db_default="",
        help_text="Only calls of this project's jobs. Empty: of every project's.",
    )
    kind = models.CharField(
        max_length=MAX_NAME_LENGTH,
        blank=True,
        default="",
        db_default="",
        help_text="Only calls in flight of jobs of this kind. Empty: of every kind.",
    )
    per_model = models.BooleanField(default=False, help_text="The provider counts each model by itself.")
    unit = models.CharField(max_length=20, choices=Unit, default=Unit.REQUESTS)
    counts_cached = models.BooleanField(
        default=True,
        db_default=True,
        help_text="Of input tokens: those read from a cache count, too. Off for Anthropic, where they are free.",
    )
    reserves = models.CharField(
        max_length=4,
        choices=Reserves,
        default=Reserves.USED,
        db_default=Reserves.USED,
        help_text="Of tokens and output tokens, what the provider counts of a call: what it uses, so that the rest of"
        " its estimate comes back when it ends, or all of its max_output_tokens from the start.",
    )
    algorithm = models.CharField(max_length=14, choices=Algorithm, default=Algorithm.SLIDING_WINDOW)
    capacity = models.FloatField(
        validators=[MinValueValidator(0)],
        help_text="In the limit's unit: a window's cap, a bucket's burst, or calls in flight. 0 rejects every call.",
    )
    refill_per_second = models.FloatField(
        null=True, blank=True, validators=[MinValueValidator(0.000001)], help_text="Of a bucket."
    )
    window_seconds = models.FloatField(
        null=True, blank=True, default=60, validators=[MinValueValidator(0.001)], help_text="Of a window."
    )
    provider_quota = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="What the provider allows in a window. A bucket is held against it: burst + window x rate.",
    )
    slack_seconds = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="How much later than others a call may arrive. Empty: half a second for a minute.",
    )
    reset_zone = models.CharField(
        max_length=64, blank=True, help_text="Time zone at whose midnight a daily quota is reset: America/Los_Angeles."
    )
    guard_seconds = models.FloatField(
        default=0.5,
        validators=[MinValueValidator(0)],
        help_text="Calls this close to a reset count before and after it: clocks differ.",
    )
    lease_seconds = models.FloatField(
        default=600,
        validators=[MinValueValidator(1)],
        help_text="A call in flight frees its place by itself after so long. Longer than the longest call.",
    )
    headroom_percent = models.FloatField(
        default=0,
        validators=[MinValueValidator(0), MaxValueValidator(99)],
        help_text="Left unused, for programs that share the quota without asking here.",
    )
    notice_percent = models.PositiveSmallIntegerField(default=60, validators=[MaxValueValidator(100)])
    warning_percent = models.PositiveSmallIntegerField(default=80, validators=[MaxValueValidator(100)])
    clears_late_seconds = models.PositiveIntegerField(
        default=3600, help_text="A queue behind the limit that takes longer than this to clear is a warning."
    )
    fail_open = models.BooleanField(
        default=False, help_text="Calls proceed while the limiter's database is out of reach. Off: they are deferred."
    )
    shadow = models.BooleanField(
        default=False,
        help_text="Counts and reports what it would refuse, but blocks nothing. Only a provider's refusal holds calls"
        " back for a while.",
    )
    enabled = models.BooleanField(default=True)
    learns_caps = models.BooleanField(
        default=False, help_text="A cap that the provider states is taken over at once. Off: it waits for an operator."
    )
    proposed_at = models.DateTimeField(
        null=True, editable=False, help_text="When a refusal last asked for it; null once somebody has changed it."
    )
    proposed_reserves = models.CharField(
        max_length=4,
        default="",
        db_default="",
        editable=False,
        help_text="What refusals show that the provider counts; empty once somebody has changed the limit.",
    )
    note = models.TextField(blank=True, help_text="Where the figure comes from; who confirmed it.")
    updated_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ("service", "name")
        permissions: ClassVar = [
            ("steer_counter", "Can clear and cool down counters"),
            ("acknowledge_alert", "Can acknowledge alerts"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(notice_percent__lte=models.F("warning_percent")), name="limit_thresholds_ascend"
            )
        ]

    def __str__(self) -> str:
        return self.name


class LimitOverride(models.Model):
    """Another capacity for one key of a limit."""

    limit = models.ForeignKey(Limit, models.CASCADE, related_name="overrides")
    key = models.CharField(
        max_length=MAX_KEY_LENGTH, help_text="As the counter shows it: project:acme, or project:acme/user:…"
    )
    capacity = models.FloatField(validators=[MinValueValidator(0)])
    refill_per_second = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0.000001)])
    note = models.TextField(blank=True)
    ends_at = models.DateTimeField(
        null=True, blank=True, help_text="From then on the key has again what it had. Empty: it stays."
    )
    # The figures that hold after its end: capacity, refill_per_second, note. Null: the limit's own figures.
    comes_back_to = models.JSONField(null=True, editable=False)

    class Meta:
        ordering = ("limit", "key")
        constraints: ClassVar = [models.UniqueConstraint(fields=["limit", "key"], name="limit_override_once")]

    def __str__(self) -> str:
        return f"{self.limit} {self.key}"


class Counter(models.Model):
    """
    The live state of one limit for one key. Only `ratelimits.limiter.decide` and its neighbours write it.

    `id` is `<limit>:<key>`. Every transaction locks counters in the order of their ids.
    """

    id = models.CharField(primary_key=True, max_length=MAX_ID_LENGTH)
    limit = models.ForeignKey(Limit, models.CASCADE, related_name="counters", db_constraint=False, db_index=False)
    key = models.CharField(max_length=MAX_KEY_LENGTH)
    state = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    blocked_until = models.DateTimeField(null=True, help_text="A cool-down after the provider pushed back, or by hand.")
    blocked_reason = models.CharField(max_length=200, default="", db_default="")
    pressure = models.FloatField(default=1, db_default=1, help_text="The part of the cap in use since a push-back.")
    pressure_changed_at = models.DateTimeField(null=True)
    proposed_capacity = models.FloatField(null=True, help_text="What the provider says this key's cap is.")
    proposed_at = models.DateTimeField(null=True)
    pressure_before = models.FloatField(default=1, db_default=1, help_text="Before the refusals that led to it.")
    alert_level = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="The highest threshold in percent whose alert is open."
    )
    shadow_denials = models.PositiveBigIntegerField(default=0, db_default=0)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions: ClassVar = []

    def __str__(self) -> str:
        return self.id
