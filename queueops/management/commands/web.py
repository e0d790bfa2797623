from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from queueops.core.errors import QueueOpsError
from queueops.core.pooler import ensure_session_is_ours
from queueops.tenancy.checks import ensure_projects_are_kept_apart
from queueops.tenancy.secret_key import ensure_own_secret_key


class Command(BaseCommand):
    help = "Serve the API and the admin on QUEUEOPS_HOST and QUEUEOPS_PORT (daphne)."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            ensure_projects_are_kept_apart()
            ensure_own_secret_key()
            ensure_session_is_ours()
        except QueueOpsError as error:
            raise CommandError(error.message) from error
        # Imported here: the application switches this process to pooled connections, and every
        # other command would load Twisted for nothing.
        from queueops.asgi import application, body_limits, cross_origin
        from queueops.core.web_server import serve

        serve(
            application,
            host=settings.QUEUEOPS.host,
            port=settings.QUEUEOPS.port,
            limits=body_limits,
            cross_origin=cross_origin,
        )
