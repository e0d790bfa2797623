-- List the credentials that are taken out: for one project after refused calls of its own, for all after refused calls
-- of several projects.
--
-- params  calls: how many refused calls of one project take a credential out for the project;
--         projects: how many projects, with a refused call each, take a credential out for all;
--         rest_seconds: how long after its last refusal or trial one call may try a credential
-- locks   none
-- clock   now(), as the start of the reading transaction
-- returns credential_id, credential, project (empty: for all), calls, projects, since, rested, reason, jobs (the last
--         five), by credential and project
WITH call AS (
    SELECT credential_id, of_project, call, max(times) AS times FROM tenancy_credentialrefusal
     WHERE NOT disproved GROUP BY credential_id, of_project, call
), counted AS (
    SELECT credential_id, of_project, sum(times)::int AS calls FROM call GROUP BY credential_id, of_project
), shared AS (
    SELECT credential_id, sum(calls)::int AS calls, count(*)::int AS projects FROM counted GROUP BY credential_id
), absent AS (
    SELECT credential_id, '' AS project, calls, projects FROM shared WHERE projects >= %(projects)s::int
     UNION ALL
    SELECT counted.credential_id, of_project, counted.calls, 1 FROM counted JOIN shared USING (credential_id)
     WHERE counted.calls >= %(calls)s::int AND shared.projects < %(projects)s::int
)
SELECT absent.credential_id, credential.name AS credential, absent.project, absent.calls, absent.projects, told.since,
       told.latest < {{now}} - make_interval(secs => %(rest_seconds)s::float8) AS rested, told.reason, told.jobs
  FROM absent
  JOIN tenancy_credential AS credential ON credential.id = absent.credential_id
 CROSS JOIN LATERAL (
        SELECT min(refusal.refused_at) AS since,
               max(greatest(refusal.refused_at, refusal.tried_at)) AS latest,
               (array_agg(refusal.reason ORDER BY refusal.refused_at DESC, refusal.id DESC))[1] AS reason,
               (array_agg(refusal.job::text ORDER BY refusal.refused_at DESC, refusal.id DESC))[1:5] AS jobs
          FROM tenancy_credentialrefusal AS refusal
         WHERE refusal.credential_id = absent.credential_id AND NOT refusal.disproved
           AND absent.project IN ('', refusal.of_project)) AS told
 ORDER BY credential.name, absent.project
