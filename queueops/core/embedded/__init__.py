"""The embedded PostgreSQL server, for installations that set no DATABASE_URL."""
