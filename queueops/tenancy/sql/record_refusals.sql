-- Keep that providers refused credentials of pools: one row a credential and job, whose rounds are counted.
--
-- params  names, projects, jobs, calls, reasons, counts: parallel arrays; calls: the job with which each left as one call;
--         counts: as how many refusals each counts
-- order   by credential and job
-- locks   the rows written; a job's are written by who ends its call, and by successes, which wait for nobody
-- clock   now(), as the claim that may share the transaction: its calls begin after the refusals
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
