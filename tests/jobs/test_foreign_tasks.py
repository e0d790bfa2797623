"""What may not run fails with its name, and ends no worker: a duty of a later version, or anything else queued."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from django_q.signals import pre_execute

from jobs import cluster


def begin(func: Any, **task: Any) -> dict[str, Any]:
    """As a worker begins a task, before it unpacks the arguments that it then calls the function with."""
    given = {"name": "a-task", "func": "x", "args": (), "kwargs": {}, **task}
    pre_execute.send(sender="django_q", func=func, task=given)
    return given


def test_a_function_that_is_not_on_the_list_is_not_called_and_is_named():
    called: list[object] = []

    def later_duty(*given: object) -> None:
        called.append(given)

    task = pickle.loads(pickle.dumps(begin(later_duty, args=(1, 2))))  # noqa: S301 - as it goes to another process
    with pytest.raises(cluster.TaskNotAllowed, match="later_duty is not on the list"):
        later_duty(*task["args"], **task["kwargs"])
    assert called == []


def test_what_is_on_the_list_keeps_its_arguments_and_what_is_not_there_is_left_to_the_library():
    assert begin(cluster.settle_holds, args=(1,))["args"] == (1,)
    assert begin(None, args=(1,))["args"] == (1,)
