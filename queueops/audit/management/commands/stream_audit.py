from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from queueops.audit import stream
from queueops.audit.sinks import STDOUT
from queueops.core.processes.stop_signals import handle_stop
from queueops.core.values.parse import AUDIT_TARGET

TURN_SECONDS = 30.0
PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0  # the longest pause between attempts while the target takes nothing


class Command(BaseCommand):
    help = (
        "Send every entry of the audit trail, a second after it was written, until it is stopped. Where it stopped it"
        " goes on the next time: the database keeps how far each target got."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--to",
            help="syslog+tls://host:port, syslog+tcp://…, syslog+udp://…, file:///path, or - for standard output."
            " Without: QUEUEOPS_AUDIT_STREAM.",
        )
        parser.add_argument("--once", action="store_true", help="Send what there is, and end; 1 if it was not taken.")

    def handle(self, *args: Any, **options: Any) -> None:
        target = options["to"] or settings.QUEUEOPS.audit_stream
        if not target:
            raise CommandError("Say where with --to, or set QUEUEOPS_AUDIT_STREAM.")
        if target != STDOUT:
            try:
                AUDIT_TARGET.parse(target)
            except ValueError:
                raise CommandError(f"--to must be {AUDIT_TARGET.rule}, or -; it is {target!r}") from None
        stopped = threading.Event()
        handle_stop(lambda *_: stopped.set())
        self._stream(target, stopped, is_once=options["once"])

    def _stream(self, target: str, stopped: threading.Event, *, is_once: bool) -> None:
        holder, pause, told = uuid4(), PAUSE_SECONDS, ""
        while not stopped.is_set():
            sent = stream.send_new(target, seconds=TURN_SECONDS, holder=holder, go_on=lambda: not stopped.is_set())
            trouble = sent.fault or ("another process sends there" if sent.is_held else "")
            if is_once and trouble:
                raise CommandError(f"{target}: {trouble}")
            if trouble != told:
                self.stderr.write(f"{target}: {trouble or 'goes on'}")
                told = trouble
            if is_once and not sent.entries:
                return
            pause = min(2 * pause, MAX_PAUSE_SECONDS) if sent.fault else PAUSE_SECONDS
            if trouble or not sent.entries:
                stopped.wait(pause)
