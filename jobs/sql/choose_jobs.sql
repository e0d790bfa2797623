-- Choose and lock up to `wanted` jobs in order: class, then turns between projects, then turns between the lanes of a
-- project, then score, then age.
--
-- A queue here is the jobs of one project and tier that are in no lane. The ready index orders each queue by age, and
-- the lane index each lane, so it is enough to read the first jobs of each. The steps, from top to bottom:
--
--   first, front           the first job of each queue.
--   pause, rule, open      the pause switches, the aging rules, the lanes with room.
--   scored, lined          these first jobs with score and class, and their places in the turns.
--   competing              the queues whose first job may be chosen, and how many jobs to read of each.
--   near, deeper, foremost the jobs that compete: jobs of these queues and of open lanes, and probes of targets that
--                          are out.
--   head, classed          each of these jobs with its score and class.
--   flowing, turned        each job's place in the turns of its project's lanes, and in the turns of the projects.
--   ranked, placed         each job's place among all; overdue jobs of lower classes are set between the others.
--
-- Last, the jobs are locked in the order of their places, until enough are locked. More jobs are read than wanted, so
-- that several executors find jobs behind each other's claims. Jobs that are only read are not locked, or other
-- executors would starve. The variant `pooled`, with the parameter `pool`, chooses among the jobs of that pool, by the
-- indexes that begin with the pool.
--
-- params  wanted: most jobs to choose;
--         starved_after: how many other jobs are claimed before the next overdue job of a lower class;
--         starved_every: how many other jobs are claimed between two overdue jobs of lower classes;
--         turn_classes, turn_projects, turn_passes: the passes of projects in this executor's turns, class by class (a
--         pass says when a project's next turn begins, see fair_share.py);
--         turn_nows: for each class, the pass of every project that is not named for it;
--         lanes, rooms, passes: open lanes, the most jobs each may release, and its pass in its project's turns;
--         resting: lanes whose probe a limit has just refused;
--         strange: kinds, each with its pool, that this executor leaves to others;
--         everywhere: whether to read the queues of all projects and tiers;
--         known_projects, known_priorities, known_since: the only queues to read if `everywhere` is false, each from a
--         time on (seconds since 1970);
--         flow_projects, flow_passes: projects with lanes, and the passes of their jobs outside lanes, which take turns
--         with the lanes (0 if a project is not named);
--         most_bytes: the most bytes that the payloads and partial results of all chosen jobs may have together
-- locks   the chosen rows, SKIP LOCKED: never waits
-- clock   now(): the transaction's start
-- returns for each chosen job: the columns of ClaimedJob, and for the turns the project's weight and the job's class
WITH RECURSIVE first AS (
    -- The first job of each queue, found by a step from queue to queue.
    -- Order by all columns of the ready index: otherwise the planner may take another index, and read a project's
    -- finished jobs, too.
    (SELECT project_id, priority, eligible_since, id FROM jobs_job
      WHERE %(everywhere)s::boolean AND {{claimable}} AND {{of_pool}}
      ORDER BY project_id, priority, eligible_since, id LIMIT 1)
    UNION ALL
    SELECT next.*
      FROM first
     CROSS JOIN LATERAL (
           SELECT project_id, priority, eligible_since, id FROM jobs_job AS job
            WHERE (job.project_id, job.priority) > (first.project_id, first.priority)
              AND {{claimable}} AND {{of_pool}}
            ORDER BY project_id, priority, eligible_since, id LIMIT 1) AS next
), front AS (
    -- The rows of `first` or, if `everywhere` is false, the first job of each known queue.
    SELECT * FROM first
     UNION ALL
    SELECT job.*
      FROM unnest(%(known_projects)s::text[], %(known_priorities)s::text[], %(known_since)s::float8[])
           AS known (project, priority, since)
     CROSS JOIN LATERAL (
           SELECT project_id, priority, eligible_since, id FROM jobs_job
            WHERE project_id = known.project AND priority = known.priority
              AND eligible_since >= to_timestamp(known.since)
              AND {{claimable}} AND {{of_pool}}
            ORDER BY eligible_since, id LIMIT 1) AS job
), pause AS MATERIALIZED (
    -- The pause switches.
    SELECT scope, key, pool FROM jobs_pauseswitch
), rule AS MATERIALIZED (
    -- The aging rule of each tier, beside the rule of the tier to which its jobs rise.
    SELECT own.*, next.base AS next_base, next.cap AS next_cap, next.first_after_seconds AS next_first_after_seconds,
           next.first_score AS next_first_score, next.step_seconds AS next_step_seconds
      FROM jobs_agingrule AS own LEFT JOIN jobs_agingrule AS next ON next.tier = own.promote_to
), scored AS (
    -- The first jobs of queues that are not paused, with their scores.
    -- Full joins, here and below, make the planner hash: it does not know how long the lists are, and otherwise would
    -- compare every row with every entry. Rows without a partner are left out afterwards.
    SELECT job.*, rule.base, job.age >= rule.first_after_seconds AS waited_long, {{score_of_age job}} AS score
      FROM (SELECT front.*, date_part('epoch', {{now}} - eligible_since) AS age
              FROM front
             WHERE NOT EXISTS (SELECT FROM pause WHERE {{stands_still front}})
            OFFSET 0) AS job  -- without OFFSET 0, each use of the age would compute it again
      FULL JOIN rule ON rule.tier = job.priority
), lined AS (
    -- These first jobs with their places in their tier: by class, then by the turns of projects, then by score.
    SELECT scored.project_id, priority, eligible_since, id, coalesce(flow.pass, 0) AS pass,
           row_number() OVER (PARTITION BY base, waited_long
                                  ORDER BY scored.class DESC,
                                           greatest(coalesce(pass.at, 0),
                                                    coalesce((%(turn_nows)s::float8[])[scored.class], 0)),
                                           coalesce(flow.pass, 0), score DESC, eligible_since, id) AS nth
      FROM (SELECT *, width_bucket(score, (SELECT array_agg(base::float8 ORDER BY base) FROM jobs_agingrule)) AS class
              FROM scored
            OFFSET 0) AS scored
      FULL JOIN unnest(%(turn_classes)s::int[], %(turn_projects)s::text[], %(turn_passes)s::float8[])
                AS pass (class, project, at) ON pass.class = scored.class AND pass.project = scored.project_id
      FULL JOIN unnest(%(flow_projects)s::text[], %(flow_passes)s::float8[]) AS flow (project, pass)
             ON flow.project = scored.project_id
), competing AS MATERIALIZED (
    -- The queues whose first jobs have the first places of their tier, and as many queues whose first job is overdue.
    -- A queue is left out only if as many jobs of other projects come before it as are read. `heads`: how many jobs to
    -- read of each queue. Weights, here and below, are looked up row by row: for a plain join the planner may begin
    -- with the projects, and do all of this once for each project.
    SELECT project.weight, lined.*,
           ceil((2.0 * %(wanted)s::int + 16) / count(*) OVER (PARTITION BY priority))::int AS heads
      FROM (SELECT * FROM lined WHERE nth <= 2 * %(wanted)s::int + 16 AND id IS NOT NULL OFFSET 0) AS lined
     CROSS JOIN LATERAL (SELECT weight FROM tenancy_project WHERE id = lined.project_id OFFSET 0) AS project
), open AS MATERIALIZED (
    -- The lanes with room. No other lane is read, however many jobs wait in it.
    SELECT * FROM unnest(%(lanes)s::text[], %(rooms)s::int[], %(passes)s::float8[]) AS lane (name, room, pass)
), near AS MATERIALIZED (
    -- The first `heads` jobs of each competing queue.
    SELECT job.id, job.eligible_since, project_id, weight, pass, priority, heads, competing.eligible_since AS since
      FROM competing
     CROSS JOIN LATERAL (
           SELECT competing.id, competing.eligible_since WHERE heads = 1
            UNION ALL
           (SELECT id, eligible_since FROM jobs_job
             WHERE heads > 1 AND project_id = competing.project_id AND priority = competing.priority
               AND (eligible_since, id) >= (competing.eligible_since, competing.id)  -- skips dead index entries
               AND {{claimable}} AND {{of_pool}}
             ORDER BY eligible_since, id
             LIMIT competing.heads)) AS job
), deeper AS (
    -- The queues of which several jobs were to be read. `own`: how many of its jobs were found. `found`: of its tier's.
    SELECT project_id, weight, pass, priority, heads, since, count(*) AS own,
           sum(count(*)) OVER (PARTITION BY priority) AS found
      FROM near
     WHERE heads > 1
     GROUP BY project_id, weight, pass, priority, heads, since
), foremost AS (
    -- All jobs that compete: jobs of queues, jobs of open lanes, and probes.
    SELECT near.id, near.eligible_since, near.project_id, near.weight, near.priority AS tier,
           NULL::text AS lane, near.pass, false AS is_probe
      FROM (SELECT id, eligible_since, project_id, weight, pass, priority FROM near
             UNION ALL
            -- Where most projects have few jobs, projects with more jobs fill the window before a lower tier does.
            SELECT job.id, job.eligible_since, project_id, weight, pass, priority
              FROM deeper
             CROSS JOIN LATERAL (
                   SELECT id, eligible_since FROM jobs_job
                    WHERE project_id = deeper.project_id AND priority = deeper.priority
                      AND eligible_since >= deeper.since
                      AND {{claimable}} AND {{of_pool}}
                    ORDER BY eligible_since, id
                   OFFSET deeper.heads LIMIT 2 * %(wanted)s::int + 16 - deeper.found) AS job
             WHERE own = heads AND found < 2 * %(wanted)s::int + 16) AS near
    UNION ALL
    SELECT job.id, job.eligible_since, job.project_id, project.weight, rule.tier, open.name, open.pass, false
      FROM open
     CROSS JOIN rule
     CROSS JOIN LATERAL (
           -- Expired jobs wait for house-keeping. Skip up to 16 of them, or they would hold up a lane with little room.
           SELECT id, eligible_since, project_id
             FROM (SELECT id, eligible_since, project_id, expires_at FROM jobs_job
                    WHERE lane = open.name AND priority = rule.tier
                      AND {{in_lane}} AND {{of_pool}}
                    ORDER BY eligible_since, id
                    LIMIT open.room + 16) AS first
            WHERE expires_at IS NULL OR expires_at > {{now}}
            LIMIT open.room) AS job
     CROSS JOIN LATERAL (SELECT weight FROM tenancy_project WHERE id = job.project_id OFFSET 0) AS project
     WHERE NOT EXISTS (SELECT FROM pause WHERE {{stands_still job}})
    UNION ALL
    -- A probe may be any job of its lane, and the lane is not read while its target is out.
    SELECT job.id, job.eligible_since, job.project_id, project.weight, job.priority, job.lane, 0, true
      FROM jobs_servicebreaker AS breaker
     CROSS JOIN LATERAL (
           SELECT id, eligible_since, project_id, priority, lane FROM jobs_job
            WHERE id = breaker.probe_job_id AND crash_count < 2 AND {{of_pool}}
           OFFSET 0) AS job  -- OFFSET 0 makes PostgreSQL 15 read by id, not all jobs of each project
     CROSS JOIN LATERAL (SELECT weight FROM tenancy_project WHERE id = job.project_id OFFSET 0) AS project
     WHERE breaker.opened_at IS NOT NULL
       -- If refused probes were not left out, one that is first in its turn would take the free slot of every claim.
       AND job.lane = ANY(%(resting)s::text[]) IS NOT TRUE
       AND NOT EXISTS (SELECT FROM pause WHERE {{stands_still job}})
), head AS (
    -- All jobs that compete, with their scores.
    SELECT job.id, job.eligible_since, job.project_id, job.weight, job.lane, job.pass, job.is_probe,
           job.age >= rule.first_after_seconds AS waited_long,
           {{score_of_age job}} AS score
      FROM (SELECT *, date_part('epoch', {{now}} - eligible_since) AS age FROM foremost OFFSET 0) AS job
      JOIN rule ON rule.tier = job.tier
), classed AS MATERIALIZED (
    -- All jobs that compete, with their classes: the highest tier whose base the score reaches.
    SELECT head.*,
           width_bucket(score, (SELECT array_agg(base::float8 ORDER BY base) FROM jobs_agingrule)) AS class
      FROM head
), flowing AS (
    -- All jobs that compete, with their places in the turns between the lanes of a project.
    SELECT classed.*,
           classed.pass + row_number() OVER (PARTITION BY class, project_id, lane
                                                 ORDER BY score DESC, eligible_since, id) AS flow_turn
      FROM classed
), turned AS (
    -- All jobs that compete, with their places in the turns between projects.
    SELECT flowing.*,
           waited_long AND flowing.class < (SELECT max(class) FROM classed) AS overdue,
           -- The turn's start, not its end: see jobs/services/claim/fair_share.py.
           greatest(coalesce(pass.at, 0), coalesce((%(turn_nows)s::float8[])[flowing.class], 0))
           + (row_number() OVER (PARTITION BY flowing.class, project_id
                                     ORDER BY flow_turn, score DESC, eligible_since, id) - 1)
              / weight AS turn
      FROM flowing
      FULL JOIN unnest(%(turn_classes)s::int[], %(turn_projects)s::text[], %(turn_passes)s::float8[])
                AS pass (class, project, at) ON pass.class = flowing.class AND pass.project = flowing.project_id
), ranked AS (
    -- All jobs that compete, with their places among all; `nth`: an overdue job's place among the overdue jobs.
    SELECT turned.*,
           row_number() OVER in_order AS place, count(*) FILTER (WHERE overdue) OVER in_order AS nth
      FROM turned
     WHERE id IS NOT NULL  -- leaves out turns without a job, which the full join kept
    WINDOW in_order AS (ORDER BY class DESC, turn, flow_turn, score DESC, eligible_since, id ROWS UNBOUNDED PRECEDING)
), placed AS (
    -- The final places. Overdue jobs are set between the others: if they all came first and limits admitted only a few
    -- jobs, no other job would go.
    SELECT id, class, weight, is_probe,
           CASE WHEN overdue
                THEN least(place, %(starved_after)s::float8 + (nth - 1) * %(starved_every)s::float8 + 0.5)
                ELSE place END AS place
      FROM ranked
)
SELECT {{claimed_job job}}, token, weight, class AS tier_class
  FROM (
SELECT found.*, sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_until
  FROM (
SELECT job.*, claim.token, placed.weight, placed.class, {{claim_bytes job}} AS bytes
  FROM (SELECT nextval('jobs_fencing_token') AS token) AS claim
 CROSS JOIN (SELECT id, class, weight, is_probe FROM placed ORDER BY place) AS placed
 CROSS JOIN LATERAL (
       SELECT * FROM jobs_job
        WHERE id = placed.id AND NOT held AND {{kind_of_pool}} <> ALL(%(strange)s::text[]) AND {{of_pool}}
          -- The token was drawn before this lock: a claim with a later token may have begun and ended meanwhile.
          AND fencing_token < claim.token
          AND (status = 'queued' AND scheduled_at IS NULL OR status = 'rate_limited' AND lane IS NOT NULL)
          AND {{not_expired}}
          AND NOT EXISTS (SELECT FROM pause AS switch
                           WHERE {{held_back jobs_job}})
          -- A target that is out gets its probe alone. A probe that was also found in a queue or lane is chosen once.
          AND placed.is_probe = EXISTS (SELECT FROM jobs_servicebreaker AS breaker
                                         WHERE {{does_not_answer jobs_job}})
          FOR UPDATE SKIP LOCKED) AS job
 LIMIT %(wanted)s::int) AS found) AS job
 WHERE bytes_until <= %(most_bytes)s::bigint OR bytes_until = bytes  -- the first job, however large
