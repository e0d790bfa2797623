"""
django-q2 as an app of this project, with locks of the kind that fits the processes it forks.

django-q2 would take Python's default. From 3.14 on those locks are files in /dev/shm, which stay there where every
process that has them is killed. Each process that imports django-q2 would also have one more beside it, which removes
them otherwise.
"""

import multiprocessing

import django_q.queues

FORKING = multiprocessing.get_context("fork")
django_q.queues.multiprocessing = FORKING

from django_q.apps import DjangoQConfig  # noqa: E402 - it imports django_q.conf, which makes a queue to see if it can


class ForkingConfig(DjangoQConfig):  # django_q has no types
    """django-q2's own, under its own name."""
