-- Count waiting jobs by service, state and priority, up to a bound for each service and state. Jobs that wait for their
-- scheduled time are counted as a state of their own, `scheduled`.
--
-- params  most: jobs counted of one service and state; most_services: how many services to count, the first by name
-- locks   none
-- clock   now(): the transaction's start
-- returns service, state, priority, how many; where a service and state add up to `most`, there may be more
WITH RECURSIVE waiting AS (
    (SELECT service FROM jobs_job
      WHERE {{ready}}
      ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id LIMIT 1)
    UNION ALL
    SELECT next.service
      FROM waiting
     CROSS JOIN LATERAL (
           SELECT service FROM jobs_job AS job
            WHERE job.service > waiting.service
              AND {{ready}}
            ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id LIMIT 1) AS next
), parked AS (
    (SELECT service FROM jobs_job
      WHERE status = 'rate_limited' AND NOT held
      ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id LIMIT 1)
    UNION ALL
    SELECT next.service
      FROM parked
     CROSS JOIN LATERAL (
           SELECT service FROM jobs_job AS job
            WHERE job.service > parked.service AND status = 'rate_limited' AND NOT held
            ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id LIMIT 1) AS next
), put_off AS (
    (SELECT service FROM jobs_job
      WHERE {{scheduled}}
      ORDER BY service, scheduled_at LIMIT 1)
    UNION ALL
    SELECT next.service
      FROM put_off
     CROSS JOIN LATERAL (
           SELECT service FROM jobs_job AS job
            WHERE job.service > put_off.service AND {{scheduled}}
            ORDER BY service, scheduled_at LIMIT 1) AS next
)
(SELECT found.service, 'queued', job.priority, count(*)
   FROM (SELECT service FROM waiting LIMIT %(most_services)s::int) AS found
  CROSS JOIN LATERAL (
        SELECT priority FROM jobs_job
         WHERE service = found.service AND {{ready}}
         LIMIT %(most)s::int) AS job
  GROUP BY found.service, job.priority)
UNION ALL
(SELECT found.service, 'rate_limited', job.priority, count(*)
   FROM (SELECT service FROM parked LIMIT %(most_services)s::int) AS found
  CROSS JOIN LATERAL (
        SELECT priority FROM jobs_job
         WHERE service = found.service AND status = 'rate_limited' AND NOT held
         LIMIT %(most)s::int) AS job
  GROUP BY found.service, job.priority)
UNION ALL
(SELECT found.service, 'scheduled', job.priority, count(*)
   FROM (SELECT service FROM put_off LIMIT %(most_services)s::int) AS found
  CROSS JOIN LATERAL (
        -- jobs_job_due_idx does not have this order: by that index the planner would read every job that waits for a
        -- retry.
        SELECT priority FROM jobs_job
         WHERE service BETWEEN found.service AND found.service AND {{scheduled}}
         ORDER BY service, scheduled_at LIMIT %(most)s::int) AS job
  GROUP BY found.service, job.priority)
