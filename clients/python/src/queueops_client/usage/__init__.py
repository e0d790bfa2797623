"""Counting the use of an allowance: the outbox, the quota's cache, and the trackers around them."""
