-- Sum up the newest tallies of a service within an interval, by subject.
--
-- params  service; after, until: seconds since 1970, the first exclusive; most: tallies that are looked at; unit;
--         free: whether input that a cache had is left out. As `amount_of` in services/limiter/tallies.py
-- order   at, the newest first, by the index: it runs while counters are locked, so what it reads is bounded
-- locks   none
-- clock   none
-- returns call_type, project, user, model; calls, and what they took of the unit, summed; the oldest of them (seconds since 1970); tallies
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
