"""The web process's application."""

import os

import django
from django.conf import settings

from queueops.core.body_cap import BodyCap, BodyLimits
from queueops.core.database import use_connection_pool
from queueops.core.threaded_application import ThreadedApplication

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queueops.settings")

MEGABYTE = 1_000_000
ENVELOPE_BYTES = 100_000  # what surrounds the largest payload: keys, names, form fields

django.setup(set_prefix=False)
django_application = ThreadedApplication()
use_connection_pool(settings.QUEUEOPS.pool_size)

body_limits = BodyLimits(
    default_bytes=settings.QUEUEOPS.max_job_mb * MEGABYTE + ENVELOPE_BYTES,
    path_bytes={"/api/v1/batches/": settings.QUEUEOPS.max_body_mb * MEGABYTE},
)
application = BodyCap(django_application, body_limits)
