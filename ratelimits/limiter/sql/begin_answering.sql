-- Begin a transaction that answers requests to the limiter, and read which of their projects are moving to another
-- installation or have moved. A wait for a lock ends after `patience`.
--
-- params  projects: ids; patience: as PostgreSQL takes a time, `2s`
-- locks   none
-- clock   none
-- returns id, move and moved_to of each project that is moving or has moved; if there is none, one row of nulls
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', %(patience)s::text, true)
)
SELECT project.id, project.move, project.moved_to
  FROM patience
       -- An inner join would not set the timeout if no project is moving or has moved.
       LEFT JOIN tenancy_project AS project ON project.id = ANY(%(projects)s::text[]) AND project.move <> ''
