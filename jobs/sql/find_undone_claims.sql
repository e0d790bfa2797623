-- Find out whether the database lacks claims that were committed: it was put back to an earlier moment.
--
-- params  ids, projects, tokens, recent: parallel arrays, claims that were committed, and whether that is so lately that
--         nothing can have deleted their jobs; reached: what the sequence of tokens had reached
-- locks   none
-- clock   none
-- returns one row: whether it lacks any, and what the sequence has reached
SELECT EXISTS (SELECT FROM unnest(%(ids)s::uuid[], %(projects)s::text[], %(tokens)s::bigint[], %(recent)s::boolean[])
                           AS claimed (id, project, token, recent)
                 LEFT JOIN jobs_job AS job ON job.id = claimed.id AND job.project_id = claimed.project
                WHERE job.fencing_token < claimed.token OR (claimed.recent AND job.id IS NULL))
       OR last_value < %(reached)s::bigint AS lacks, last_value
  FROM jobs_fencing_token
