import logging
import os
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.management.base import CommandError
from django.db import connections
from django.urls import get_resolver

from queueops.core.pooler import ensure_session_is_ours
from queueops.core.processes.garbage import spare_the_collector
from queueops.core.processes.operator_command import OperatorCommand
from queueops.core.web.ports import PortTaken
from queueops.tenancy.checks import ensure_projects_are_kept_apart
from queueops.tenancy.rights import give_rights
from queueops.tenancy.secrets.secret_key import ensure_own_secret_key
from ratelimits.limits.defaults import tell_unheeded_settings

logger = logging.getLogger(__name__)


class Command(OperatorCommand):
    help = "Serve the API and the admin on QUEUEOPS_HOST and QUEUEOPS_PORT (daphne)."

    requires_system_checks = ()  # their messages would be plain text within the log

    def handle(self, *args: Any, **options: Any) -> None:
        self._check()
        give_rights()
        ensure_projects_are_kept_apart()
        ensure_own_secret_key()
        ensure_session_is_ours()
        tell_unheeded_settings()
        # Imported here: the application switches this process to pooled connections, and every
        # other command would load Twisted for nothing.
        from queueops.core.web.server import serve
        from queueops.site.asgi import application, askers, body_limits, cross_origin, room
        from queueops.site.workers_watch import WorkersWatch

        _ = get_resolver().url_patterns  # otherwise the first request would import all views, and wait for that
        spare_the_collector()
        WorkersWatch().start()
        chosen = settings.QUEUEOPS
        try:
            cut_off = serve(
                application,
                host=chosen.host,
                port=chosen.port,
                limits=body_limits,
                room=room,
                askers=askers,
                cross_origin=cross_origin,
                grace_seconds=chosen.drain_grace_seconds,
                leave_seconds=chosen.leave_seconds,
            )
        except PortTaken as error:
            raise CommandError(error.message) from error
        if cut_off:
            logger.warning("%s requests are cut off after %g s", cut_off, chosen.drain_grace_seconds)
            logging.shutdown()
            os._exit(0)  # a normal exit would wait for the threads of these requests
        for one in connections.all():
            ours: Any = one  # the type stubs lack our database backend's methods
            ours.close_pool()

    def _check(self) -> None:
        """Check as Django does before a command, but log findings that do not stop the start."""
        problems = [problem for problem in checks.run_checks() if not problem.is_silenced()]
        if any(problem.is_serious() for problem in problems):
            self.check()
        for problem in problems:
            logger.warning("%s: %s %s", problem.id, problem.msg, problem.hint or "")
