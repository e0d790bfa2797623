-- Adds the figures of `counted` (due and met jobs by objective `id` and deadline) to the samples, in the order of keys.
INSERT INTO jobs_objectivesample AS kept (objective_id, span_seconds, at, due, met)
    SELECT id, seconds, date_bin(seconds * interval '1 second', deadline, 'epoch'), sum(due), sum(met)
      FROM counted CROSS JOIN (VALUES (10), (3600)) AS span (seconds)
     WHERE due <> 0 OR met <> 0
     GROUP BY 1, 2, 3
     ORDER BY 1, 2, 3
    ON CONFLICT (objective_id, span_seconds, at) DO UPDATE SET due = kept.due + excluded.due, met = kept.met + excluded.met
    RETURNING 1
