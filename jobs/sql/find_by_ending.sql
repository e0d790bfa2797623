-- Find the jobs of one window whose id ends with these bytes, the newest window first.
--
-- No index knows endings: a window of the primary key is read, and nothing of the table.
--
-- params  before: an id, null: from the newest; most: ids of the window; ending: bytes
-- locks   none
-- clock   none
-- returns id, and whether it is the window's last (so no match for itself): that row is missing where the window
--         ends with the table
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
