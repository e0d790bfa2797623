"""Why work waits, when it goes, and what has happened. Reads alone."""
