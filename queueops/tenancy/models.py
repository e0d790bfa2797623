"""The owners of work: projects and the keys their producers hold."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import OpClass
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models.functions import Now, Upper

from queueops.core import clock
from queueops.core.sealing import payload_keys

MAX_GUARDED = 1_000  # the most jobs on which a batch's guard decides
MAX_LABEL_LENGTH = 100  # characters of a user's label
USER_PLACE = "{user_id}"  # where the user's id belongs in a project's `user_address`
PLATFORM = "queueops-alerts"  # the project of the platform's own jobs, which tell people of alerts
KEY_PREFIX = "qo_"
KEY_PREFIX_LENGTH = 11  # "qo_" and 8 characters: enough to recognise a key, useless for guessing it

PROJECT_ID = re.compile(r"^[a-z0-9][a-z0-9._-]{0,62}\Z")

project_id_rule = RegexValidator(
    PROJECT_ID.pattern,
    "Use 1 to 63 lower-case letters, digits, dots, dashes or underscores; begin with a letter or digit.",
)


class Scope(models.TextChoices):
    READ = "read", "read jobs and batches"
    SUBMIT = "submit", "submit and cancel work"
    OPERATE = "operate", "steer and requeue work"
    DECIDE = "decide", "ask the limiter for calls of its own"
    LIMITS = "limits", "give its project capacities of its own"
    USAGE = "usage", "reserve and report usage of allowances"
    AUDIT = "audit", "read its project's audit trail"


# Scopes that an end user can be given: all others concern the whole project.
USER_SCOPES = (Scope.READ, Scope.SUBMIT, Scope.USAGE)


def default_scopes() -> list[str]:
    return [Scope.READ.value, Scope.SUBMIT.value]


def default_user_scopes() -> list[str]:
    return [Scope.READ.value, Scope.USAGE.value]


class ProjectMove(models.TextChoices):
    """How far a project's move to another installation has come; see queueops/site/moving/move.py."""

    NONE = "", "lives here"
    MOVING = "moving", "being moved"
    MOVED = "moved", "moved"


class Project(models.Model):
    """One tenant, the owner of jobs, keys and limits. Projects take turns."""

    id = models.CharField(primary_key=True, max_length=63, validators=[project_id_rule], help_text="Never changes.")
    name = models.CharField(max_length=200)
    weight = models.FloatField(
        default=1.0,
        db_default=1.0,
        validators=[MinValueValidator(0.01)],
        help_text="Turns relative to the other projects: 2 gets twice the turns of 1.",
    )
    max_waiting_jobs = models.PositiveIntegerField(
        default=5_000_000,
        db_default=5_000_000,
        help_text="Submissions beyond this many unfinished jobs are refused with 429.",
    )
    anonymous_read = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Everybody may read this project's jobs and batches, without a key and without signing in.",
    )
    guard_percent = models.PositiveSmallIntegerField(
        "batches stop at",
        default=20,
        db_default=20,
        validators=[MaxValueValidator(100)],
        help_text="Percent of a batch's first jobs that fail for good with one code: then it pauses itself. 0: never. "
        "Whoever submits a batch may say otherwise.",
    )
    guard_first = models.PositiveSmallIntegerField(
        "of their first",
        default=50,
        db_default=50,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_GUARDED)],
        help_text="Jobs that have ended. Until then at most twice as many of the batch are let go.",
    )
    guard_over = models.PositiveIntegerField(
        "where they have more than",
        default=200,
        db_default=200,
        help_text="Jobs. Smaller batches stop by themselves only if whoever submits them says so.",
    )
    user_address = models.CharField(
        max_length=500,
        blank=True,
        default="",
        db_default="",
        validators=[
            RegexValidator(
                r"^https?://[^\s{}]+\{user_id\}[^\s{}]*\Z",
                "An http or https address with {user_id} where the user's id belongs.",
            )
        ],
        help_text="Where your own pages show an end user: https://app.example.org/users/{user_id}. Pages link there.",
    )
    encrypted = models.BooleanField(
        "encrypt payloads",
        default=False,
        db_default=False,
        help_text="Payloads, results and what carries pieces of them cannot be read in a dump of the database, and "
        "jobs are not found by fields of their payload. For what is stored already run manage.py encrypt_payloads.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    move = models.CharField(max_length=6, choices=ProjectMove, blank=True, default="", db_default="", editable=False)
    move_target = models.CharField(
        max_length=16, default="", db_default="", editable=False, help_text="The other installation's epoch."
    )
    moved_to = models.CharField(
        max_length=500, default="", db_default="", editable=False, help_text="The other installation's address."
    )

    class Meta:
        ordering = ("id",)
        permissions = [("decrypt_project", "Can read what is encrypted of projects")]
        constraints = [models.CheckConstraint(condition=models.Q(weight__gt=0), name="project_weight_positive")]

    def __str__(self) -> str:
        return self.id

    def clean(self) -> None:
        if not self.encrypted:
            return
        if self.anonymous_read:
            raise ValidationError({"encrypted": "Everybody may read this project: there is nothing to hide."})
        if self.pk == PLATFORM:
            raise ValidationError({"encrypted": "The platform finds its own jobs by their payloads."})
        if not payload_keys():
            raise ValidationError({"encrypted": "There is no key: set QUEUEOPS_PAYLOAD_KEYS on every host first."})


class UserLabel(models.Model):
    """Operators' name for an end user of a project: the last label that a submission gave."""

    pk = models.CompositePrimaryKey("project", "user_id")
    project = models.ForeignKey(Project, models.CASCADE, db_index=False, related_name="+")
    user_id = models.UUIDField()
    label = models.CharField(max_length=MAX_LABEL_LENGTH)

    class Meta:
        indexes = [
            # Finds a label by its beginning, however many users there are.
            models.Index(OpClass(Upper("label"), name="text_pattern_ops"), name="tenancy_userlabel_find_idx"),
        ]

    def __str__(self) -> str:
        return self.label


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a key in hex. The key has 32 random bytes, so a slow hash would add no protection."""
    return hashlib.sha256(secret.encode()).hexdigest()


class ProducerKeyQuerySet(models.QuerySet["ProducerKey"]):
    def usable(self) -> ProducerKeyQuerySet:
        """Return the keys that are not revoked and, by the database's clock, not expired."""
        return self.filter(revoked_at=None).filter(models.Q(expires_at=None) | models.Q(expires_at__gt=clock.Now()))


class ProducerKey(models.Model):
    """An API key of one project. Only its digest is stored; the key itself is shown once, when issued."""

    project = models.ForeignKey(Project, models.CASCADE, related_name="keys")
    name = models.CharField(max_length=200, help_text="Who or what uses it.")
    prefix = models.CharField(max_length=16, editable=False, help_text="The key's first characters, to recognise it.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope.choices), default=default_scopes)
    requests_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="To one web process. Empty: QUEUEOPS_REQUESTS_PER_MINUTE.",
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="To the minute.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    shown_secret: str  # a new key's text, until its page has shown it

    objects = ProducerKeyQuerySet.as_manager()

    class Meta:
        ordering = ("project_id", "name")
        constraints = [
            models.CheckConstraint(condition=models.Q(requests_per_minute__gt=0), name="producerkey_rate_positive")
        ]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"

    @classmethod
    def issue(cls, project: Project, **fields: Any) -> tuple[ProducerKey, str]:
        """
        Make and store a new key.

        Returns:
            The row, and the key's text, which cannot be seen again.
        """
        cell = f"{settings.QUEUEOPS.cell}_" if settings.QUEUEOPS.cell else ""
        secret = KEY_PREFIX + cell + secrets.token_urlsafe(32)
        shown = secret[: KEY_PREFIX_LENGTH + len(cell)]
        key = cls.objects.create(project=project, prefix=shown, digest=digest_of(secret), **fields)
        return key, secret


class Issuer(models.Model):
    """
    A signer of tokens for a project's end users, and how its tokens are checked.

    Tokens are signed either with keys that the issuer publishes (`jwks_url`: RS256 or ES256), or with a secret that
    both sides know (HS256). See queueops/tenancy/callers/tokens.py and issuer_keys.py.
    """

    project = models.ForeignKey(Project, models.CASCADE, related_name="issuers")
    name = models.CharField(max_length=200, help_text="Which app or service it is.")
    issuer = models.CharField(max_length=500, unique=True, help_text="Exactly as the tokens say it in their iss.")
    audiences = ArrayField(
        models.CharField(max_length=200), help_text="One of them must be in a token's aud. Separated by commas."
    )
    jwks_url = models.URLField(
        max_length=500, blank=True, help_text="Where its public keys are: tokens are signed with RS256 or ES256."
    )
    secret = models.BinaryField(null=True, editable=False)  # Fernet token, see queueops/tenancy/secrets/credentials.py
    leeway_seconds = models.PositiveSmallIntegerField(
        default=30,
        validators=[MaxValueValidator(300)],
        help_text="How far its clock may be off. A token is accepted so much longer than it says.",
    )
    scopes = ArrayField(
        models.CharField(max_length=16, choices=[(scope.value, scope.label) for scope in USER_SCOPES]),
        default=default_user_scopes,
        help_text="What its users may do, each with what is their own.",
    )
    enabled = models.BooleanField(default=True, help_text="Off: its tokens are refused from the next request on.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    rotated_at = models.DateTimeField(null=True, editable=False)

    jwks = models.JSONField(default=list, editable=False, help_text="The public keys that were fetched last.")
    jwks_fetched_at = models.DateTimeField(null=True, editable=False)
    jwks_tried_at = models.DateTimeField(null=True, editable=False)
    jwks_error = models.CharField(max_length=300, blank=True, editable=False, help_text="Of the last try; empty: none.")

    class Meta:
        ordering = ("project_id", "name")
        permissions = [("try_issuer", "Can fetch an issuer's keys and try tokens")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(jwks_url="", secret__isnull=False) | ~models.Q(jwks_url="") & models.Q(secret=None),
                name="issuer_one_kind_of_key",
            ),
            models.CheckConstraint(condition=models.Q(leeway_seconds__lte=300), name="issuer_leeway_bounded"),
            models.CheckConstraint(condition=models.Q(audiences__len__gt=0), name="issuer_names_an_audience"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.project_id})"


class Placement(models.TextChoices):
    """Where `http.request` puts a credential's secret."""

    BEARER = "bearer", "Authorization: Bearer"
    BASIC = "basic", "Authorization: Basic, with username and password"
    HEADER = "header", "a header of its own"
    QUERY = "query", "a parameter of the URL"


class Credential(models.Model):
    """
    A secret that a handler shows to a provider, encrypted at rest; and the account that the provider counts the call
    for.

    Two projects that use one credential share its quotas, because its quota project and user name the counters.
    """

    name = models.SlugField(max_length=100, unique=True, help_text="How payloads name it.")
    service = models.CharField(max_length=64, help_text="The external API it opens: google-sheets, gemini.")
    projects = models.ManyToManyField(Project, blank=True, help_text="Who may use it. Empty: nobody.")
    quota_project = models.CharField(
        max_length=100, blank=True, help_text="The provider's project that pays. Empty: the job's own project."
    )
    quota_user = models.CharField(
        max_length=100, blank=True, help_text="The provider's user, such as a service account. Empty: the job's user."
    )
    secret = models.BinaryField(editable=False)  # Fernet token, see queueops/tenancy/secrets/credentials.py
    base_url = models.URLField(
        blank=True, help_text="Another address than the service's public one, such as a gateway or the sandbox."
    )
    hosts = ArrayField(
        models.CharField(max_length=253),
        default=list,
        db_default=[],
        blank=True,
        help_text="Where http.request may send it: api.example.org, or *.example.org for all names below that. "
        "Separated by commas. Empty: nowhere.",
    )
    placement = models.CharField(
        "shown as", max_length=8, choices=Placement, default=Placement.BEARER, db_default=Placement.BEARER
    )
    placement_name = models.CharField(
        "header or parameter",
        max_length=100,
        blank=True,
        default="",
        db_default="",
        help_text="Its name, where it is shown in one: X-Api-Key.",
    )
    oauth_scopes = models.CharField(
        "OAuth scopes",
        max_length=1_000,
        blank=True,
        default="",
        db_default="",
        help_text="Of a Google service account, separated by spaces. Empty: https://www.googleapis.com/auth/cloud-platform",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    rotated_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class CredentialSetting(models.Model):
    """
    A setting that the server behind a credential takes, unlike other servers of its kind.

    Attributes:
        base_url: The credential's address when this was learned. At another address the setting is ignored.
        reason: What the server said.
    """

    class Takes(models.TextChoices):
        MAX_TOKENS = "max_tokens", "the most output as max_tokens"
        MAX_COMPLETION_TOKENS = "max_completion_tokens", "the most output as max_completion_tokens"
        NO_STREAM_OPTIONS = "no_stream_options", "no stream_options"
        NO_BATCHES = "no_batches", "no batches"

    credential = models.ForeignKey(Credential, models.CASCADE, related_name="settings", db_index=False)
    base_url = models.URLField(blank=True, editable=False)
    model = models.CharField(max_length=100, blank=True, help_text="Empty: every model.")
    takes = models.CharField(max_length=30, choices=Takes)
    reason = models.CharField(max_length=500, blank=True, editable=False)
    is_learned = models.BooleanField(default=False, db_default=False, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ("model", "takes")
        constraints = [
            models.UniqueConstraint(fields=["credential", "base_url", "model", "takes"], name="credentialsetting_once")
        ]

    def __str__(self) -> str:
        return f"{self.credential}: {self.model or 'every model'} takes {self.get_takes_display()}"


class CredentialPool(models.Model):
    """
    Several credentials of one service: each call shows one of them. A payload names a pool as it names a credential.

    The member is chosen when a job is claimed: see ratelimits/limits/alternatives.py.
    """

    name = models.SlugField(
        max_length=95, unique=True, help_text="How payloads name it. No credential may have the same name."
    )
    service = models.CharField(max_length=64, help_text="The external API that all its members open.")
    projects = models.ManyToManyField(Project, blank=True, help_text="Who may use it. Empty: nobody.")
    hosts = ArrayField(
        models.CharField(max_length=253),
        default=list,
        db_default=[],
        blank=True,
        help_text="Where http.request may send its keys; each member names these hosts, too. Separated by commas. "
        "Empty: nowhere.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ("name",)
        permissions = [("reinstate_credentialpool", "Can put credentials back into their pool")]

    def __str__(self) -> str:
        return self.name


class CredentialPoolMember(models.Model):
    """A credential of a pool. Its refusals decide whether calls may show it: credential_pools/refusals.py."""

    pool = models.ForeignKey(CredentialPool, models.CASCADE, related_name="members")
    credential = models.ForeignKey(Credential, models.PROTECT, related_name="memberships")
    weight = models.FloatField(
        default=1.0,
        db_default=1.0,
        validators=[MinValueValidator(0.01)],
        help_text="How much of its quota is used before others': 2 gets twice the share of 1.",
    )

    class Meta:
        ordering = ("pool_id", "pk")
        constraints = [
            models.UniqueConstraint(fields=["pool", "credential"], name="credentialpoolmember_once"),
            models.CheckConstraint(condition=models.Q(weight__gt=0), name="credentialpoolmember_weight_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.credential} of {self.pool}"


class CredentialRefusal(models.Model):
    """
    A provider's refusal of one of a pool's credentials, in the call of a job.

    Attributes:
        of_project: The job's project.
        call: The claimed job, if the refused job left with it in one call; otherwise the refused job itself.
        times: How many refusals the row counts. A refusal of the whole account counts as CALLS_OF_EVIDENCE.
        disproved: The refusal no longer counts against the credential. A later call with it was accepted, the job
            failed by its own fault, or a person replaced the secret or reinstated the credential.
        tried_at: When a call was let through to try the credential; noted in the credential's last refusal.
    """

    credential = models.ForeignKey(Credential, models.CASCADE, related_name="refusals", db_index=False)
    of_project = models.CharField(max_length=63)
    job = models.UUIDField(db_index=True)
    call = models.UUIDField()
    times = models.PositiveIntegerField(default=1, db_default=1)
    reason = models.CharField(max_length=500, blank=True)
    disproved = models.BooleanField(default=False, db_default=False)
    refused_at = models.DateTimeField(db_default=Now())
    tried_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["credential", "job"], name="credentialrefusal_once"),
        ]
        indexes = [
            models.Index(
                fields=["credential"], condition=models.Q(disproved=False), name="credentialrefusal_counts_idx"
            ),
            models.Index(fields=["refused_at"], name="credentialrefusal_age_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.credential} to job {self.job}"


class SecretKeyCanary(models.Model):
    """One row: a text signed with the secret key of this database's installation; see secrets/secret_key.py."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    signed = models.TextField(editable=False)
    signed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(pk=1), name="secret_key_canary_is_one_row")]

    def __str__(self) -> str:
        return f"signed {self.signed_at}"
