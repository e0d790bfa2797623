"""
A project can live in a database of its own, and one day in a shard: a statement that is given jobs by their ids is
given their project too. Those that are not are listed, and the list may only get shorter.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.sql_files import FILES, statement_of

# Parameters that are ids of jobs, or of what belongs to one job, such as its dead letter.
IDS = re.compile(r"%\((?:\w*_)?(?:ids?|jobs?)\)s")
OF_JOBS = re.compile(r"\bjobs_(?:job|jobevent|deadletter|tag|webhookdelivery)\b")
GIVES_PROJECT = re.compile(r"%\((?:\w*_)?projects?(?:_ids?)?\)s")

NAME_NO_PROJECT = {
    "change_priority",
    "find_lost_claims",
    "insert_dead_letters",
    "lock_dead_letters",
    "log_deferrals",
    "log_refused_writes",
    "note_held_loop",
    "record_progress",
    "renew_leases",
    "resolve_dead_letters",
    "schedule_jobs",
    "set_lanes",
    "transition_jobs",
}


def names_no_project(path: Path) -> bool:
    statement = statement_of(path)
    return bool(IDS.search(statement) and OF_JOBS.search(statement) and not GIVES_PROJECT.search(statement))


def test_a_statement_that_names_a_job_by_its_id_names_its_project_and_the_list_of_the_others_only_shrinks():
    found = {path.stem for path in FILES if names_no_project(path)}
    assert found - NAME_NO_PROJECT == set(), "name the project besides the ids"
    assert NAME_NO_PROJECT - found == set(), "take it off the list"
