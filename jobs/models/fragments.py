"""SQL fragments for the statements, generated from jobs/states.py and the features: lists of states, their counts."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.features import FEATURES
from jobs.features.flow.models import BACKLOG, BINS, SUMS
from jobs.features.pools.models import POOLED
from jobs.states import RUNNING, TERMINAL, UNFINISHED, WAITING, JobState

from .running import PauseSwitch

SCORE_OF_AGE = """CASE WHEN job.age >= rule.promote_after_seconds + rule.next_first_after_seconds
                THEN least(rule.next_cap, rule.next_first_score + coalesce(floor(
                         (job.age - rule.promote_after_seconds - rule.next_first_after_seconds)
                         / rule.next_step_seconds), 0))
                WHEN job.age >= rule.promote_after_seconds THEN rule.next_base
                WHEN job.age >= rule.first_after_seconds
                THEN least(rule.cap, rule.first_score + coalesce(floor(
                         (job.age - rule.first_after_seconds) / rule.step_seconds), 0))
                ELSE rule.base END::float8"""


def written_fragments() -> dict[str, str]:
    """
    Return the text of each fragment by its name.

    - `waiting`, `running`, `unfinished`, `ended`: the states of the group, for `IN`.
    - `counts`: the counting columns of jobs_jobcount. `sum_counts`: the sum of each.
    - `count_moves`: the change of each column by moves from `left_status` to the parameter `target`.
    - `add_counts`: on conflict, adds the new row to the counts that its shard has.
    - `sum_unfinished`: how many jobs have not ended.
    - `stands_still`: whether the pause switch with this `scope` and `key` stops the project of `job`.
    - `of_pool`: whether an executor that serves all jobs, or in the variant `pooled` those of one pool, may take `job`.
    - `score_of_age`: the score of a job of `age` seconds by the aging `rule` of its tier and of the tier it rises to.
    - `count_answers` and so on: a histogram of FlowSample. `add_flow`: on conflict, adds the new row to the kept one.
    - `due_of_features`: whether a feature has something to do for executors that have nothing else to do.
    - `delete_with_jobs`: deletes the rows of features that go with the jobs of `candidate`.
    - `keeps_batch`: the rows of features that keep the batch whose id is `job.id`.
    - `backlog`: the array FlowSample.backlog, from the columns of `sums` and `letters.open`.
    """
    return {
        "waiting": _listed(WAITING),
        "running": _listed(RUNNING),
        "unfinished": _listed(UNFINISHED),
        "ended": _listed(TERMINAL),
        "counts": ", ".join(JobState),
        "sum_counts": ", ".join(f"sum({state}) AS {state}" for state in JobState),
        "count_moves": ",\n           ".join(_count_moves(state) for state in JobState),
        "add_counts": "ON CONFLICT (project_id, batch_id, shard) DO UPDATE\n   SET "
        + ",\n       ".join(f"{state} = total.{state} + excluded.{state}" for state in JobState),
        "sum_unfinished": f"coalesce(sum({' + '.join(sorted(UNFINISHED))}), 0)",
        "stands_still": f"(scope = 'global' AND job.project_id <> '{PauseSwitch.EXEMPT}'"
        " OR scope = 'project' AND key = job.project_id)",
        "of_pool": "true",
        f"of_pool@{POOLED}": "job.pool = %(pool)s::text",
        "due_of_features": "\n    OR ".join(condition.strip() for feature in FEATURES for condition in feature.due),
        "delete_with_jobs": ", ".join(_delete_with_jobs(table) for one in FEATURES for table in one.goes_with_jobs),
        "keeps_batch": " UNION ALL ".join(
            f"SELECT FROM {table} AS kept WHERE kept.batch_id = job.id"
            for one in FEATURES
            for table in one.keeps_batches
        ),
        "score_of_age": SCORE_OF_AGE,
        **{f"count_{name}": _count_bins(*of) for name, of in BINS.items()},
        "add_flow": ",\n           ".join(
            [f"{name} = kept.{name} + excluded.{name}" for name in SUMS] + [*map(_add_bins, BINS)]
        ),
        "backlog": ", ".join(f"coalesce(sums.{name}, 0)" if name in UNFINISHED else "letters.open" for name in BACKLOG),
    }


def _count_bins(column: str, bins: Iterable[int]) -> str:
    counts = (f"coalesce(sum(n) FILTER (WHERE {column} = {one}), 0)" for one in bins)
    return f"ARRAY[{', '.join(counts)}]::bigint[]"


def _add_bins(name: str) -> str:
    rows = f"unnest(kept.{name}, excluded.{name}) WITH ORDINALITY AS t (a, b, bin)"
    return f"{name} = ARRAY(SELECT coalesce(a, 0) + b FROM {rows} ORDER BY bin)"  # noqa: S608 - our own words


def _listed(states: Iterable[JobState]) -> str:
    return "({})".format(", ".join(f"'{state}'" for state in sorted(states)))


def _count_moves(state: JobState) -> str:
    entered = f"(%(target)s::text = '{state}')::int * count(*)"
    return entered if state in TERMINAL else f"{entered} - count(*) FILTER (WHERE left_status = '{state}')"


def _delete_with_jobs(table: str) -> str:
    delete = f"DELETE FROM {table} WHERE job_id = ANY(ARRAY(SELECT id FROM candidate))"  # noqa: S608 - our own words
    return f"of_{table} AS (\n    {delete}\n)"
