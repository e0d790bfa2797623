-- Add to the counts of a shard what is to be inserted there.
ON CONFLICT (project_id, batch_id, shard) DO UPDATE
   SET queued = total.queued + excluded.queued,
       rate_limited = total.rate_limited + excluded.rate_limited,
       dispatched = total.dispatched + excluded.dispatched,
       in_progress = total.in_progress + excluded.in_progress,
       retried = total.retried + excluded.retried,
       completed = total.completed + excluded.completed,
       failed = total.failed + excluded.failed,
       cancelled = total.cancelled + excluded.cancelled
