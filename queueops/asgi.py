"""The web process's application."""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application

from queueops.core.body_cap import BodyCap, BodyLimits
from queueops.core.database import use_connection_pool

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queueops.settings")

MEGABYTE = 1_000_000
ENVELOPE_BYTES = 100_000  # what surrounds the largest payload: keys, names, form fields

django_application = get_asgi_application()
use_connection_pool(settings.QUEUEOPS.pool_size)

body_limits = BodyLimits(
    default_bytes=settings.QUEUEOPS.max_job_mb * MEGABYTE + ENVELOPE_BYTES,
    path_bytes={"/api/v1/batches/": settings.QUEUEOPS.max_body_mb * MEGABYTE},
)
application = BodyCap(django_application, body_limits)
