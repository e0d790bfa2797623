"""
Values that a job takes from the results of jobs that it waits for.

Until the job's waiting is over, its payload has `{"$from": {"job": ..., "path": ...}}` in the place of each value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import pydantic_core
from pydantic import ValidationError

from jobs.handlers.registry import Handler
from jobs.services.submit.spec import MAX_IDEMPOTENCY_KEY_LENGTH, InvalidJob, JobSpec, name_in
from queueops.core.errors import fields_of
from queueops.core.sql import run_sql

FROM = "$from"
IN_JSON = b'{"$from":'  # in JSON without spaces
MAX_TAKES = 100
MAX_STEPS = 32
MAX_PATH_LENGTH = 500
# Validation puts these in the place of a value that is not known yet, one after another, until the schema accepts one.
STAND_INS: tuple[Any, ...] = (
    "text",
    "https://example.com/text",
    1,
    0.5,
    True,
    ["text"],
    [["text"]],
    {},
    [],
    "2030-01-01T00:00:00Z",
    "6f1f7c1c-5d0e-4b6e-9a53-6b1f0c1d2e3f",
    None,
)
NO_VALUE_FITS = "must be known when the job is submitted: no value of another job can stand here"
HOW = 'is {"job": an id or idempotency key of `after`, "path": such as "data.total"}'

Step = str | int


class Take(NamedTuple):
    """
    A value of a payload that is taken from another job's result.

    Attributes:
        place: Where the value goes in the payload, as keys and indexes.
        job: The other job's id or idempotency key, as the payload names it.
        path: Where the value stands in the other job's result, as the payload gives it.
    """

    place: tuple[Step, ...]
    job: str
    path: str | list[Step]

    @property
    def steps(self) -> list[Step]:
        """The path as keys and indexes."""
        if isinstance(self.path, str):
            return list(self.path.split(".")) if self.path else []
        return self.path

    @property
    def given(self) -> dict[str, Any]:
        """The placeholder that stands in the payload."""
        return {FROM: {"job": self.job, "path": self.path}}


class NoSuchValue(Exception):
    """A result has no value at a path; the message ends the path at the first missing step: `has no 'data.total'`."""


def takes_of(payload: Any, after: Sequence[UUID | str]) -> tuple[Take, ...]:
    """
    Find and check the values that a payload takes from other jobs.

    Raises:
        InvalidJob: With the place of each fault.
    """
    takes, faults = [], {}
    for place, given in _found(payload):
        take, fault = _read(place, given[FROM])
        if take is not None and not fault and name_in(take.job) not in after:
            fault = f"takes from {take.job}, which is not among `after`"
        if fault:
            faults[field_of(place)] = [fault]
        elif take is not None:
            takes.append(take)
    if len(takes) > MAX_TAKES:
        faults["payload"] = [f"takes {len(takes):,} values of other jobs; at most {MAX_TAKES}"]
    if faults:
        raise InvalidJob("What the payload takes from other jobs is not valid.", fields=faults)
    return tuple(takes)


def validate_with_stand_ins(handler: Handler, payload: Any, takes: Sequence[Take]) -> Any:
    """
    Validate a payload, as far as that can be done before its values are known.

    Returns:
        The payload as the handler's schema reads it, with a fitting stand-in for each value. Limits count this payload
        until the values are known.

    Raises:
        InvalidJob
    """
    tried = [0] * len(takes)
    while True:
        standing = ((take.place, STAND_INS[n]) for take, n in zip(takes, tried, strict=True))
        try:
            return handler.schema.validate_json(pydantic_core.to_json(with_values(payload, standing)))
        except ValidationError as error:
            fields = fields_of(error, prefix="payload", known=handler.payload_fields)
        unfit = {n: where for n, take in enumerate(takes) if (where := _below(field_of(take.place), fields))}
        lost = {n for n in unfit if tried[n] + 1 == len(STAND_INS)}
        if lost or not unfit:
            elsewhere = fields.keys() - {one for where in unfit.values() for one in where}
            told = {name: fields[name] for name in elsewhere}
            told |= {field_of(takes[n].place): [NO_VALUE_FITS] for n in lost}
            raise InvalidJob(f"The payload does not fit {handler.kind!r}.", fields=told)
        for n in unfit:
            tried[n] += 1


def with_values(payload: Any, values: Iterable[tuple[Sequence[Step], Any]]) -> Any:
    """Return a copy of a payload with these values in their places; an empty place stands for the whole payload."""
    made = json.loads(json.dumps(payload))
    for place, value in values:
        if not place:
            return value
        parent = made
        for step in place[:-1]:
            parent = parent[step]
        parent[place[-1]] = value
    return made


def value_at(result: Any, steps: Sequence[Step]) -> Any:
    """
    Raises:
        NoSuchValue
    """
    value = result
    for n, step in enumerate(steps):
        where = ".".join(map(str, steps[: n + 1]))
        if isinstance(value, dict) and str(step) in value:
            value = value[str(step)]
        elif isinstance(value, list) and str(step).isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise NoSuchValue(f"has no {where!r}")
    return value


def note_takes(
    jobs: Mapping[UUID, tuple[JobSpec, Sequence[Take]]], project_id: str, id_of: Callable[[UUID | str], UUID]
) -> None:
    """
    Store which values jobs take, in the transaction that has just inserted them. Without such jobs no statement runs.

    Args:
        id_of: Returns the id of the job that a name in `after` stands for.
    """
    if jobs:
        run_sql(
            "jobs",
            "note_takes",
            {
                "project": project_id,
                "ids": list(jobs),
                "takes": [json.dumps(_as_json(*told, id_of)) for told in jobs.values()],
            },
        )


def read_takes(told: Mapping[str, Any]) -> list[tuple[UUID, Take]]:
    """Read a job's column `takes`: the values that it takes, and the id of the job that each comes from."""
    return [
        (UUID(one["job"]), Take(tuple(one["place"]), one.get("as", one["job"]), one["path"])) for one in told["values"]
    ]


def as_submitted(payload: Any, told: Mapping[str, Any] | None) -> Any:
    """Return a stored payload as its producer gave it: with `$from` where values were taken."""
    if told is None or not isinstance(payload, dict):  # a text stands in for the payload if its key is not set here
        return payload
    return with_values(payload, ((take.place, take.given) for _, take in read_takes(told)))


def with_ids(payload: dict[str, Any], names: Mapping[str, UUID]) -> dict[str, Any]:
    """Return a payload whose placeholders name jobs by their ids."""
    if not names:
        return payload
    made: dict[str, Any] = with_values(
        payload,
        (
            (place, {FROM: {**given, "job": str(names[given["job"]])}})
            for place, given in ((place, holder[FROM]) for place, holder in _found(payload))
            if isinstance(given, dict) and isinstance(given.get("job"), str) and given["job"] in names
        ),
    )
    return made


def shown_takes(told: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The values that a job takes, for people and the API: place in its payload, job, path in its result."""
    if told is None:
        return []
    return [
        {"place": field_of(take.place), "job": str(job), "path": ".".join(map(str, take.steps))}
        for job, take in read_takes(told)
    ]


def field_of(place: Sequence[Step]) -> str:
    return ".".join(["payload", *map(str, place)])


def _as_json(spec: JobSpec, takes: Sequence[Take], id_of: Callable[[UUID | str], UUID]) -> dict[str, Any]:
    values = []
    for take in takes:
        job = str(id_of(name_in(take.job)))
        named = {} if take.job == job else {"as": take.job}
        values.append({"place": list(take.place), "job": job, "path": take.path, **named})
    # The job's columns do not say whether its producer gave the cost and the model.
    return {"values": values, "cost": spec.cost, "model": spec.model}


def _found(payload: Any) -> Iterator[tuple[tuple[Step, ...], dict[str, Any]]]:
    return placeholders(payload, lambda value: value.keys() == {FROM})


def placeholders(
    payload: Any, is_one: Callable[[dict[str, Any]], bool]
) -> Iterator[tuple[tuple[Step, ...], dict[str, Any]]]:
    """Each object that stands for a value, and its place. Without recursion: a payload may be deep."""
    left: list[tuple[tuple[Step, ...], Any]] = [((), payload)]
    while left:
        place, value = left.pop()
        if isinstance(value, dict):
            if is_one(value):
                yield place, value
            else:
                left += reversed([((*place, key), one) for key, one in value.items()])
        elif isinstance(value, list):
            left += reversed([((*place, n), one) for n, one in enumerate(value)])


def _read(place: tuple[Step, ...], given: Any) -> tuple[Take | None, str]:
    """Return the placeholder, and what is wrong with it."""
    if not isinstance(given, dict) or not given.keys() <= {"job", "path"} or not _is_a_name(given.get("job")):
        return None, f"{FROM} {HOW}"
    path = given.get("path", "")
    is_list = isinstance(path, list) and all(isinstance(one, str) or type(one) is int for one in path)
    if not isinstance(path, str) and not is_list:
        return None, f"{FROM}: path is a text such as data.total, or a list of keys and indexes"
    take = Take(place, given["job"], path)
    if any(one == "" or (type(one) is int and one < 0) for one in take.steps):
        return take, f"{FROM}: path has an empty step or a negative index"
    if len(take.steps) > MAX_STEPS or sum(len(str(one)) for one in take.steps) > MAX_PATH_LENGTH:
        return take, f"{FROM}: path has at most {MAX_STEPS} steps and {MAX_PATH_LENGTH} characters"
    return take, ""


def _is_a_name(given: Any) -> bool:
    return isinstance(given, str) and 0 < len(given) <= MAX_IDEMPOTENCY_KEY_LENGTH and "\0" not in given


def _below(field: str, fields: Iterable[str]) -> list[str]:
    return [one for one in fields if one == field or one.startswith(f"{field}.")]
