-- Open again alerts that were resolved a short while ago, so that a cause that comes and goes is one alert, sent once.
--
-- params  alerts: JSON array of objects with kind, subject and threshold; seconds: how long ago they were
--         resolved, at the most
-- order   by kind, subject and threshold, as in open_alerts.sql
-- locks   the rows opened
-- clock   now(): the transaction's start
-- returns their ids
UPDATE ratelimits_quotaalert AS alert
   SET resolved_at = NULL
  FROM (SELECT closed.id
          FROM jsonb_to_recordset(%(alerts)s::jsonb) AS given (kind text, subject text, threshold smallint)
         CROSS JOIN LATERAL (
               SELECT old.id
                 FROM ratelimits_quotaalert AS old
                WHERE old.opened_at > {{now}} - interval '1 day'  -- bounds what is read
                  AND (old.kind, old.subject, old.threshold) = (given.kind, given.subject, given.threshold)
                ORDER BY old.id DESC
                LIMIT 1) AS last
          JOIN ratelimits_quotaalert AS closed ON closed.id = last.id
         WHERE closed.resolved_at > {{now}} - %(seconds)s::float8 * interval '1 second'
         ORDER BY given.kind, given.subject, given.threshold
           FOR UPDATE OF closed) AS found
 WHERE alert.id = found.id
RETURNING alert.id
