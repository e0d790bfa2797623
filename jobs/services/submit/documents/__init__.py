"""Reads many jobs at once, from lines, tables and files that payloads name, and previews the jobs."""
