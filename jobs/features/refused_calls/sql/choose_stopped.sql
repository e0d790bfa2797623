-- Find held jobs whose calls have stopped by the fault of their account. Reads a bounded number of held jobs, in id
-- order.
--
-- params  after: the last id that the previous statement read; most: held jobs read;
--         kinds: the kinds whose payloads can be read here; codes: the codes that blame an account
-- locks   none
-- clock   none
-- returns one row: the ids, and the last id read (null: no held job was left)
WITH looked_at AS MATERIALIZED (
    SELECT id, project_id, service, model, credential, lane, kind, status FROM jobs_job
     WHERE held AND id > %(after)s::uuid
     ORDER BY id
     LIMIT %(most)s::int
)
SELECT (SELECT array_agg(id ORDER BY id) FROM looked_at AS job
         WHERE status IN {{waiting}} AND kind = ANY(%(kinds)s::text[])
           AND EXISTS (SELECT FROM jobs_refusedcalls AS refused
                        WHERE stopped_at IS NOT NULL AND code = ANY(%(codes)s::text[]) AND {{call_counted job}})) AS ids,
       (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1) AS last
