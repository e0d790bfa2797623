-- Choose a page of a batch's jobs, in the order in which they were submitted.
--
-- ORDER BY and LIMIT stand outside of the first step. Otherwise the planner may read the primary key up to the batch's
-- first or last job, past all jobs submitted before or after it.
--
-- params  batch; after: the last id of the previous page, the nil UUID for the first page; most: rows of a page
-- locks   none
-- clock   none
-- returns id and whether a requeue replaced the job, in order
WITH later AS MATERIALIZED (
    SELECT id FROM jobs_job WHERE batch_id = %(batch)s::uuid AND id > %(after)s::uuid
), page AS MATERIALIZED (
    SELECT id FROM later ORDER BY id LIMIT %(most)s::int
)
-- Do not use EXISTS, which the planner may answer from a hash of all jobs.
SELECT id, (SELECT true FROM jobs_job AS successor WHERE successor.origin_id = page.id LIMIT 1) IS TRUE AS is_replaced
  FROM page
 ORDER BY id;
