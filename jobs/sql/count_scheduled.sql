-- Count the jobs that wait for their scheduled time, by batch, by project, and for all projects together.
--
-- params  batches, projects: arrays of ids; everybody: whether to count all projects together, too;
--         most: how many jobs to count at most for each
-- locks   none
-- clock   now(): the transaction's start
-- returns the id of a batch or project (empty: all projects), its number of jobs (`most`: there may be more), and their
--         first and last time. A batch or project without such jobs has no row
WITH RECURSIVE busy AS (
    (SELECT service FROM jobs_job
      WHERE {{scheduled}} AND %(everybody)s::bool
      ORDER BY service, scheduled_at LIMIT 1)
    UNION ALL
    SELECT next.service
      FROM busy
     CROSS JOIN LATERAL (
           SELECT service FROM jobs_job AS job
            WHERE job.service > busy.service AND {{scheduled job}}
            ORDER BY service, scheduled_at LIMIT 1) AS next
)
-- BETWEEN and ORDER BY make each count use its own index. With `=`, PostgreSQL 15 reads the table or jobs_job_due_idx.
SELECT given.id::text AS whose, counted.jobs, edges.first, edges.last
  FROM unnest(%(batches)s::uuid[]) AS given (id)
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT FROM jobs_job AS job
                WHERE job.batch_id BETWEEN given.id AND given.id AND {{scheduled job}}
                ORDER BY batch_id, scheduled_at LIMIT %(most)s::int) AS part) AS counted
 CROSS JOIN LATERAL (
       SELECT min(scheduled_at) AS first, max(scheduled_at) AS last FROM jobs_job AS job
        WHERE job.batch_id = given.id AND {{scheduled job}}) AS edges
 WHERE counted.jobs > 0
UNION ALL
SELECT given.id, counted.jobs, edges.first, edges.last
  FROM unnest(%(projects)s::text[]) AS given (id)
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT FROM jobs_job AS job
                WHERE job.project_id BETWEEN given.id AND given.id AND {{scheduled job}}
                ORDER BY project_id, scheduled_at LIMIT %(most)s::int) AS part) AS counted
 CROSS JOIN LATERAL (
       SELECT min(scheduled_at) AS first, max(scheduled_at) AS last FROM jobs_job AS job
        WHERE job.project_id = given.id AND {{scheduled job}}) AS edges
 WHERE counted.jobs > 0
UNION ALL
SELECT '', counted.jobs, edges.first, edges.last
  FROM (SELECT min(ends.first) AS first, max(ends.last) AS last
          FROM busy
         CROSS JOIN LATERAL (
               SELECT min(scheduled_at) AS first, max(scheduled_at) AS last FROM jobs_job AS job
                WHERE job.service = busy.service AND {{scheduled job}}) AS ends) AS edges
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         -- Without ORDER BY the planner may use jobs_job_due_idx, and read past every job that waits for a retry.
         FROM (SELECT FROM jobs_job WHERE {{scheduled}}
                ORDER BY service, scheduled_at LIMIT %(most)s::int) AS part) AS counted
 WHERE edges.last IS NOT NULL
