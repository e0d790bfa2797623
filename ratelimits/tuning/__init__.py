"""Changes of limits: by people, by what providers say, and on trial."""
