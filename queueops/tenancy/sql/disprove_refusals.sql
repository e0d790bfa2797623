-- Mark refusals as the jobs' own fault: the provider accepted the credential in a call that began after them.
--
-- params  names: the credentials; begun: when a call with each credential began, seconds since 1970, a parallel array
-- order   by id
-- locks   the rows written; skips rows that another transaction has locked, so that it waits for nobody
-- clock   none
-- returns the rows' ids
WITH told AS MATERIALIZED (
    SELECT refusal.id
      FROM (SELECT name, max(begun) AS begun
              FROM unnest(%(names)s::text[], %(begun)s::float8[]) AS given (name, begun) GROUP BY name) AS given
      JOIN tenancy_credential AS credential ON credential.name = given.name
      JOIN tenancy_credentialrefusal AS refusal ON refusal.credential_id = credential.id
     WHERE NOT refusal.disproved
       AND refusal.refused_at <= to_timestamp(given.begun) + interval '1 microsecond'  -- for float8's rounding
     ORDER BY refusal.id
       FOR UPDATE OF refusal SKIP LOCKED
)
UPDATE tenancy_credentialrefusal AS refusal SET disproved = true FROM told WHERE refusal.id = told.id RETURNING refusal.id
