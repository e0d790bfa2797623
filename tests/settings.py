"""
The project's settings with a throw-away data directory.

pytest-django reads the settings before any conftest.py, so the directory is chosen here. Processes
that a test starts inherit it, and use the project's own settings. Each of several workers that share
a run has a part of it.
"""

import os
import tempfile
from pathlib import Path

from tests.support.scratch import use_memory

use_memory()
if _worker := os.environ.get("PYTEST_XDIST_WORKER"):
    _data_dir = str(Path(os.environ["QUEUEOPS_DATA_DIR"], _worker))
    Path(_data_dir).mkdir(exist_ok=True)
    if _servers := os.environ.get("DATABASE_URLS", "").split():  # one for each worker
        os.environ["DATABASE_URL"] = _servers[int(_worker.removeprefix("gw"))]
else:
    _data_dir = tempfile.mkdtemp(prefix="queueops-test-")
Path(_data_dir).chmod(0o711)
for _name in [name for name in os.environ if name.startswith("QUEUEOPS_")]:
    del os.environ[_name]
os.environ["QUEUEOPS_DATA_DIR"] = _data_dir
os.environ["QUEUEOPS_ALLOW_LOOPBACK_TARGETS"] = "on"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process that a test starts would compile the project again

from queueops.settings import *  # noqa: E402, F403 (after the environment is set)

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# As the executors do for their session: compiling a hot statement takes seconds, and tests call it from any session.
DATABASES["default"]["OPTIONS"]["options"] = "-c jit=off"  # noqa: F405
# Each test's client makes its own middleware, which would look through all static files for nothing.
WHITENOISE_AUTOREFRESH = True
