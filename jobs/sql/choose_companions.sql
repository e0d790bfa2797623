-- Choose and lock jobs that may leave in one call with a job that is chosen already.
--
-- params  keys: coalesce keys, each once; most: how many jobs of each key;
--         bytes: the most bytes that the payloads and partial results of each key may have together;
--         except: ids chosen already;
--         token: the claim's fencing token, which the companions will get (only jobs with a lower one are chosen)
-- locks   the chosen rows, SKIP LOCKED: never waits
-- clock   now(): the transaction's start
-- returns rows as choose_jobs.sql does, the oldest of each key first; token, weight and class are placeholders
SELECT {{claimed_job job}}, 0::bigint AS token, 1.0::float8 AS weight, 0 AS tier_class
  FROM unnest(%(keys)s::text[], %(most)s::int[], %(bytes)s::bigint[]) AS wanted (key, most, bytes)
 CROSS JOIN LATERAL (
       SELECT found.*, sum({{claim_bytes found}}) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_until
         FROM (
       SELECT * FROM jobs_job
        WHERE coalesce_key = wanted.key AND coalesce_key IS NOT NULL
          AND {{in_lane}}
          AND id <> ALL(%(except)s::uuid[])
          AND fencing_token < %(token)s::bigint
          AND {{not_expired}}
          AND NOT EXISTS (SELECT FROM jobs_pauseswitch AS switch
                           WHERE {{held_back jobs_job}})
        ORDER BY eligible_since, id
        LIMIT wanted.most
          FOR UPDATE SKIP LOCKED) AS found) AS job
 WHERE bytes_until <= wanted.bytes
