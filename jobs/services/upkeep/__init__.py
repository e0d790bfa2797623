"""Work without a request: periodic duties, retention, watches and alerts."""
