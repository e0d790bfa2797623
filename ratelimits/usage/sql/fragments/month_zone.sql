-- The zone in which an allowance's months begin: UTC if the database does not know the stored zone; null if there is no
-- allowance. Without this check one allowance's zone would stop statements about the months of all projects.
CASE WHEN job.time_zone IS NOT NULL THEN coalesce(ratelimits_known_zone(job.time_zone), 'UTC') END
