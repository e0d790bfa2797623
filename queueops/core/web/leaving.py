"""Set once this web process is told to stop: `/readyz` says 503, and proxies send their requests elsewhere."""

import threading

LEAVING = threading.Event()
