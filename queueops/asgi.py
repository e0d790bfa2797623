"""The web process's application, served by daphne."""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application

from queueops.core.database import use_connection_pool

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "queueops.settings")

application = get_asgi_application()
use_connection_pool(settings.QUEUEOPS.pool_size)
