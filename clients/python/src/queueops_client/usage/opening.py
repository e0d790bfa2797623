"""Makes a tracker's Desk from the tracker's arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from queueops_client.errors import BadConfiguration
from queueops_client.transport import base_url_of
from queueops_client.usage.clock import ServerClock
from queueops_client.usage.desk import Desk
from queueops_client.usage.file import default_path
from queueops_client.usage.identity import is_key, user_of
from queueops_client.usage.outbox import Outbox
from queueops_client.usage.policies import Amount, Policy, Rules


def open_desk(
    base_url: str,
    token: str | None,
    *,
    user_id: UUID | str | None,
    path: Path | str | None,
    policy: Policy | str,
    threshold: Amount,
    credit: Amount | None,
    max_rows: int,
    clock: Callable[[], float],
) -> Desk:
    """
    Args:
        token: The token; None: it is not known yet.

    Raises:
        BadConfiguration
        OutboxFailed
    """
    try:
        rules = Rules(Policy(policy), threshold, credit)
        user = None if user_id is None else str(UUID(str(user_id)))
    except ValueError as error:
        raise BadConfiguration(str(error)) from None
    acts_for_many = token is not None and is_key(token)
    if user is None and not acts_for_many:
        if token is None:
            raise BadConfiguration("Give user_id where the token comes from an asynchronous function.")
        user = user_of(token)
    server_clock = ServerClock(clock)
    file = default_path(base_url_of(base_url)) if path is None else Path(path).absolute()
    return Desk(
        Outbox(file, clock=server_clock, max_rows=max_rows),
        server_clock,
        rules,
        user_id=user,
        only_user=None if acts_for_many else user,
    )
