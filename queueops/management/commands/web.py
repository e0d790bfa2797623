from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from queueops.tenancy.checks import ensure_projects_are_kept_apart


class Command(BaseCommand):
    help = "Serve the API and the admin on QUEUEOPS_HOST and QUEUEOPS_PORT (daphne)."

    def handle(self, *args: Any, **options: Any) -> None:
        ensure_projects_are_kept_apart()
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
