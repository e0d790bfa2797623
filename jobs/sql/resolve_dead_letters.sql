-- Resolve open dead letters, log this on the letters' jobs, and take requeued jobs out of the counts of failed jobs.
--
-- A requeued job counts once, by its latest requeue: the insertion of the new job counts it as queued, in the same
-- transaction.
--
-- params  ids, new_jobs (null where discarded): parallel arrays; resolution, actor, note: the same for all;
--         operation: the bulk operation that these letters are a chunk of, or null
-- locks   the rows, in id order; then the counters of this backend alone
-- clock   now(): the transaction's start
-- returns the ids resolved; a letter that is left out was resolved before
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::uuid[], %(new_jobs)s::uuid[]) AS t (id, new_job)
), candidate AS MATERIALIZED (
    SELECT id FROM jobs_deadletter
     WHERE id = ANY(%(ids)s::uuid[]) AND resolution IS NULL
     ORDER BY id
       FOR UPDATE
), moved AS (
    UPDATE jobs_deadletter AS letter
       SET resolution = %(resolution)s::text, resolved_by = %(actor)s::text, resolved_at = {{now}},
           note = %(note)s::text, requeued_as_id = given.new_job,
           operation_id = %(operation)s::uuid
      FROM candidate JOIN given USING (id)
     WHERE letter.id = candidate.id
    RETURNING letter.id, letter.job_id, letter.project_id, letter.batch_id, letter.requeued_as_id
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, event_type, message, data)
    SELECT moved.job_id, moved.project_id, job.user_id, moved.batch_id, 'audit', %(note)s::text,
           jsonb_strip_nulls(jsonb_build_object(
               'dead_letter', moved.id, 'resolution', %(resolution)s::text, 'requeued_as', moved.requeued_as_id,
               'actor', %(actor)s::text))
      FROM moved JOIN jobs_job AS job ON job.id = moved.job_id
), counted AS (
    INSERT INTO jobs_jobcount AS total (project_id, batch_id, shard, failed)
    SELECT project_id, coalesce(batch_id, '00000000-0000-0000-0000-000000000000'), pg_backend_pid(), -count(*)
      FROM moved
     WHERE requeued_as_id IS NOT NULL
     GROUP BY GROUPING SETS ((project_id), (project_id, batch_id))
    HAVING GROUPING(batch_id) = 1 OR batch_id IS NOT NULL
     ORDER BY 1, 2
    {{add_counts}}
)
SELECT id FROM moved
