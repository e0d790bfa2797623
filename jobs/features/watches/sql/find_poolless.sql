-- Count, by kind, a bounded number of jobs that no pool names.
--
-- params  most: jobs read in lanes, and as many outside of lanes
-- locks   none
-- clock   none
-- returns kind, how many jobs, since when the oldest of them waits, and their projects
SELECT kind, count(*)::int AS jobs, min(eligible_since) AS since,
       array_agg(DISTINCT project_id ORDER BY project_id) AS projects
  FROM ((SELECT kind, eligible_since, project_id FROM jobs_job
          WHERE pool = '' AND {{claimable}}
          LIMIT %(most)s::int)
         UNION ALL
        (SELECT kind, eligible_since, project_id FROM jobs_job
          WHERE pool = '' AND {{in_lane}}
          LIMIT %(most)s::int)) AS job
 GROUP BY kind
 ORDER BY kind
