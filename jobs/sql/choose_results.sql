-- Choose a page of a batch's jobs, in the order in which they were submitted.
--
-- Rows are ordered and cut outside of the first step. Otherwise the planner may walk the primary key to the first or
-- last job of the batch, through all jobs submitted before or after it.
--
-- params  batch; after: the last id of the page before, the nil UUID for the first page; most: rows of a page
-- locks   none
-- clock   none
-- returns id and whether a requeue took the job's place, in order
WITH later AS MATERIALIZED (
    SELECT id FROM jobs_job WHERE batch_id = %(batch)s::uuid AND id > %(after)s::uuid
), page AS MATERIALIZED (
    SELECT id FROM later ORDER BY id LIMIT %(most)s::int
)
SELECT id, EXISTS (SELECT FROM jobs_job AS successor WHERE successor.origin_id = page.id) AS is_replaced
  FROM page
 ORDER BY id;
