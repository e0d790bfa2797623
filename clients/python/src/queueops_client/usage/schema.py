"""
The outbox's tables.

event     a use: `intent` before its call, `ready` when what it used is known, then `sent`, or `rejected` by the server.
standing  a user's allowance, as the server last stated it.
balance   by user and month, kept by triggers: rows not sent, and units that no answer of the server contains yet.
release   reservations to give back.
moment    the server's time in its last answer.
"""

from __future__ import annotations

VERSION = 1

UNSETTLED = (
    "CASE WHEN {row}.status IN ('intent', 'ready') AND {row}.cost > {row}.held THEN {row}.cost - {row}.held ELSE 0 END"
)
ADD = f"""
    INSERT INTO balance (user_id, month, size, unsettled)
    VALUES (NEW.user_id, NEW.month, NEW.status <> 'sent', {UNSETTLED.format(row="NEW")})
    ON CONFLICT (user_id, month) DO UPDATE
       SET size = size + excluded.size, unsettled = unsettled + excluded.unsettled;
"""
TAKE = f"""
    UPDATE balance SET size = size - (OLD.status <> 'sent'), unsettled = unsettled - {UNSETTLED.format(row="OLD")}
     WHERE user_id = OLD.user_id AND month = OLD.month;
"""

SCHEMA = f"""
CREATE TABLE event (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL UNIQUE,
    user_id TEXT NOT NULL,
    service TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('intent', 'ready', 'sent', 'rejected')),
    estimate INTEGER,                 -- tokens
    tokens INTEGER,
    cost INTEGER NOT NULL,            -- units: the estimate's, then those used
    month TEXT NOT NULL,              -- '': not known
    reservation_id TEXT,
    held INTEGER NOT NULL DEFAULT 0,  -- units that the server holds for it
    held_until REAL,                  -- by the server's clock
    at REAL NOT NULL,                 -- by the local clock
    clock_offset REAL,                -- as known then
    floor REAL NOT NULL,              -- the server's time as last heard of then
    owner TEXT,                       -- an intent: who makes the call; a ready row: who sends it; NULL: nobody
    owned_at REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    message TEXT
);
CREATE INDEX event_ready ON event (seq) WHERE status = 'ready';
CREATE INDEX event_owner ON event (owner, status) WHERE owner IS NOT NULL;
CREATE INDEX event_set_apart ON event (status, seq) WHERE status IN ('intent', 'rejected');
CREATE INDEX event_sent ON event (seq) WHERE status = 'sent';
CREATE INDEX event_held ON event (held_until) WHERE held > 0;
CREATE TABLE balance (
    user_id TEXT NOT NULL,
    month TEXT NOT NULL,
    size INTEGER NOT NULL,
    unsettled INTEGER NOT NULL,
    PRIMARY KEY (user_id, month)
) WITHOUT ROWID;
CREATE TABLE standing (
    user_id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    unit TEXT NOT NULL,
    policy TEXT NOT NULL,
    month TEXT NOT NULL,
    quota INTEGER NOT NULL,
    remaining INTEGER NOT NULL,
    resets_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE release (reservation_id TEXT PRIMARY KEY, held_until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE moment (id INTEGER PRIMARY KEY CHECK (id = 1), heard_at REAL NOT NULL);
INSERT INTO moment VALUES (1, 0);
CREATE TRIGGER event_added AFTER INSERT ON event BEGIN {ADD} END;
CREATE TRIGGER event_moved AFTER UPDATE OF status, cost, held, month ON event BEGIN {TAKE} {ADD} END;
CREATE TRIGGER event_gone AFTER DELETE ON event BEGIN {TAKE} END;
PRAGMA user_version = {VERSION};
"""
