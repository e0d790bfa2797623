"""The rows for signing in: authenticators, passkeys, recovery codes, and counts of failed attempts."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import models
from django.db.models.functions import Now

from queueops.tenancy.models import Project


class Authenticator(models.Model):
    """Somebody's second factor: an app that shows a code which changes with the time (TOTP, RFC 6238)."""

    user = models.OneToOneField(User, models.CASCADE, related_name="authenticator")
    secret = models.BinaryField(editable=False)  # Fernet token, see queueops/tenancy/secrets/credentials.py
    last_step = models.BigIntegerField(editable=False, help_text="Of the newest code used: none is taken twice.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    rotated_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        default_permissions = ()
        permissions = [
            ("reset_authenticator", "Can take away somebody's second factor"),
            ("invite_user", "Can invite people, with roles that hold no more than their own"),
        ]

    def __str__(self) -> str:
        return f"second factor of {self.user.get_username()}"


class Passkey(models.Model):
    """A second factor that proves itself to this host alone (WebAuthn): a phone, a computer or a security key."""

    user = models.ForeignKey(User, models.CASCADE, related_name="passkeys")
    name = models.CharField(max_length=60)
    credential = models.BinaryField(editable=False, unique=True, help_text="Its id, and the public key.")
    sign_count = models.BigIntegerField(editable=False, help_text="Of its newest use; many always say 0.")
    challenge = models.CharField(max_length=64, blank=True, editable=False, help_text="Digest of the last one it met.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        default_permissions = ()
        ordering = ("pk",)

    def __str__(self) -> str:
        return self.name


class RecoveryCode(models.Model):
    """A code that can be used once instead of a code of the app. Only its digest is stored."""

    authenticator = models.ForeignKey(Authenticator, models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64, editable=False)
    used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["authenticator", "digest"], name="access_recoverycode_digest")]

    def __str__(self) -> str:
        return f"recovery code {self.pk}"


class Identity(models.Model):
    """An account's identity at a provider (OpenID Connect). Unlike the name or address there, it never changes."""

    user = models.ForeignKey(User, models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=500, editable=False)
    subject = models.CharField(max_length=255, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        default_permissions = ()
        verbose_name_plural = "identities"
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="access_identity_subject")]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class PersonalToken(models.Model):
    """
    The token of an assistant that acts for a staff member, with the permissions of their role. Only its digest is
    stored.
    """

    user = models.ForeignKey(User, models.CASCADE, related_name="personal_tokens", editable=False)
    name = models.CharField(max_length=200, help_text="Who or what uses it.")
    project = models.ForeignKey(
        Project,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="The only project that it opens. Empty: all that your role shows.",
    )
    prefix = models.CharField(max_length=16, editable=False, help_text="Its first characters, to recognise it.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    expires_at = models.DateTimeField(help_text="At most 90 days ahead.")
    revoked_at = models.DateTimeField(null=True, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False, help_text="To the minute.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    shown_secret: str  # a new token's text, until its page has shown it

    class Meta:
        ordering = ("-pk",)
        default_permissions = ("view", "add")
        permissions = [("revoke_personaltoken", "Can revoke everybody's personal tokens")]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"


class SignInCount(models.Model):
    """How often signing in failed lately; written by services/guard.py alone."""

    class Purpose(models.TextChoices):
        PASSWORD = "password"  # noqa: S105 - a word, not a password
        CODE = "code", "code of the second factor"
        KEY = "key", "producer key"

    purpose = models.CharField(max_length=16, choices=Purpose.choices)
    account = models.CharField(
        max_length=150, blank=True, help_text="A name that nobody has is kept as a digest: people mistype passwords."
    )
    address = models.CharField(
        max_length=64,
        blank=True,
        help_text="Empty: from every address together.",
    )
    failures = models.PositiveIntegerField()
    forget_at = models.DateTimeField(help_text="Then it counts for nothing, and what it locked is open again.")

    class Meta:
        default_permissions = ("view",)
        permissions = [("unlock_signincount", "Can unlock somebody's sign-in")]
        verbose_name = "failed sign-in"
        constraints = [
            models.UniqueConstraint(fields=["purpose", "account", "address"], name="access_signincount_identity")
        ]
        indexes = [models.Index(fields=["forget_at"], name="access_signincount_forget_idx")]

    def __str__(self) -> str:
        return f"{self.account or self.address} ({self.get_purpose_display()})"
