-- Delete answers that are older than a day.
--
-- params  most: how many at once
-- locks   the deleted rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns one row for each deleted answer
DELETE FROM ratelimits_decideanswer AS answer
 USING (SELECT project_id, idempotency_key FROM ratelimits_decideanswer
         WHERE created_at < {{now}} - interval '1 day'
         ORDER BY created_at
         LIMIT %(most)s
           FOR UPDATE SKIP LOCKED) AS old
 WHERE answer.project_id = old.project_id AND answer.idempotency_key = old.idempotency_key
RETURNING answer.project_id
