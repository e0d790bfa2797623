"""Batches: their list and pages, and what a person may do with a whole batch."""
