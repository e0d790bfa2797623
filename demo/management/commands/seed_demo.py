from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from demo import language_model, sheets, usage, zones
from jobs.models import Batch
from jobs.services.explain.batch_report import read_report
from jobs.services.submit.submit import BatchReceipt, submit_batch
from queueops.core.processes.operator_command import OperatorCommand
from queueops.core.upgrade import is_migrated
from queueops.tenancy.models import ProducerKey, Project, Scope
from ratelimits.limits.catalogue import rules

ACTOR = "system:seed_demo"
# `manage.py up` sets this variable for the processes that it starts; in other terminals it must be set by hand.
ONCE_MORE = "QUEUEOPS_ALLOW_LOOPBACK_TARGETS=on .venv/bin/python manage.py seed_demo --again --watch"


class Command(OperatorCommand):
    help = "Submit the demo's two batches, once: requests to a provider that fails, and writes that a quota holds back."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--again", action="store_true", help="Submit them although they were submitted before.")
        parser.add_argument("--watch", action="store_true", help="Show their progress until they are done.")

    def handle(self, *args: Any, again: bool, watch: bool, **options: Any) -> None:
        if not settings.QUEUEOPS.allow_loopback_targets:
            raise CommandError("The demo calls 127.0.0.1: set QUEUEOPS_ALLOW_LOOPBACK_TARGETS=on.")
        self._refuse_old_tables()
        project = self._project()
        parts: dict[str, Callable[[Project], UUID]] = {
            zones.BATCH_NAME: self._submit_requests,
            sheets.BATCH_NAME: self._submit_writes,
        }
        found = {} if again else {name: batch for name in parts if (batch := self._newest(name))}
        unfinished = [batch for batch in found.values() if not read_report(batch, now=timezone.now()).is_done]
        is_done = len(found) == len(parts) and not unfinished
        # Set on every run: a restarted sandbox has lost its knobs.
        with suppress(zones.SandboxSilent) if is_done else nullcontext():
            zones.prepare_sandbox(self.sandbox, language_model.KNOBS | ({} if is_done else zones.KNOBS))
        if is_done:
            self.stdout.write("the demo was submitted before and is done; once more:")
            self.stdout.write(f"  {ONCE_MORE}")
            return
        watched = []
        for name, submit in parts.items():
            if name not in found:
                watched.append(submit(project))
            elif found[name] in unfinished:
                self.stdout.write(f"{name!r} was submitted before and goes on")
                watched.append(found[name].pk)
        if watch:
            for batch_id in watched:
                call_command("watch_batch", str(batch_id), stdout=self.stdout, stderr=self.stderr)
            self._say_calls()
            self._say_where_to_look(watched[0])

    def _refuse_old_tables(self) -> None:
        if not is_migrated():
            raise CommandError("The database's tables are missing or old: run manage.py migrate first.")

    @property
    def sandbox(self) -> str:
        return f"http://127.0.0.1:{settings.QUEUEOPS.sandbox_port}"

    @property
    def admin(self) -> str:
        return f"http://{settings.QUEUEOPS.host}:{settings.QUEUEOPS.port}/admin"

    def _project(self) -> Project:
        project, is_new = Project.objects.get_or_create(pk=zones.PROJECT, defaults={"name": "Demo"})
        if is_new:
            scopes = [Scope.READ, Scope.SUBMIT, Scope.USAGE]
            _, secret = ProducerKey.issue(project, name="demo", scopes=scopes)
            self.stdout.write(f"key of project {project.pk}: {secret}  (shown this once; only its hash is stored)")
        sheets.ensure_credential(project, self.sandbox)
        language_model.ensure_credentials(project, self.sandbox)
        usage.ensure_usage(project.pk, actor=ACTOR, at=timezone.now())
        return project

    def _newest(self, name: str) -> Batch | None:
        return Batch.objects.of_project(zones.PROJECT).filter(name=name).order_by("created_at").last()

    def _submit_requests(self, project: Project) -> UUID:
        names = zones.zone_names()
        lines = zones.job_lines(self.sandbox, names, at=timezone.now())
        submitted = _submit(project, zones.BATCH_NAME, lines, start_interval_seconds=zones.START_INTERVAL_SECONDS)
        self.stdout.write(f"submitted {submitted.accepted} requests, one for each time zone Python knows:")
        self.stdout.write(f"  PUT {zones.row_url(self.sandbox, names[0])} and so on")
        self.stdout.write("the sandbox answers slowly, some with 429 or 503, and refuses some for good")
        return submitted.id

    def _submit_writes(self, project: Project) -> UUID:
        lines = sheets.job_lines(zones.zone_names(), at=timezone.now())
        submitted = _submit(project, sheets.BATCH_NAME, lines)
        limits = [rule.name for rule in rules() if rule.service == sheets.SERVICE and rule.call_type == "write"]
        within = f"within {' and '.join(limits)}" if limits else "no limit is loaded: see manage.py load_limits"
        self.stdout.write(f"submitted {submitted.accepted} writes of the same to a spreadsheet of the sandbox:")
        self.stdout.write(f"  {within}")
        return submitted.id

    def _say_calls(self) -> None:
        calls = sheets.count_calls(self.sandbox)
        if calls is not None:
            self.stdout.write(
                f"the sandbox counted {calls.accepted} calls for the writes to the spreadsheet, and refused "
                f"{calls.refused} for its quota"
            )

    def _say_where_to_look(self, batch_id: UUID) -> None:
        self.stdout.write("where to look next:")
        for what, address in (
            ("a batch and its jobs", f"{self.admin}/jobs/batch/{batch_id}/change/"),
            ("dead letters to requeue", f"{self.admin}/jobs/deadletter/"),
            ("the limits and who used them", f"{self.admin}/ratelimits/limit/"),
            ("users' allowances, what is used", f"{self.admin}/ratelimits/usagetracking/"),
            ("what the provider received", f"{self.sandbox}/plain/sheets/{zones.SHEET}/rows"),
            ("the API", f"http://{settings.QUEUEOPS.host}:{settings.QUEUEOPS.port}/api/v1/docs/"),
            ("your own handler in 15 minutes", "docs/tutorial.md"),
        ):
            self.stdout.write(f"  {what + ':':<32} {address}")


def _submit(project: Project, name: str, lines: Iterable[dict[str, Any]], **options: Any) -> BatchReceipt:
    return submit_batch(lines, project_id=project.pk, actor=ACTOR, name=name, **options)
