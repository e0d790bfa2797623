"""A feature that no product has: tests/architecture/test_features.py adds it, and looks where it shows."""
