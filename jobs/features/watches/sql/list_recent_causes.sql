-- The causes of the newest dead letters by project, with the newest letter of each.
--
-- params  seconds: the length of each of two windows (the last ends now, the other where the last begins);
--         most: letters read
-- order   the causes with the newest letters first
-- locks   none
-- clock   now()
-- returns fingerprint, project, and how many letters in the last window, in both windows, and open in both. Then how
--         many seconds ago the oldest letter was made, and service, kind, error code, remediation and batch of the
--         newest
SELECT found.fingerprint, found.project_id, found.last, found.both, found.open_ones,
       extract(epoch FROM {{now}} - found.oldest_at)::float8,
       letter.service, letter.kind, letter.error_code, letter.remediation, letter.batch_id
  FROM (SELECT fingerprint, project_id,
               count(*) FILTER (WHERE created_at > {{now}} - %(seconds)s::float8 * interval '1 second')::int AS last,
               count(*)::int AS both,
               count(*) FILTER (WHERE resolution IS NULL)::int AS open_ones,
               (array_agg(id ORDER BY created_at DESC, id DESC))[1] AS newest,
               min(created_at) AS oldest_at, max(created_at) AS newest_at
          FROM (SELECT id, fingerprint, project_id, created_at, resolution
                  FROM jobs_deadletter
                 WHERE created_at > {{now}} - 2 * %(seconds)s::float8 * interval '1 second'
                 ORDER BY created_at DESC
                 LIMIT %(most)s::int) AS recent
         GROUP BY fingerprint, project_id) AS found
  JOIN jobs_deadletter AS letter ON letter.id = found.newest
 ORDER BY found.newest_at DESC, found.fingerprint, found.project_id
