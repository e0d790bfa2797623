-- Choose a job of each target that is out and due for a probe, and write the probe down.
--
-- Probes take turns between the projects that have a job to send: first come projects that have sent none. A project's
-- jobs come in this order: jobs on paths that have not failed, then jobs that were no probe lately, then jobs that have
-- not failed. A target gets one probe at a time for a project, and not two within `first`.
--
-- params  first, longest: seconds from the first probe to the second, and at most between two probes;
--         last_doubling: the number of the pause's last doubling;
--         most_probed: jobs remembered as probes;
--         most: jobs of a project looked at;
--         pools: the pools that some executor serves (null: jobs of any pool or none are taken)
-- locks   the breakers' rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns the ids of the jobs
WITH due AS MATERIALIZED (
    SELECT DISTINCT ON (service, target) id FROM jobs_servicebreaker AS breaker
     WHERE opened_at IS NOT NULL AND next_probe_at <= {{now}}
       AND NOT EXISTS (SELECT FROM jobs_job AS job
                        WHERE job.id = probe_job_id
                          -- choose_stranded has parked late probes: a probe that is still ready is being claimed.
                          AND (status IN {{running}} OR {{ready job}}))
       AND NOT EXISTS (SELECT FROM jobs_servicebreaker AS other
                        WHERE other.service = breaker.service AND other.target = breaker.target
                          AND other.probed_at > {{now}} - %(first)s::float8 * interval '1 second')
       -- A paused job would never be claimed, and so its probe would never reach the target.
       AND NOT EXISTS (SELECT FROM jobs_pauseswitch
                        WHERE {{stands_still breaker}})
       -- A project without a job to send, as asked below, would keep its turn: no other project would ever send a probe.
       -- ORDER BY the columns of an index: otherwise the planner reads the whole table for each breaker.
       AND (SELECT true FROM unnest('{read,write}'::text[]) AS one (call_type)
             CROSS JOIN LATERAL (
                   SELECT FROM jobs_job AS job
                    WHERE job.service = breaker.service AND job.call_type = one.call_type
                      AND job.project_id = breaker.project_id AND job.target = breaker.target
                      AND job.status = 'rate_limited' AND NOT job.held
                      AND (job.scheduled_at IS NULL OR job.lane IS NOT NULL)
                      AND (%(pools)s::text[] IS NULL OR job.pool = ANY(%(pools)s::text[]))
                    ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id LIMIT 1) AS waiting
             LIMIT 1) IS TRUE
     ORDER BY service, target, probed_at NULLS FIRST, next_probe_at
), breaker AS MATERIALIZED (
    SELECT * FROM jobs_servicebreaker WHERE id IN (SELECT id FROM due) ORDER BY id FOR UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT DISTINCT ON (breaker.id) breaker.id AS breaker_id, waiting.id
      FROM breaker
     CROSS JOIN LATERAL (
           -- Jobs that are parked for a limit may be probes, too.
           SELECT id, path, retry_count, eligible_since FROM jobs_job
            WHERE service = breaker.service AND call_type = ANY('{read,write}') AND project_id = breaker.project_id
              AND target = breaker.target AND status = 'rate_limited' AND NOT held
              AND (scheduled_at IS NULL OR lane IS NOT NULL)
              -- A probe that nobody claims would keep the target's other jobs waiting.
              AND (%(pools)s::text[] IS NULL OR pool = ANY(%(pools)s::text[]))
            LIMIT %(most)s::int) AS waiting
     ORDER BY breaker.id, path = ANY(breaker.paths), array_position(breaker.probed, waiting.id) DESC NULLS FIRST,
              retry_count > 0, eligible_since, waiting.id
), written AS (
    UPDATE jobs_servicebreaker AS breaker
       SET probe_job_id = chosen.id, probed = (chosen.id || breaker.probed)[:%(most_probed)s::int], probed_at = {{now}},
           probes = probes + 1,
           next_probe_at = {{now}} + least(%(longest)s::float8,
                                         %(first)s::float8 * 2 ^ least(probes, %(last_doubling)s::int))
                                   * interval '1 second'
      FROM chosen WHERE breaker.id = chosen.breaker_id
)
SELECT id FROM chosen
