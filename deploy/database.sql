-- What QueueOps needs of a PostgreSQL server (15 or newer), once, run by psql as an administrator.
-- The password comes from the environment: DATABASE_PASSWORD.
\set ON_ERROR_STOP on
\getenv password DATABASE_PASSWORD
-- Of 100 connections (max_connections) some stay for an administrator and for backups.
CREATE ROLE queueops LOGIN PASSWORD :'password' CONNECTION LIMIT 85;
-- Nothing of ours takes as long, but backup, restore, migrate and move, which lift it. What does was forgotten by somebody, and
-- would keep what is deleted from being cleared away.
ALTER ROLE queueops SET statement_timeout = '15min';
ALTER ROLE queueops SET idle_in_transaction_session_timeout = '5min';
CREATE DATABASE queueops OWNER queueops;
CREATE ROLE queueops_service NOLOGIN;
CREATE ROLE queueops_api NOLOGIN;
CREATE ROLE queueops_anonymous NOLOGIN;
GRANT queueops_service, queueops_api, queueops_anonymous TO queueops;
