"""
The settings that the server behind a credential takes, unlike other servers of its kind.

A setting is learned from a refusal that names a field, for one credential, address and model. It is stored as a row
that operators see and may delete. A process uses its own lessons from the next call on, and other processes' lessons
once it has read their rows.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import NamedTuple

from cachetools import TTLCache

from queueops.audit import trail
from queueops.tenancy.models import Credential, CredentialSetting

KEPT_SECONDS = 60.0  # how long a process uses a setting that it learned, even if the row is deleted
MAX_LESSONS = 1_000  # bounded, because payloads may name any number of models
MAX_OF_A_CREDENTIAL = 100
MAX_OF_A_LESSON = 500

logger = logging.getLogger(__name__)


class SettingPlace(NamedTuple):
    """The server and model about which something was learned."""

    credential: str
    base_url: str
    model: str


_lock = threading.Lock()
_noted: deque[tuple[SettingPlace, str, str]] = deque(maxlen=MAX_LESSONS)
_own: TTLCache[SettingPlace, frozenset[str]] = TTLCache(MAX_LESSONS, KEPT_SECONDS)


def note(place: SettingPlace, takes: str, reason: str) -> None:
    """
    Use a setting from the next call on, and have `write_noted` store it. Needs no database.

    Args:
        takes: One of `CredentialSetting.Takes`.
        reason: What the server said; nothing secret.
    """
    with _lock:
        _own[place] = _own.get(place, frozenset()) | {takes}
        _noted.append((place, takes, reason[:MAX_OF_A_LESSON]))


def noted_here(place: SettingPlace) -> frozenset[str]:
    """Return what this process has learned lately, whether or not it is stored."""
    with _lock:
        return _own.get(place, frozenset())


def write_noted() -> int:
    """
    Store what was learned, each setting by a statement of its own. Returns how many rows are new.

    A credential that has MAX_OF_A_CREDENTIAL rows gets no more.
    """
    written = 0
    while _noted:
        place, takes, reason = _noted.popleft()
        credential = Credential.objects.filter(name=place.credential, base_url=place.base_url).only("pk").first()
        if credential is None or credential.settings.count() >= MAX_OF_A_CREDENTIAL:
            continue
        _, is_new = CredentialSetting.objects.get_or_create(
            credential=credential,
            base_url=place.base_url,
            model=place.model,
            takes=takes,
            defaults={"reason": reason, "is_learned": True},
        )
        if is_new:
            written += 1
            logger.warning("credential %s, model %s: its server takes %s", place.credential, place.model, takes)
            trail.record(
                actor="system",
                action="learn_credential_setting",
                target=f"credential {place.credential}",
                after={"base_url": place.base_url, "model": place.model, "takes": takes},
                reason=reason,
            )
    return written


def forget() -> None:
    """Forget what this process has learned, stored or not."""
    with _lock:
        _noted.clear()
        _own.clear()
