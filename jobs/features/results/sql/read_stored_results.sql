-- Read which objects of the result store jobs name, and who may still come to name one.
--
-- params  ids; projects: whose they are
-- locks   none
-- clock   none
-- returns id, status, fencing token, and what stands in the place of a result that is elsewhere; else null. A result
--         that is in the row is not unpacked for that
SELECT id, status, fencing_token,
       CASE WHEN octet_length(result_text) < 1000 OR pg_column_size(result) < 1000
            THEN substring({{result_text job}} FROM '^"([^"\\]*)"$') END
  FROM jobs_job AS job
 WHERE id = ANY(%(ids)s::uuid[]) AND project_id = ANY(%(projects)s::text[])
