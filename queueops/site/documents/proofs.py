"""The publicly known faults of queues and gateways, and the tests that show that they cannot happen here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from queueops.core.generated_docs import generated_page

FIGURES = "docs/_site/proof-figures.json"  # written by `make proofs`


@dataclass(frozen=True, slots=True)
class KnownDefect:
    """A defect that was reported in public, and the tests that fail if QueueOps has it."""

    title: str
    seen: str  # the reported defect, in our own words
    threads: Sequence[tuple[str, str]]  # repository and number, address
    here: str  # why it cannot happen here
    tests: Sequence[str]


def _thread(repository: str, number: int) -> tuple[str, str]:
    return f"{repository}#{number}", f"https://github.com/{repository}/issues/{number}"


PROOFS = (
    KnownDefect(
        "A concurrency limit is passed by workers that claim at the same time",
        "Each of two workers counts the running jobs, finds one place free, and takes another job: SKIP LOCKED keeps "
        "them from the same row, not from the same place.",
        [_thread("janbjorge/pgqueuer", 761)],
        "A claim locks the counters of every limit that applies, in one order, decides, and charges them in the "
        "transaction that claims.",
        [
            "tests/limits/test_races.py::test_32_deciders_are_granted_exactly_the_capacity",
            "tests/limits/test_races.py::test_32_claimers_start_what_a_shared_limit_admits_and_not_one_more",
        ],
    ),
    KnownDefect(
        "The rescue of lost jobs overwrites one that has just completed",
        "The rescue reads which jobs are stuck, then writes by their ids. A job that completes in between is run "
        "again; or the late worker overwrites the run that took its place.",
        [_thread("riverqueue/river", 1302), _thread("sidequestjs/sidequest", 208)],
        "Every write after the claim names the job's token, which each claim raises, and changes nothing where the "
        "token or the state is another.",
        [
            "tests/jobs/test_claim_races.py::test_a_lapsed_job_is_completed_or_rescued_and_never_both",
            "tests/faults/test_zombies.py::test_a_zombies_writes_change_nothing_and_each_is_logged[short]",
            "tests/jobs/test_r9_interleavings.py::test_a_job_has_one_owner_in_every_order_of_one_operation_each",
        ],
    ),
    KnownDefect(
        "Places of a limit leak until nothing runs any more",
        "What was taken from the queue but never started, or whose worker died, keeps its place for ever. When all "
        "places are lost so, the queue stands still beside idle workers.",
        [
            _thread("hatchet-dev/hatchet", 4494),
            _thread("PrefectHQ/prefect", 21794),
            _thread("kestra-io/kestra", 14356),
        ],
        "A place is charged in the transaction of the claim, and is free when the job's lease has ended, whoever died.",
        [
            "tests/limits/test_kills.py::test_what_a_killed_process_held_comes_back_when_its_lease_ends",
            "tests/limits/test_kills.py::test_a_process_killed_before_its_decision_is_committed_has_used_nothing",
            "tests/ratelimits/limiter/test_settle.py::test_what_a_crashed_holder_held_is_reclaimed_once_its_time_has_passed",
        ],
    ),
    KnownDefect(
        "A budget blocks what it has room for, or lets pass what it has none for",
        "The figure that is enforced lives beside the ledger and drifts from it: calls are refused at twice the real "
        "spend until it corrects itself; elsewhere a key goes on beyond three times its budget.",
        [_thread("BerriAI/litellm", 40050), _thread("BerriAI/litellm", 36926), _thread("BerriAI/litellm", 26672)],
        "The most that a call can cost is held under the budget's row lock at the claim, and replaced by what it did "
        "cost in the transaction that ends the job: a budget is the sum of its ledger.",
        [
            "tests/ratelimits/money/test_budgets.py::test_a_budget_is_never_passed_and_is_what_its_ledger_says",
            "tests/ratelimits/money/test_budgets.py::test_what_fits_goes_and_what_does_not_takes_nothing",
            "tests/jobs/features/budget_holds/test_budgets.py::test_what_a_crashed_worker_may_have_spent_stays_counted",
        ],
    ),
    KnownDefect(
        "What waits longer than a broker's time-out is run again and again",
        "Work that waits in a worker's memory for its time, or runs longer than the broker expects, is handed to "
        "another worker meanwhile, and done twice.",
        [_thread("celery/celery", 2481), _thread("celery/kombu", 337), _thread("Koed00/django-q", 307)],
        "What waits stays in the table and is claimed when it may run. Leases are renewed for as long as a handler "
        "runs, however long that is.",
        [
            "tests/faults/test_zombies.py::test_a_handler_slower_than_its_lease_runs_once_because_the_lease_is_renewed",
            "tests/jobs/test_claim_races.py::test_every_due_job_is_promoted_once",
        ],
    ),
)


_HEAD = """\
# Proofs

After this page you can check that publicly reported defects of queues and gateways cannot happen here.

What queues and gateways were publicly reported to get wrong, why it cannot happen here, and the tests that fail if it
can. Most of the threads are closed: those projects mend what they are told of. They are named because these are the
mistakes that work of this kind invites.

`make proofs` runs these tests and writes the figures below. Written by `manage.py write_docs` from
`queueops/site/documents/proofs.py`.
"""


def page() -> str:
    """Return the page of proofs, with the figures of the last `make proofs`."""
    told = _told()
    lines = [_HEAD, f"Last run: {told['date']}, commit {told['commit']}."]
    for proof in PROOFS:
        threads = ", ".join(f"[{name}]({address})" for name, address in proof.threads)
        figures = [
            f"    - {text}" for test in proof.tests for name, text in told["figures"] if name.startswith(_name(test))
        ]
        lines += [
            "",
            f"## {proof.title}",
            "",
            f"Reported: {threads}. {proof.seen}",
            "",
            f"Here: {proof.here}",
            "",
            *(f"- [{_sentence(test)}](../../{test.partition('::')[0]})" for test in proof.tests),
            *(["- Counted:", *figures] if figures else []),
        ]
    return "\n".join(lines)


generated_page("explanation/proofs.md")(page)


def _told() -> dict[str, Any]:
    path = Path(settings.BASE_DIR) / FIGURES
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return told


def _name(test: str) -> str:
    return test.partition("::")[2].partition("[")[0]


def _sentence(test: str) -> str:
    return _name(test).removeprefix("test_").replace("_", " ")
