-- Read which objects of the result store jobs name, and by which claim a running job may still name one.
--
-- params  ids; projects: the jobs' projects
-- locks   none
-- clock   none
-- returns id, status, fencing token, and the string that replaces a result in the store, or null. A large result
--         in the row is not decompressed for that
SELECT id, status, fencing_token,
       CASE WHEN octet_length(result_text) < 1000 OR pg_column_size(result) < 1000
            THEN substring({{result_text job}} FROM '^"([^"\\]*)"$') END
  FROM jobs_job AS job
 WHERE id = ANY(%(ids)s::uuid[]) AND project_id = ANY(%(projects)s::text[])
