"""Counts the use of an allowance: an outbox of uses, a cache of the quota, and the trackers that use both."""
