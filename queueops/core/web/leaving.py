"""An event, set once this web process is told to stop: `/readyz` then says 503, and proxies send requests elsewhere."""

import threading

LEAVING = threading.Event()
