-- Read all that the archive keeps of each batch.
--
-- params  ids; project: the batches' project
-- order   by id
-- locks   none
-- clock   none
-- returns the id as text, and a JSON document: each column of the batch, its tags, its counts
SELECT batch.id::text,
       jsonb_build_object(
           'batch', to_jsonb(batch),
           'tags', (SELECT coalesce(jsonb_agg(to_jsonb(tag) ORDER BY tag.name), '[]')
                      FROM jobs_tag AS tag WHERE tag.owner_id = batch.id),
           'counts', (SELECT coalesce(jsonb_agg(to_jsonb(count) ORDER BY count.shard), '[]')
                        FROM jobs_jobcount AS count WHERE count.batch_id = batch.id))::text
  FROM jobs_batch AS batch
 WHERE batch.id = ANY(%(ids)s::uuid[]) AND batch.project_id = %(project)s::text
 ORDER BY batch.id
