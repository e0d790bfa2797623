from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from jobs import demo
from jobs.batch_report import read_report
from jobs.models import Batch
from jobs.services.submit import submit_batch
from queueops.tenancy.models import ProducerKey, Project


class Command(BaseCommand):
    help = "Submit the demo's batch, once: real HTTP requests to the sandbox provider, which is slow and fails."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--again", action="store_true", help="Submit it although it was submitted before.")
        parser.add_argument("--watch", action="store_true", help="Show its progress until it is done.")

    def handle(self, *args: Any, again: bool, watch: bool, **options: Any) -> None:
        if not settings.QUEUEOPS.allow_loopback_targets:
            raise CommandError("The demo calls 127.0.0.1: set QUEUEOPS_ALLOW_LOOPBACK_TARGETS=on.")
        project = self._project()
        batch = Batch.objects.of_project(demo.PROJECT).filter(name=demo.BATCH_NAME).order_by("created_at").last()
        if batch is None or again:
            demo.prepare_sandbox(self.sandbox)
            batch_id = self._submit(project)
        elif not read_report(batch, now=timezone.now()).is_done:
            # A sandbox that was stopped has forgotten its knobs.
            demo.prepare_sandbox(self.sandbox)
            batch_id = batch.pk
            self.stdout.write("the demo's batch was submitted before and goes on")
        else:
            self.stdout.write("the demo's batch was submitted before and is done; another one:")
            self.stdout.write("  .venv/bin/python manage.py seed_demo --again --watch")
            return
        if watch:
            call_command("watch_batch", str(batch_id), stdout=self.stdout, stderr=self.stderr)
            self._say_where_to_look(batch_id)

    @property
    def sandbox(self) -> str:
        return f"http://127.0.0.1:{settings.QUEUEOPS.sandbox_port}"

    @property
    def admin(self) -> str:
        return f"http://{settings.QUEUEOPS.host}:{settings.QUEUEOPS.port}/admin"

    def _project(self) -> Project:
        project, is_new = Project.objects.get_or_create(pk=demo.PROJECT, defaults={"name": "Demo"})
        if is_new:
            _, secret = ProducerKey.issue(project, name="demo")
            self.stdout.write(f"key of project {project.pk}: {secret}  (shown this once; only its hash is stored)")
        return project

    def _submit(self, project: Project) -> UUID:
        names = demo.zone_names()
        submitted = submit_batch(
            demo.job_lines(self.sandbox, names, at=timezone.now()),
            project_id=project.pk,
            actor="system:seed_demo",
            name=demo.BATCH_NAME,
            start_interval_seconds=demo.START_INTERVAL_SECONDS,
        )
        self.stdout.write(f"submitted {submitted.accepted} requests, one for each time zone Python knows:")
        self.stdout.write(f"  PUT {demo.row_url(self.sandbox, names[0])} and so on")
        self.stdout.write("the sandbox answers slowly, some with 429 or 503, and refuses some for good")
        return submitted.id

    def _say_where_to_look(self, batch_id: UUID) -> None:
        self.stdout.write("where to look next:")
        for what, address in (
            ("the batch and its jobs", f"{self.admin}/jobs/batch/{batch_id}/change/"),
            ("dead letters to requeue", f"{self.admin}/jobs/deadletter/"),
            ("what the provider received", f"{self.sandbox}/plain/sheets/{demo.SHEET}/rows"),
            ("the API", f"http://{settings.QUEUEOPS.host}:{settings.QUEUEOPS.port}/api/v1/docs/"),
            ("your own handler in 15 minutes", "docs/tutorial.md"),
        ):
            self.stdout.write(f"  {what + ':':<32} {address}")
