-- Find out whether the database lacks claims that were committed. If so, it was put back to an earlier moment.
--
-- params  ids, projects, tokens: parallel arrays, claims that were committed;
--         reached: a token that the sequence had reached
-- locks   none
-- clock   none
-- returns one row of three values: whether the database lacks a claim, or its sequence is behind `reached`; the last
--         token of the sequence; whether the server is a standby. A standby may lack commits that are not replicated yet
SELECT EXISTS (SELECT FROM unnest(%(ids)s::uuid[], %(projects)s::text[], %(tokens)s::bigint[])
                           AS claimed (id, project, token)
                 JOIN jobs_job AS job ON job.id = claimed.id AND job.project_id = claimed.project
                WHERE job.fencing_token < claimed.token)
       OR last_value < %(reached)s::bigint AS lacks, last_value, pg_is_in_recovery()
  FROM jobs_fencing_token
