from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import autodiscover_modules

from queueops.core.generated_docs import stale_pages, write_pages


class Command(BaseCommand):
    help = "Write the pages of docs/ that are generated from the code."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="Write nothing; fail if a page is out of date.")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        autodiscover_modules("docs")
        docs = Path(settings.BASE_DIR) / "docs"
        if not check:
            for path in write_pages(docs):
                self.stdout.write(f"wrote docs/{path}")
        elif stale := stale_pages(docs):
            raise CommandError(f"Out of date: {', '.join(stale)}. Write them again with `make docs`.")
