-- Begin a transaction that answers requests to the limiter. It waits for no lock longer than `patience`. Tell which of
-- the requests' projects are on their way to another installation, where their counters go on.
--
-- params  projects: ids; patience: as PostgreSQL takes a time, `2s`
-- locks   none
-- clock   none
-- returns id, move and moved_to of each project that is not here, or is on its way; nulls where there is none
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', %(patience)s::text, true)
)
SELECT project.id, project.move, project.moved_to
  FROM patience
       -- An inner join would not set the timeout if no project is on its way.
       LEFT JOIN tenancy_project AS project ON project.id = ANY(%(projects)s::text[]) AND project.move <> ''
