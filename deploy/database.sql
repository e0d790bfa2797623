-- Prepare a PostgreSQL server (15 or newer) for QueueOps: run once by psql as an administrator.
-- The password comes from the environment: DATABASE_PASSWORD.
\set ON_ERROR_STOP on
\getenv password DATABASE_PASSWORD
-- 15 of the 100 connections (max_connections) stay for an administrator and for backups.
CREATE ROLE queueops LOGIN PASSWORD :'password' CONNECTION LIMIT 85;
-- Only backup, restore, migrate and move take longer, and they lift the limit. Any other long statement was forgotten,
-- and would keep deleted rows from being cleared away.
ALTER ROLE queueops SET statement_timeout = '15min';
ALTER ROLE queueops SET idle_in_transaction_session_timeout = '5min';
CREATE DATABASE queueops OWNER queueops;
CREATE ROLE queueops_service NOLOGIN;
CREATE ROLE queueops_api NOLOGIN;
CREATE ROLE queueops_anonymous NOLOGIN;
GRANT queueops_service, queueops_api, queueops_anonymous TO queueops;
