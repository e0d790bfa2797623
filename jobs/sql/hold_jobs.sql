-- Hold the jobs that a pause switch covers, which takes them out of the ready index; a bounded number in a statement.
--
-- Claims skip these jobs from the moment the switch is committed; holding them also keeps the head of the index free of
-- rows that every claim would have to skip. Running jobs are held too, as a retry would put them back into the index.
--
-- params  scope, key: they name the switch, together with `pool`;
--         batch, service, kind, pool: which jobs the switch covers (null: any). If a kind has only one service, that
--         service is given, too, as the indexes begin with it;
--         most: how many jobs in one statement
-- locks   the switch's row, shared, so that a resume that deletes the switch runs before or after this statement;
--         then the held rows, in id order
-- clock   now(): the transaction's start
-- returns one row: how many were found, and how many of them were held
WITH switch AS MATERIALIZED (
    SELECT id FROM jobs_pauseswitch WHERE scope = %(scope)s::text AND key = %(key)s::text AND pool = coalesce(%(pool)s::text, '')
       FOR KEY SHARE
), found AS MATERIALIZED (
    (SELECT id FROM jobs_job
      WHERE batch_id = %(batch)s::uuid AND NOT held
        AND status IN {{unfinished}}
      LIMIT %(most)s::int)
    UNION
    (SELECT id FROM jobs_job
      WHERE %(batch)s::uuid IS NULL AND {{ready}}
        AND (service = %(service)s::text OR %(service)s::text IS NULL)
        AND (kind = %(kind)s::text OR %(kind)s::text IS NULL)
        AND (coalesce(pool, '') = %(pool)s::text OR %(pool)s::text IS NULL)
      LIMIT %(most)s::int)
    UNION
    (SELECT id FROM jobs_job
      WHERE %(batch)s::uuid IS NULL AND status = 'rate_limited' AND NOT held
        AND (service = %(service)s::text OR %(service)s::text IS NULL)
        AND (kind = %(kind)s::text OR %(kind)s::text IS NULL)
        AND (coalesce(pool, '') = %(pool)s::text OR %(pool)s::text IS NULL)
      LIMIT %(most)s::int)
    UNION
    (SELECT id FROM jobs_job
      WHERE %(batch)s::uuid IS NULL AND scheduled_at IS NOT NULL AND status IN ('queued', 'retried') AND NOT held
        AND (service = %(service)s::text OR %(service)s::text IS NULL)
        AND (kind = %(kind)s::text OR %(kind)s::text IS NULL)
        AND (coalesce(pool, '') = %(pool)s::text OR %(pool)s::text IS NULL)
      LIMIT %(most)s::int)
    UNION
    (SELECT id FROM jobs_job
      WHERE %(batch)s::uuid IS NULL AND status IN {{running}} AND NOT held
        AND (service = %(service)s::text OR %(service)s::text IS NULL)
        AND (kind = %(kind)s::text OR %(kind)s::text IS NULL)
        AND (coalesce(pool, '') = %(pool)s::text OR %(pool)s::text IS NULL)
      LIMIT %(most)s::int)
    LIMIT %(most)s::int
), candidate AS MATERIALIZED (
    SELECT id FROM jobs_job
     WHERE id = ANY(ARRAY(SELECT id FROM found)) AND NOT held
       AND status IN {{unfinished}}
       AND EXISTS (SELECT FROM switch)
     ORDER BY id
       FOR UPDATE
), moved AS (
    UPDATE jobs_job AS job SET held = true, updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id
)
SELECT (SELECT count(*) FROM found)::int AS found, (SELECT count(*) FROM moved)::int AS held
