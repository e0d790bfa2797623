"""Work that nobody asks for: duties, retention, watching and telling."""
