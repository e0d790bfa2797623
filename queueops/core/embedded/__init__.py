"""The PostgreSQL that comes along."""
