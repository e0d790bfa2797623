-- Choose and lock jobs of one group for a batch of their provider, the nearest deadlines first.
--
-- A job that has more than twice as much time left as the most urgent job waits for a later batch. If a batch takes
-- too long, all of its jobs go live together, however much time some of them have.
--
-- params  project, kind, service, credential, model: the group;
--         most: the most jobs to choose;
--         most_bytes: the most bytes that the payloads may have together;
--         margin: seconds before its deadline at which a job goes live
-- locks   the rows looked at, SKIP LOCKED: rows that another transaction cancels or promotes are skipped
-- clock   now(): the transaction's start
-- returns for each chosen job, in order: its id, the claim's token, its deadline, the bytes of its payload, its cost
WITH claim AS MATERIALIZED (
    SELECT nextval('jobs_fencing_token') AS token
), waiting AS MATERIALIZED (
    SELECT id, token, complete_by, octet_length({{payload_text job}}) AS bytes, cost
      FROM claim
     CROSS JOIN LATERAL (
           SELECT * FROM jobs_job AS job
            WHERE project_id = %(project)s::text AND kind = %(kind)s::text AND service = %(service)s::text
              AND credential = %(credential)s::text AND model = %(model)s::text AND {{waits_for_batch}}
              AND {{may_be_collected}}
              AND {{not_expired}}
              -- The token was drawn before this lock: a claim with a later token may have begun and ended meanwhile.
              AND fencing_token < claim.token
            ORDER BY scheduled_at, id
            LIMIT %(most)s::int
              FOR UPDATE SKIP LOCKED) AS job
), measured AS (
    SELECT id, token, complete_by, bytes, cost,
           row_number() OVER in_order AS place,
           sum(bytes) OVER in_order AS bytes_until,
           complete_by - live.at AS slack, first_value(complete_by) OVER in_order - live.at AS least
      FROM waiting, (SELECT {{now}} + %(margin)s::float8 * interval '1 second' AS at) AS live
    WINDOW in_order AS (ORDER BY complete_by, id ROWS UNBOUNDED PRECEDING)
)
SELECT id, token, complete_by, bytes, cost FROM measured
 WHERE place = 1 OR (bytes_until <= %(most_bytes)s::bigint AND slack <= 2 * least)
 ORDER BY place
