"""The web process's application."""

import os

import django
from django.conf import settings

from queueops.core.database import use_connection_pool
from queueops.core.values.numbers import MEGABYTE
from queueops.core.web.askers import Askers
from queueops.core.web.refusals import CrossOrigin
from queueops.core.web.requests.body_cap import BodyCap, BodyLimits
from queueops.core.web.requests.spool import SpooledBytes, SpoolLimits
from queueops.core.web.threaded_application import ThreadedApplication

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queueops.settings")

django.setup(set_prefix=False)
cross_origin = CrossOrigin(
    settings.CORS_URLS_REGEX, frozenset(settings.CORS_ALLOWED_ORIGINS), settings.CORS_EXPOSE_HEADERS
)
# Imported here: its models need Django to be set up.
from dashboards.metrics.middleware import PROBES  # noqa: E402
from dashboards.metrics.process import show_requests  # noqa: E402
from queueops.site.whose import whose  # noqa: E402

askers = Askers(whose)
django_application = ThreadedApplication(
    threads=settings.QUEUEOPS.pool_size,
    probes=PROBES,
    cross_origin=cross_origin,
    askers=askers,
    request_seconds=settings.QUEUEOPS.request_seconds,
)
use_connection_pool(settings.QUEUEOPS.pool_size)

room = SpooledBytes(
    SpoolLimits(
        total_bytes=settings.QUEUEOPS.spool_bytes,
        asker_bytes=settings.QUEUEOPS.spool_project_bytes,
        least_rate=settings.QUEUEOPS.least_body_rate,
    )
)
show_requests(django_application.queue, room)
body_limits = BodyLimits(
    default_bytes=settings.QUEUEOPS.max_job_bytes,
    path_bytes={
        "/api/v1/batches/": settings.QUEUEOPS.max_body_mb * MEGABYTE,
        "/api/v1/forecast/": settings.QUEUEOPS.max_body_mb * MEGABYTE,
        "/openai/v1/files/": settings.QUEUEOPS.max_body_mb * MEGABYTE,
        "/anthropic/v1/messages/batches/": settings.QUEUEOPS.max_body_mb * MEGABYTE,
        "/admin/jobs/upload/add/": 21 * MEGABYTE,  # MAX_UPLOAD_BYTES of jobs.features.uploads.uploads, and the form
    },
)
from dashboards.live.long_polls import LongPolls  # noqa: E402
from dashboards.live.routing import by_protocol  # noqa: E402

application = by_protocol(LongPolls(BodyCap(django_application, body_limits, cross_origin), askers))
