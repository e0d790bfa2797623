from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from jobs import cluster
from jobs.models import Executor
from queueops.core.clock import Now
from queueops.tenancy.secrets.secret_key import adopt_secret_key


class Command(BaseCommand):
    help = (
        "Change the secret key: make QUEUEOPS_SECRET_KEY as it is now the one that this database belongs to. Stop "
        "every web process and worker first. Everybody signs in again; bulk operations go on by themselves."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        silent = Now() - timedelta(seconds=settings.QUEUEOPS.lease_seconds)
        if alive := Executor.objects.filter(heartbeat_at__gt=silent).count():
            raise CommandError(f"{alive} workers still run with the old key. Stop every web process and worker first.")
        with transaction.atomic():
            adopt_secret_key()
            forgotten = cluster.forget_tasks()
        print(f"The database belongs to this key now. {forgotten} tasks of the old key are forgotten.")
