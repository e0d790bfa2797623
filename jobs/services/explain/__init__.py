"""Explains why work waits, when it will run, and what has happened. This package only reads."""
