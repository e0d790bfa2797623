-- Find the jobs of one window of ids whose id ends with these bytes. Callers read the newest window first.
--
-- No index serves endings of ids, so a window of the primary key is read, without its rows.
--
-- params  before: ids below this one, null: from the newest; most: ids of the window; ending: bytes
-- locks   none
-- clock   none
-- returns each match as id and false; then the window's last id and true, whether or not it matches, so that the next
--         window can begin there. The last row is missing where the window has fewer than `most` ids
WITH newest AS MATERIALIZED (
    SELECT id FROM jobs_job
     WHERE id < coalesce(%(before)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
     ORDER BY id DESC
     LIMIT %(most)s::int
)
SELECT id, false FROM newest
 WHERE substring(uuid_send(id) FROM 17 - length(%(ending)s::bytea)) = %(ending)s::bytea
UNION ALL
(SELECT id, true FROM newest ORDER BY id DESC OFFSET %(most)s::int - 1 LIMIT 1)
