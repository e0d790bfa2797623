"""The server's end of a websocket: signs the client in, opens the subject, writes to the client and reads from it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import Error as DatabaseError

from queueops.core.web.client_address import address_in
from queueops.tenancy.callers.issuer_keys import IssuerKeysUnavailable
from queueops.tenancy.callers.throttles import bad_keys
from queueops.tenancy.callers.tokens import ExpiredToken
from queueops.tenancy.models import project_id_rule

from .events import EventFilter
from .hub import the_hub
from .messages import MAX_CLIENT_BYTES, MAX_SIGN_IN_BYTES, SUBPROTOCOL, CloseCode, error
from .origin import Origin, cookies_of, origin_of
from .socket import LiveSocket
from .subjects import LiveSubject, Refused, open_batch, open_job, open_me, open_ops
from .threads import in_thread
from .viewer import Viewer, narrowed, viewer_of_cookies, viewer_of_key, viewer_of_token

logger = logging.getLogger(__name__)

SIGN_IN_SECONDS = 5.0
MAX_MESSAGES_PER_SECOND = 600  # of one client; more than MESSAGE_WINDOW, since clients may acknowledge each message
RESUME_SECONDS = 1.0  # between two resumes of a socket

Opener = Callable[[Viewer], LiveSubject]


class LiveConsumer(AsyncWebsocketConsumer):
    """One socket; see docs/reference/live-protocol.md. The subclasses say which subject it opens."""

    def __init__(self) -> None:
        super().__init__()
        self.socket: LiveSocket | None = None
        self.is_closing = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.sign_in_by: asyncio.TimerHandle | None = None
        self.heard: list[float] = [0.0, 0]
        self.address = ""
        self.resumed_at = float("-inf")

    def opener(self) -> Opener:
        raise NotImplementedError

    async def dispatch(self, message: Mapping[str, Any]) -> None:
        # The inherited method would close old database connections in a thread before each message. That thread opens
        # no connections here.
        await getattr(self, message["type"].replace(".", "_"))(message)

    async def connect(self) -> None:
        origin = origin_of(self.scope)
        if origin == Origin.FOREIGN:
            await self.close()
            return
        await self.accept(SUBPROTOCOL if SUBPROTOCOL in self.scope["subprotocols"] else None)
        self.address = address_in(self.scope)
        the_hub().strangers.enter(self.address, self.put_out)
        cookies = cookies_of(self.scope) if origin == Origin.OURS else {}
        if cookies:
            await self.open(partial(viewer_of_cookies, cookies), may_fail=True)
        if self.socket is None and not self.is_closing:
            self.sign_in_by = asyncio.get_running_loop().call_later(SIGN_IN_SECONDS, self.give_up)

    async def disconnect(self, code: int) -> None:
        self.end()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.is_closing:
            return
        try:
            await self.hear(self.parsed(text_data))
        except Refused as refused:
            await self.refuse(refused.refusal, refused.detail)
        except DatabaseError:
            await self.refuse(CloseCode.UNAVAILABLE, "The database does not answer; try again.")

    def parsed(self, text: str | None) -> dict[str, Any]:
        """
        Raises:
            Refused: The text is not JSON as the protocol defines it, or is too long, or messages come too fast.
        """
        second = time.monotonic() // 1
        self.heard = [second, self.heard[1] + 1 if self.heard[0] == second else 1]
        if self.heard[1] > MAX_MESSAGES_PER_SECOND:
            raise Refused(CloseCode.TOO_MANY, "Too many messages.")
        limit = MAX_CLIENT_BYTES if self.socket else MAX_SIGN_IN_BYTES
        if text is None or len(text) > limit:
            raise Refused(CloseCode.BAD_MESSAGE, f"Send JSON as text, at most {limit} bytes.")
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise Refused(CloseCode.BAD_MESSAGE, "Send a JSON object.")
        return message

    async def hear(self, message: dict[str, Any]) -> None:
        """
        Raises:
            Refused
        """
        if self.socket is None:
            await self.sign_in(message.get("auth"))
            return
        self.socket.hear()
        epoch = message.get("epoch")
        if "ack" in message and not self.socket.acknowledge(_cursor(message["ack"]), epoch):
            raise Refused(CloseCode.BAD_MESSAGE, "No message had this cursor yet.")
        if "filter" in message:
            self.filter(self.socket, message["filter"])
        if "resume" in message:
            now = time.monotonic()
            if now - self.resumed_at < RESUME_SECONDS:
                raise Refused(CloseCode.TOO_MANY, "Resume at most once a second.")
            self.resumed_at = now
            await the_hub().resume(self.socket, _cursor(message["resume"]), epoch)

    async def sign_in(self, given: Any) -> None:
        shown = given if isinstance(given, dict) else {}
        key, token = shown.get("key"), shown.get("token")
        if isinstance(token, str):
            await self.open(partial(viewer_of_token, token), may_fail=False, patiently=True)
        elif isinstance(key, str):
            await self.open(partial(viewer_of_key, key if key.isascii() else ""), may_fail=False)
        else:
            raise Refused(CloseCode.NOT_SIGNED_IN, 'Sign in first: {"auth": {"key": "..."}}, or "token".')

    async def open(self, find: Callable[[], Viewer | None], *, may_fail: bool, patiently: bool = False) -> None:
        """
        Find the viewer, and open the subject for them. If there is no viewer, the socket is closed; with `may_fail` it
        stays open, so that the client can sign in by a message.
        """
        try:
            opened = await in_thread(partial(self.look_up, find), patiently=patiently)
            if self.is_closing:
                return
            if opened is not None:
                self.begin(LiveSocket(*opened))
            elif not may_fail:
                self.count_bad_key()
            if self.socket is not None:
                await the_hub().join(self.socket)
        except Refused as refused:
            await self.refuse(refused.refusal, refused.detail)
        except ExpiredToken as expired:
            await self.refuse(CloseCode.NOT_SIGNED_IN, expired.message)
        except IssuerKeysUnavailable as unavailable:
            await self.refuse(CloseCode.UNAVAILABLE, unavailable.message)
        except DatabaseError:
            await self.refuse(CloseCode.UNAVAILABLE, "The database does not answer; try again.")

    def look_up(self, find: Callable[[], Viewer | None]) -> tuple[Viewer, LiveSubject] | None:
        """Find the viewer and open the subject; None: no viewer. Call it in a thread."""
        viewer = find()
        return (viewer, self.opener()(viewer)) if viewer else None

    def count_bad_key(self) -> None:
        if bad_keys.take(self.address):
            raise Refused(CloseCode.TOO_MANY, "Too many keys or tokens that are not valid.")
        raise Refused(CloseCode.NOT_SIGNED_IN, "The key or token is unknown, expired or revoked, or may not read.")

    def begin(self, socket: LiveSocket) -> None:
        self.socket = socket
        the_hub().strangers.leave(self.address, self.put_out)
        if self.sign_in_by is not None:
            self.sign_in_by.cancel()
        self.do(self.write(socket))

    def filter(self, socket: LiveSocket, given: Any) -> None:
        raise Refused(CloseCode.BAD_MESSAGE, "Only the operators' feed has a filter.")

    async def write(self, socket: LiveSocket) -> None:
        """Send what the socket has, until it closes."""
        while socket.closing is None:
            await socket.wake.wait()
            socket.wake.clear()
            for text in socket.take():
                await self.send(text_data=text)
        self.is_closing = True
        await self.close(code=int(socket.closing))
        self.end()

    def put_out(self) -> None:
        self.do(self.refuse(CloseCode.TOO_MANY, "Too many sockets wait to be signed in; sign in at once."))

    def give_up(self) -> None:
        self.do(self.refuse(CloseCode.NOT_SIGNED_IN, "Nobody signed in."))

    async def refuse(self, refusal: CloseCode, detail: str) -> None:
        """Say why, and close."""
        if self.socket is not None:
            self.socket.close(refusal, detail)  # `write` sends the reason, then closes
            return
        if not self.is_closing:
            self.is_closing = True
            await self.send(text_data=error(refusal, detail))
            await self.close(code=int(refusal))

    def end(self) -> None:
        """Leave the hub and cancel the tasks. Calling it again is harmless."""
        hub = the_hub()
        if self.sign_in_by is not None:
            self.sign_in_by.cancel()
        if self.socket is not None:
            hub.leave(self.socket)
        hub.strangers.leave(self.address, self.put_out)
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()

    def do(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class JobConsumer(LiveConsumer):
    def opener(self) -> Opener:
        return partial(open_job, pk=self.pk)

    @property
    def pk(self) -> UUID:
        pk: UUID = self.scope["url_route"]["kwargs"]["pk"]
        return pk


class BatchConsumer(JobConsumer):
    def opener(self) -> Opener:
        return partial(open_batch, pk=self.pk)


class MeConsumer(LiveConsumer):
    """
    The work of the key's project, or of the project that staff name; `?user=` narrows it to one user. A user with a
    token gets their own work.
    """

    def opener(self) -> Opener:
        query = parse_qs(self.scope["query_string"].decode("latin1"), keep_blank_values=True)
        project = query.get("project", [""])[0]
        user = query.get("user", [None])[0]

        def open_narrowed(viewer: Viewer) -> LiveSubject:
            try:
                user_id = None if user is None else UUID(user)  # refuses an empty user, which would stand for everybody
            except ValueError:
                raise Refused(CloseCode.BAD_MESSAGE, "The user is not a UUID.") from None
            if not project and viewer.project_id is None:
                return open_me(viewer)
            found = None
            if not project or project_id_rule.regex.match(project):  # type: ignore[union-attr]
                found = narrowed(viewer, project_id=project or None, user_id=user_id)
            if found is None:
                raise Refused(CloseCode.NOT_FOUND, "There is no such project.")
            return open_me(found)

        return open_narrowed


class OpsConsumer(LiveConsumer):
    def opener(self) -> Opener:
        return open_ops

    def filter(self, socket: LiveSocket, given: Any) -> None:
        try:
            socket.filter = EventFilter.of(given if isinstance(given, dict) else {"": given})
        except ValueError as wrong:
            raise Refused(CloseCode.BAD_MESSAGE, str(wrong)) from wrong


class UnknownConsumer(AsyncWebsocketConsumer):
    """An unknown address: refused before the handshake ends."""

    async def connect(self) -> None:
        await self.close()


def _cursor(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**63:
        raise Refused(CloseCode.BAD_MESSAGE, "A cursor is a whole number.")
    return given
