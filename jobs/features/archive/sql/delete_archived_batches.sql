-- Delete batches that are in the archive, with their counts, tags and pauses.
--
-- params  ids: of ended batches; project: the batches' project
-- locks   the deleted rows, in id order
-- clock   none
-- returns the ids deleted. A batch stays while a job or a message about it remains
WITH candidate AS MATERIALIZED (
    SELECT batch.id
      FROM jobs_batch AS batch
     WHERE batch.id = ANY(%(ids)s::uuid[])
       AND batch.project_id = %(project)s::text
       AND batch.finished_at IS NOT NULL
       AND {{nothing_in batch}}
     ORDER BY batch.id
       FOR UPDATE OF batch
), {{delete_batches}}
