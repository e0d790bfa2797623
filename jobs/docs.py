"""Generated pages about jobs: their states, their events and the handlers."""

from __future__ import annotations

import json
from collections.abc import Iterable

from jobs.event_catalogue import BY_FIELD, FAILED_CALLS, OF_A_FAILED_CALL, OPERATIONS, TYPES
from jobs.handlers.registry import Handler, all_handlers
from jobs.states import RUNNING, SHOWN, SHOWN_VERDICTS, TERMINAL, TRANSITIONS, WAITING, JobState, Transition
from queueops.core.generated_docs import generated_page, table

_STATES_HEAD = """\
# States of a job

After this page you can look up what each state means and which moves between states there are.

Written by `manage.py write_docs` from `jobs/states.py`; change it there. The database refuses every other
move. Each move is logged as an event in the transaction that makes it.
"""

_HANDLERS_HEAD = """\
# Handlers

After this page you can look up the kinds that come with QueueOps and their payloads.

Written by `manage.py write_docs` from the handlers that come with QueueOps. Those of your own apps are
listed by a running installation under `/api/v1/handlers/`. [Write a handler](../how-to/write-a-handler.md).
"""


@generated_page("reference/states.md")
def states_page() -> str:
    return "\n".join(
        [
            _STATES_HEAD,
            *_states_table(),
            "",
            "## Verdicts of a batch",
            "",
            *_verdicts_table(),
            "",
            "## Moves",
            "",
            *_moves_table(),
            "",
            "## Diagram",
            "",
            *_diagram(),
        ]
    )


_EVENTS_HEAD = """\
# Events: the log of a job

After this page you can read the log of a job and what a failed call writes into it.

Written by `manage.py write_docs` from `jobs/event_catalogue.py` and `jobs/states.py`. Each is written in the
transaction of what it tells of, and never changed. They are on a job's page, at `GET /api/v1/jobs/<id>/events/`
(`?event_type=`), in sockets ([live protocol](live-protocol.md)), and in the archive. In a sealed project
`message` and `data` are encrypted.
"""
_FAILED_HEAD = """
## A failed call

Each writes exactly one event into its job's log: `state_change`, with the error in `message` and `data`. To find them:
events whose `data` has an `error_code`.
"""

_FAILED_TAIL = """\
An attempt that makes several calls has them in `calls`, also one that went well in the end. The calls that send a
batch to a provider, and ask for its results, belong to no job: the batch's page shows their last error. Each line of
the batch that failed is an event of its job as above, with `via`. A job that fails before any call (`reject`) has a
dead letter and an event with `error_code`, too. One whose process died has no `error_code` where it runs again: nobody
knows what its call came to, and `crash_count` has it."""


@generated_page("reference/events.md")
def events_page() -> str:
    moves = [[f"`{name}`", _steps(edge), edge.when] for name, edge in TRANSITIONS.items()]
    failed = [
        [what, ", ".join(f"`{one}`" for one in filter(None, (move, other)))] for what, move, other in FAILED_CALLS
    ]
    fields = [[f"`{name}`", meaning] for name, meaning in OF_A_FAILED_CALL.items()]
    others = [[f"`{kind}`", f"`operation`: `{name}`", told] for name, (kind, told) in OPERATIONS.items()]
    others += [[f"`{kind}`", f"has `{name}`", told] for name, (kind, told) in BY_FIELD.items()]
    parts = [
        _EVENTS_HEAD,
        *table(["type", "tells"], [[f"`{name}`", told] for name, told in TYPES.items()]),
        _FAILED_HEAD,
        *table(["what failed", "move"], failed),
        "",
        *table(["of `data`", "is"], fields),
        "",
        _FAILED_TAIL,
        "",
        "## Moves",
        "",
        *table(["move", "`from_status` → `to_status`", "when"], moves),
        "",
        "## All others",
        "",
        *table(["type", "known by", "tells"], others),
    ]
    return "\n".join(parts)


def _steps(edge: Transition) -> str:
    to = f"`{edge.through}` → `{edge.target}` (two events)" if edge.through else f"`{edge.target}`"
    return f"{_names(edge.sources)} → {to}"


@generated_page("reference/handlers.md")
def handlers_page() -> str:
    own = [found for found in all_handlers() if found.function.__module__.startswith("jobs.handlers.")]
    parts = [_HANDLERS_HEAD]
    for found in own:
        parts += _handler_section(found)
    return "\n".join(parts)


def _states_table() -> list[str]:
    rows = []
    for state in JobState:
        group = "waiting" if state in WAITING else "running" if state in RUNNING else "ended"
        targets = {edge.target for edge in TRANSITIONS.values() if state in edge.sources}
        rows.append([f"`{state}`", group, SHOWN[state].meaning, _names(targets) or "terminal"])
    return table(["state", "is", "meaning", "may go to"], rows)


def _verdicts_table() -> list[str]:
    rows = [[f"`{verdict}`", shown.words, shown.meaning] for verdict, shown in SHOWN_VERDICTS.items()]
    return table(["verdict", "words", "meaning"], rows)


def _moves_table() -> list[str]:
    rows = [
        [f"`{name}`", _names(edge.sources), f"`{edge.target}`", edge.when, _conditions(edge)]
        for name, edge in TRANSITIONS.items()
    ]
    return table(["move", "from", "to", "when", "needs and counts"], rows)


def _conditions(edge: Transition) -> str:
    said = {
        "needs the lease": edge.needs_lease,
        "counts an attempt": edge.consumes_attempt,
        "counts a crash": edge.counts_crash,
        "counts a deferral": edge.counts_deferral,
        f"the log tells it in two steps, through `{edge.through}`": edge.through is not None,
    }
    return ", ".join(words for words, applies in said.items() if applies)


def _diagram() -> list[str]:
    labels: dict[tuple[JobState, JobState], list[str]] = {}
    for name, edge in TRANSITIONS.items():
        if name != "cancel":  # its arrows, one from each state that has not ended, would hide the others
            for source in JobState:
                if source in edge.sources:
                    labels.setdefault((source, edge.target), []).append(name)
    return [
        "`cancel`, possible from every state that has not ended, is left out.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {JobState.QUEUED}",
        *(f"    {source} --> {target}: {', '.join(names)}" for (source, target), names in labels.items()),
        *(f"    {state} --> [*]" for state in JobState if state in TERMINAL),
        "```",
    ]


def _handler_section(found: Handler) -> list[str]:
    facts = [
        ["service", "depends on the payload" if callable(found.service) else f"`{found.service}`"],
        ["call type", f"`{found.call_type}`"],
        ["repeatable", _repeatable(found)],
        ["time limit of one attempt", f"{found.timeout.total_seconds():,.0f} s"],
        ["retry policy", f"`{found.retry}`"],
        ["cost", "depends on the payload" if callable(found.cost) else str(found.cost)],
        *([["submitted by", "QueueOps itself; producers can not"]] if found.internal else []),
    ]
    schema = json.dumps(found.schema.json_schema(), indent=2)
    return [
        f"## `{found.kind}`",
        "",
        found.description,
        "",
        *table(["", ""], facts),
        "",
        "The payload's schema:",
        "",
        "```json",
        schema,
        "```",
        "",
    ]


def _repeatable(found: Handler) -> str:
    if found.sends_effect_key:
        return "yes: the provider is sent the job's effect key"
    if callable(found.idempotent):
        return "depends on the payload"
    return "yes" if found.idempotent else "no"


def _names(states: Iterable[JobState]) -> str:
    wanted = set(states)
    return ", ".join(f"`{state}`" for state in JobState if state in wanted)
