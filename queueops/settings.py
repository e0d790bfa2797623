"""Django's settings. The settings that an installation may change come from the environment: core/env/."""

import logging
import os
import sys
from pathlib import Path
from typing import Any

import django

from queueops.core.database import database_settings
from queueops.core.embedded.cluster import EmbeddedServer
from queueops.core.embedded.host import default_data_dir
from queueops.core.env.environment import Environment
from queueops.core.env.reading import BadConfiguration, read
from queueops.core.mail import MAIL_TIMEOUT_SECONDS, mail_server
from queueops.core.secret_key import development_secret_key
from queueops.core.version import VERSION
from queueops.site.admin_theme import UNFOLD  # noqa: F401 - a setting

BASE_DIR = Path(__file__).resolve().parent.parent

try:
    QUEUEOPS: Environment = read(os.environ, default_data_dir=default_data_dir(BASE_DIR))
    SECRET_KEY = QUEUEOPS.secret_key or development_secret_key(QUEUEOPS.data_dir)
except BadConfiguration as error:
    sys.exit(str(error))

DEBUG = QUEUEOPS.debug
ALLOWED_HOSTS = list(QUEUEOPS.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(QUEUEOPS.csrf_trusted_origins)

INSTALLED_APPS = [
    "queueops.site.admin_site.UnfoldConfig",  # before django.contrib.admin: its templates replace the admin's
    "unfold.contrib.filters",
    "django.contrib.admin.apps.SimpleAdminConfig",  # no autodiscovery: urls.py imports the screens, so workers do not
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "corsheaders",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "jobs.forking.ForkingConfig",  # django-q2
    *(["django_tasks"] if django.VERSION < (6, 0) else []),  # in Django itself from 6.0 on: jobs/task_framework.py
    "queueops.site",
    "queueops.audit",
    "queueops.tenancy",
    "queueops.access",
    "ratelimits",
    "jobs",
    "jobs.door",
    "dashboards",
    "demo",
    "queueops.assistant",
    *QUEUEOPS.extra_apps,
]

MIDDLEWARE = [
    "queueops.core.web.security_headers.SecurityHeaders",  # before every middleware that may answer by itself
    "queueops.core.web.requests.request_log.RequestLog",
    "dashboards.metrics.middleware.Monitoring",  # before the checks of host and TLS: see its docstring
    "queueops.rest.encoding.CompressedAnswers",
    "corsheaders.middleware.CorsMiddleware",  # before all that may answer: browsers hide answers without its headers
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "queueops.access.middleware.SessionLimits",
    "queueops.tenancy.secrets.encryption.Concealing",
    "queueops.core.web.read_your_writes.RecentWrites",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "queueops.core.web.requests.unreadable.RefuseUnreadable",
]

ROOT_URLCONF = "queueops.site.urls"
ASGI_APPLICATION = "queueops.site.asgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "libraries": {
                "menu": "queueops.site.admin_theme",
                "release": "queueops.screens.release",
                "short_ids": "queueops.screens.short_ids",
            },
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "queueops.screens.docs_site.docs_site",
            ],
        },
    },
]

DATABASES = {
    "default": database_settings(
        QUEUEOPS.database_url or EmbeddedServer(QUEUEOPS.data_dir).dsn(),
        prepare=QUEUEOPS.listen,  # one switch: LISTEN and prepared statements both fail behind a transaction pooler
    ),
}
if QUEUEOPS.replica_url:
    # No database router sends reads to the replica: queueops/core/postgres/replica.py decides which ones go there.
    DATABASES["replica"] = {
        **database_settings(QUEUEOPS.replica_url, prepare=QUEUEOPS.listen),
        "TEST": {"MIRROR": "default"},
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTHENTICATION_BACKENDS = ["queueops.access.backend.GuardedBackend"]
PASSWORD_RESET_TIMEOUT = 72 * 3600  # seconds that an invitation is valid
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = "queueops.screens.formats"
USE_TZ = True

LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / ".static"
WHITENOISE_ALLOW_ALL_ORIGINS = False
WHITENOISE_USE_FINDERS = True  # no collectstatic step between a clone and a running admin
# The documentation that `make site` built. Anybody may read it at /docs/: it holds no data of an installation.
SITE_ROOT = BASE_DIR / ".site"
if SITE_ROOT.is_dir():
    WHITENOISE_ROOT = SITE_ROOT
    WHITENOISE_INDEX_FILE = True

# core/web/requests/body_cap.py limits each body before Django sees it. The parsers then stream it or limit it again.
DATA_UPLOAD_MAX_MEMORY_SIZE = QUEUEOPS.max_job_bytes  # for a form's fields; a job's form is the largest
FILE_UPLOAD_MAX_MEMORY_SIZE = 1_000_000

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = QUEUEOPS.tls
SECURE_HSTS_SECONDS = 31_536_000 if QUEUEOPS.tls else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = QUEUEOPS.tls
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if QUEUEOPS.tls_proxy else None
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = QUEUEOPS.session_hours * 3600  # queueops.access ends idle ones earlier
SESSION_ENGINE = "queueops.access.session_engine"
# With the prefix, browsers take the cookie over TLS only and from this very host.
SESSION_COOKIE_NAME = "__Host-sessionid" if QUEUEOPS.tls else "sessionid"
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"

# Pages of other origins must send a key or a token. With cookies, they could act as a visitor who is signed in.
CORS_URLS_REGEX = r"^/(api|functions)/"
CORS_ALLOWED_ORIGINS = list(QUEUEOPS.cors_origins)
CORS_ALLOW_CREDENTIALS = False
CORS_ALLOW_HEADERS = (
    "accept",
    "authorization",
    "content-encoding",
    "content-type",
    "idempotency-key",
    "traceparent",
    "tracestate",
    "x-api-key",
    "x-project",
)
CORS_EXPOSE_HEADERS = ("Date", "Idempotency-Replayed", "Location", "Retry-After", "X-Request-Id")

REST_FRAMEWORK = {
    "EXCEPTION_HANDLER": "queueops.site.api.handle_exception",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "queueops.tenancy.callers.authentication.ProducerKeyAuthentication",
        "queueops.tenancy.callers.authentication.TokenAuthentication",
        "queueops.tenancy.callers.authentication.OperatorSessionAuthentication",
        "queueops.tenancy.callers.authentication.AnonymousAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["queueops.tenancy.callers.permissions.MeetsNeed"],
    "DEFAULT_THROTTLE_CLASSES": ["queueops.tenancy.callers.throttles.CallerThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["queueops.rest.parsers.JSONDocument"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "QueueOps",
    "DESCRIPTION": "Bulk work against quota-limited APIs: submit, follow, operate.",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    # Without this, a request with a bad key, or with a session that names no project, could not read the documentation.
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    # deepLinking puts each operation's link inside the button that opens it, where a keyboard cannot reach both.
    "SWAGGER_UI_SETTINGS": {"deepLinking": False},
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "queueops.rest.schema.describe_requests",
    ],
    "ENUM_NAME_OVERRIDES": {
        "JobState": "jobs.states.JobState",
        "Priority": "jobs.states.Priority",
        "CallType": "jobs.states.CallType",
        "EventType": "jobs.states.EventType",
        "Resolution": "jobs.models.Resolution",
        "OperationStatus": "jobs.models.BulkOperation.Status",
        "ProviderBatchState": "jobs.models.ProviderBatch.State",
        "BudgetPolicy": ["wait", "reject"],
        "AllowancePolicy": "ratelimits.models.AllowancePolicy",
        "AllowanceUnit": "ratelimits.models.AllowanceUnit",
    },
}

# django-q2 runs only operators' and house-keeping tasks, each of them short; jobs never pass through it.
Q_CLUSTER = {
    "name": "queueops",
    "label": "House-keeping",
    "orm": "default",
    "broker_class": "jobs.cluster.SkipLockedBroker",
    "workers": QUEUEOPS.workers + 1,  # one more for jobs that crashed twice: docs/adr/0013
    "timeout": 240,
    "retry": 300,  # above timeout, or a task that is still running would be handed out again
    "poll": 1,
    "max_attempts": 3,
    "catch_up": False,
    "save_limit": 250,
    # Python lets no daemonic process start children, and handlers may have to.
    "daemonize_workers": False,
}

TASKS = {
    "default": {
        "BACKEND": "jobs.django_tasks.QueueOpsBackend",
        "QUEUES": [],  # empty: any queue name is allowed
        "OPTIONS": {"project": QUEUEOPS.tasks_project},
    }
}

_MAIL = mail_server(QUEUEOPS.email_url)
EMAIL_HOST, EMAIL_PORT = _MAIL.host, _MAIL.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _MAIL.user, _MAIL.password
EMAIL_USE_TLS, EMAIL_USE_SSL = _MAIL.use_tls, _MAIL.use_ssl
EMAIL_TIMEOUT = MAIL_TIMEOUT_SECONDS
DEFAULT_FROM_EMAIL = QUEUEOPS.email_from

# With JSON logs, Python's warnings go through logging too: written straight to stderr they would not be JSON.
logging.captureWarnings(QUEUEOPS.shown_log_format == "json")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"()": "queueops.core.telemetry.logs.TextFormatter"},
        "json": {"()": "queueops.core.telemetry.logs.JsonFormatter"},
    },
    "filters": {
        "once": {"()": "queueops.core.telemetry.logs.OnceWhileItLasts"},
        "refusals": {"()": "queueops.core.telemetry.logs.RefusalFilter"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": QUEUEOPS.shown_log_format,
            "filters": ["refusals"],
        },
    },
    "root": {"handlers": ["console"], "level": QUEUEOPS.log_level},
    "loggers": {
        # Naming this logger removes Django's own handler, which would write each line a second time.
        "django": {"level": QUEUEOPS.log_level},
        # At INFO, django-q2 logs every process and task, and would drown our own lines.
        "django-q": {"level": "DEBUG" if QUEUEOPS.log_level == "DEBUG" else "WARNING"},
        "fido2": {"level": "WARNING"},  # below this level it logs a line for every passkey
        "mcp": {"level": "WARNING"},  # below this level it logs a line for every request
        # The pool logs every attempt to connect: one a second during an outage.
        "psycopg.pool": {"filters": ["once"]},
    },
}
