"""
django-q2 as an app of this project, with multiprocessing locks of the `fork` context, as it forks its processes.

django-q2 would take Python's default context. From 3.14 on, that context's locks are files in /dev/shm, which stay
there if every process that has them is killed. Each process that imports django-q2 would also start a further process,
whose task is to remove these files.
"""

import multiprocessing

import django_q.queues

FORKING = multiprocessing.get_context("fork")
django_q.queues.multiprocessing = FORKING

from django_q.apps import DjangoQConfig  # noqa: E402 - it imports django_q.conf, which tries out making a queue


class ForkingConfig(DjangoQConfig):  # django_q has no types
    """django-q2's app config, imported from here so that the lines above run first."""
