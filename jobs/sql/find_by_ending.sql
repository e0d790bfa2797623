-- Find the jobs whose id ends with the given bytes, within one window of ids. Callers read the newest window first.
--
-- No index serves endings of ids, so a window of the primary key's index is read, without the jobs' rows.
--
-- params  before: the window ends below this id (null: with the newest); most: how many ids the window has;
--         ending: bytes
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
