"""How people sign in."""

from dataclasses import dataclass
from typing import ClassVar

from queueops.core.values import parse

from .setting import setting


@dataclass(frozen=True, kw_only=True)
class SigningInSettings:
    section: ClassVar[str] = "Signing in"

    second_factor: str = setting(
        "`required`: everybody who is staff signs in with a second factor, and sets one up the next time. `optional`: "
        "only those who set one up.",
        parse.one_of("optional", "required"),
        default="optional",
    )
    lockout_failures: int = setting(
        "So many failures of one account from one address lock both together; as many wrong codes lock the account, "
        "as many wrong producer keys the address.",
        parse.integer(1, 1000),
        default=5,
    )
    lockout_account_failures: int = setting(
        "So many failures of one account from all addresses together lock the account.",
        parse.integer(1, 100_000),
        default=25,
    )
    lockout_minutes: int = setting(
        "For how long a failure counts, and how long a lock lasts.",
        parse.integer(1, 10_080),
        default=15,
    )
    session_idle_minutes: int = setting(
        "A session that was not used for so many minutes is over. A page that only listens does not use it.",
        parse.integer(5, 43_200),
        default=240,
    )
    session_hours: int = setting(
        "A session is over after so many hours, used or not.",
        parse.integer(1, 720),
        default=24,
    )
    password_sign_in: str = setting(
        "`superusers`: nobody else signs in to the admin with a password; for installations whose people come from a "
        "provider. `everybody`: whoever has one.",
        parse.one_of("everybody", "superusers"),
        default="everybody",
    )


@dataclass(frozen=True, kw_only=True)
class SingleSignOnSettings:
    section: ClassVar[str] = "Single sign-on"

    oidc_issuer: str = setting(
        "The OpenID Connect provider that vouches for staff, to the letter as its discovery document has it in "
        "`issuer`. Needs `queueops[oidc]`.",
        parse.ISSUER,
        default="",
        shown_default="unset: no single sign-on",
    )
    oidc_private_targets: tuple[str, ...] = setting(
        "Hosts and networks (CIDR) of a private network that the provider's addresses may lead to, beside the issuer's "
        "own host. Public addresses need none.",
        parse.PRIVATE_TARGETS,
        default=(),
        shown_default="the issuer's host alone",
    )
    oidc_client_id: str = setting(
        "What the provider knows this installation by. Required with an issuer.",
        parse.text(),
        default="",
        shown_default="unset",
    )
    oidc_client_secret: str = setting(
        "What this installation proves that with; unset for a public client, which PKCE alone protects.",
        parse.text(),
        default="",
        shown_default="unset",
        secret=True,
    )
    oidc_name: str = setting(
        "What people call the provider: the button says “Sign in with …”.",
        parse.text(),
        default="single sign-on",
    )
    oidc_scopes: tuple[str, ...] = setting(
        "What is asked of the provider; `openid` must be among it.",
        parse.WORDS,
        default=("openid", "profile", "email"),
    )
    oidc_audiences: tuple[str, ...] = setting(
        "An ID token must be meant for one of these (`aud`).",
        parse.WORDS,
        default=(),
        shown_default="the client id",
    )
    oidc_group_claim: str = setting(
        "The claim that names somebody's groups: a list, or one text. Dots lead into objects: `realm_access.roles`.",
        parse.text(),
        default="groups",
    )
    oidc_roles: tuple[tuple[str, str], ...] = setting(
        "Which role each of the provider's groups gives, separated by semicolons. Who is in none of them is not let "
        "in. Required with an issuer.",
        parse.GROUP_ROLES,
        default=(),
        shown_default="unset",
    )
    oidc_link_by_email: bool = setting(
        "Who comes for the first time gets the account here that has the same e-mail address, if the provider says "
        "that it is verified; never a superuser's. Off: always an account of their own.",
        parse.BOOLEAN,
        default=False,
    )
    oidc_second_factor: tuple[str, ...] = setting(
        "Values of the claim `amr` that show that the provider has asked for a second factor, so that none is asked "
        "for here. `*`: it always does; `never`: it is always asked for here.",
        parse.WORDS,
        default=("mfa",),
    )
