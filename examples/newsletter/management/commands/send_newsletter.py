import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from examples.newsletter.tasks import write_letter

SUBSCRIBERS = ("Ada", "Ben", "Cleo", "Dan")
WAIT_SECONDS = 60


class Command(BaseCommand):
    help = "Enqueue a letter for each subscriber, wait for them, and show what they say."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("issue", type=int)

    def handle(self, *args: Any, issue: int, **options: Any) -> None:
        results = [write_letter.enqueue(subscriber, issue) for subscriber in SUBSCRIBERS]
        until = time.monotonic() + WAIT_SECONDS
        for result in results:
            while not result.is_finished:
                if time.monotonic() > until:
                    raise CommandError("The letters are not written yet: do workers run with this app?")
                time.sleep(0.1)
                result.refresh()
            self.stdout.write(str(result.return_value))
