-- Record that providers refused credentials of pools: one row for each credential and job, which counts the refusals.
--
-- params  names, projects, jobs, calls, reasons, counts: parallel arrays; calls: the claimed job with which each job
--         left in one call; counts: the number of refusals that each counts as
-- order   by credential and job
-- locks   the rows written; others write a job's rows as its call ends, or skip locked rows (disprove_refusals.sql)
-- clock   now(), like a claim in the same transaction: otherwise claimed calls would seem to begin before the refusals
-- returns the rows' jobs
INSERT INTO tenancy_credentialrefusal AS refusal (credential_id, of_project, job, call, reason, times, refused_at)
SELECT credential.id, given.project, given.job, given.call, given.reason, given.counts, {{now}}
  FROM unnest(%(names)s::text[], %(projects)s::text[], %(jobs)s::uuid[], %(calls)s::uuid[], %(reasons)s::text[],
              %(counts)s::int[]) AS given (name, project, job, call, reason, counts)
  JOIN tenancy_credential AS credential ON credential.name = given.name
 ORDER BY credential.id, given.job
    ON CONFLICT (credential_id, job) DO UPDATE
   SET times = refusal.times + excluded.times, call = excluded.call, reason = excluded.reason, refused_at = {{now}}
RETURNING job
