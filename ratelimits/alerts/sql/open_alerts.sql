-- Open alerts; an alert that is open already gets the new figures.
--
-- params  alerts: JSON array of objects with the columns' names, forecast_at in seconds since 1970 or null
-- order   by kind, subject and threshold, so that two transactions insert in one order
-- locks   the rows of open alerts, and waits for another transaction that is opening the same alerts
-- clock   statement_timestamp(), by the column's default
-- returns id and whether it was opened; an open alert that stays as it is has no row
--
-- An alert whose severity rises is sent again and must be acknowledged again. If an alert gains a project, the sender
-- processes it again for the routes of that project; the other routes have received it.
INSERT INTO ratelimits_quotaalert AS alert
       (kind, severity, limit_id, subject, threshold, message, figures, forecast_at, acknowledged_by)
SELECT kind, severity, limit_id, subject, threshold, message, figures, to_timestamp(forecast_at), ''
  FROM jsonb_to_recordset(%(alerts)s::jsonb) AS given (
       kind text, severity text, limit_id bigint, subject text, threshold smallint, message text, figures jsonb,
       forecast_at float8)
 ORDER BY kind, subject, threshold
ON CONFLICT (kind, subject, threshold) WHERE resolved_at IS NULL DO UPDATE
   SET message = excluded.message,
       figures = excluded.figures,
       forecast_at = excluded.forecast_at,
       severity = CASE WHEN array_position(ARRAY['notice', 'warning', 'critical'], excluded.severity::text)
                          > array_position(ARRAY['notice', 'warning', 'critical'], alert.severity::text)
                       THEN excluded.severity ELSE alert.severity END,
       notified_at = CASE WHEN array_position(ARRAY['notice', 'warning', 'critical'], excluded.severity::text)
                             > array_position(ARRAY['notice', 'warning', 'critical'], alert.severity::text)
                            OR NOT coalesce(alert.figures -> 'projects', '[]')
                                   @> coalesce(excluded.figures -> 'projects', '[]')
                          THEN NULL ELSE alert.notified_at END,
       acknowledged_at = CASE WHEN array_position(ARRAY['notice', 'warning', 'critical'], excluded.severity::text)
                                 > array_position(ARRAY['notice', 'warning', 'critical'], alert.severity::text)
                              THEN NULL ELSE alert.acknowledged_at END
 WHERE (alert.message, alert.figures, alert.forecast_at) IS DISTINCT FROM
       (excluded.message, excluded.figures, excluded.forecast_at)
    OR array_position(ARRAY['notice', 'warning', 'critical'], excluded.severity::text)
       > array_position(ARRAY['notice', 'warning', 'critical'], alert.severity::text)
RETURNING id, xmax = 0 AS opened
