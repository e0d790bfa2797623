"""The database's own guard against illegal transitions, written from jobs/states.py."""

from __future__ import annotations

from jobs.states import LEGAL_MOVES, JobState

RESTORING = "queueops.restoring"  # a setting that is on in a transaction which brings ended jobs back from the archive


def guard_sql() -> str:
    """
    SQL that (re)creates the guard. A migration runs it again whenever the table of transitions changes.

    The legal moves are listed in the triggers' WHEN, which PostgreSQL evaluates without calling a function. A legal
    move costs one comparison; only an illegal move calls PL/pgSQL.
    """
    moves = ", ".join(f"('{source.value}', '{target.value}')" for source, target in sorted(LEGAL_MOVES))
    return f"""
CREATE OR REPLACE FUNCTION jobs_refuse_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Set for one transaction by the repair of a row from its log (repair_jobs.sql).
    IF TG_OP = 'UPDATE' AND current_setting('queueops.repair', true) = 'on' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'illegal transition of job %: % to %',
        NEW.id, CASE TG_OP WHEN 'UPDATE' THEN OLD.status ELSE '(new)' END, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'jobs_job_legal_transition';
END $$;

CREATE OR REPLACE TRIGGER jobs_job_legal_transition BEFORE UPDATE OF status ON jobs_job FOR EACH ROW
    WHEN (OLD.status IS DISTINCT FROM NEW.status AND (OLD.status, NEW.status) NOT IN ({moves}))
    EXECUTE FUNCTION jobs_refuse_transition();

CREATE OR REPLACE TRIGGER jobs_job_begins_queued BEFORE INSERT ON jobs_job FOR EACH ROW
    WHEN (NEW.status <> '{JobState.QUEUED.value}'
          AND NOT (NEW.finished_at IS NOT NULL AND coalesce(current_setting('{RESTORING}', true), '') = 'on'))
    EXECUTE FUNCTION jobs_refuse_transition();
"""


DROP_GUARD = """
DROP TRIGGER jobs_job_legal_transition ON jobs_job;
DROP TRIGGER jobs_job_begins_queued ON jobs_job;
DROP FUNCTION jobs_refuse_transition();
"""
