-- Sum up the newest tallies of a service within an interval, by subject.
--
-- params  service; after, until: seconds since 1970, the first exclusive; most: tallies that are read; unit;
--         free: whether input from a cache is left out, as in `amount_of` in limiter/tallies.py
-- order   by at, the newest first, from the index, so that the reads are bounded
-- locks   none
-- clock   none
-- returns call_type, project, user, model; the sums of calls and of what they took of the unit; the time of the oldest
--         tally (seconds since 1970); the number of tallies
SELECT call_type, project, "user", model, sum(calls)::float8,
       sum(greatest(coalesce((amounts ->> %(unit)s)::float8, tokens)
                    - CASE WHEN %(free)s THEN coalesce((amounts ->> 'cached_tokens')::float8, 0) ELSE 0 END, 0)),
       min(extract(epoch FROM at))::float8, count(*)
  FROM (SELECT *
          FROM ratelimits_calltally
         WHERE service = %(service)s
           AND at > to_timestamp(%(after)s::float8)
           AND at <= to_timestamp(%(until)s::float8)
         ORDER BY at DESC
         LIMIT %(most)s) AS newest
 GROUP BY call_type, project, "user", model
