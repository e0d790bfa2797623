"""Whether this web process has been told to stop, and only waits for proxies to send their requests elsewhere."""

import threading

LEAVING = threading.Event()
