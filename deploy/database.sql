-- What QueueOps needs of a PostgreSQL server (15 or newer), once, run by psql as an administrator.
-- The password comes from the environment: DATABASE_PASSWORD.
\set ON_ERROR_STOP on
\getenv password DATABASE_PASSWORD
CREATE ROLE queueops LOGIN PASSWORD :'password';
CREATE DATABASE queueops OWNER queueops;
CREATE ROLE queueops_service NOLOGIN;
CREATE ROLE queueops_api NOLOGIN;
CREATE ROLE queueops_anonymous NOLOGIN;
GRANT queueops_service, queueops_api, queueops_anonymous TO queueops;
