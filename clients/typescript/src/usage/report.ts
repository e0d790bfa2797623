/** A report for people of what an outbox holds. */

import type { ServerClock } from "./clock.js";
import type { Pace } from "./flush.js";
import { isSetApart, type Outbox } from "./outbox.js";

const OLD_SECONDS = 28 * 86_400; // the server takes events of up to 35 days, by default
const SHOWN_ROWS = 1000;

/**
 * A call that a process had begun, or was about to begin, when it died. Only its provider knows whether it happened:
 * say so with `resolve(eventId, { tokens })`, or with null if it did not.
 */
export interface LeftIntent {
  eventId: string;
  userId: string;
  service: string;
  /** The estimated tokens; null: not given. */
  estimate: number | null;
  startedAt: Date;
}

/** A use that the server will not count. */
export interface RejectedRow {
  eventId: string;
  userId: string;
  service: string;
  tokens: number;
  at: Date;
  /** The server's reason: `too_old`, `from_future`, `foreign_user`, `malformed`, or an error's code. */
  reason: string;
  message: string;
  attempts: number;
}

export interface Report {
  /** The name of the store. */
  path: string;
  /** Uses that crashes left; at most 1,000 are shown. */
  intents: LeftIntent[];
  /** Rows not yet sent. */
  pending: number;
  /** Uses that are going on, in any process. */
  inProgress: number;
  /** Rows set apart; at most 1,000 are shown. They count towards `maxRows` until discarded or retried. */
  rejected: RejectedRow[];
  /** When the oldest of the rows not yet sent was written. */
  oldestAt: Date | undefined;
  oldestAgeSeconds: number;
  /** Rows not yet sent and older than 28 days; the server refuses them after 35. */
  nearAgeLimit: number;
  size: number;
  maxRows: number;
  /** Why nothing is sent until a person acts, such as a token that was revoked; undefined: rows are sent. */
  paused: string | undefined;
  /** The error of this process's last attempt to send; undefined: it succeeded. */
  lastError: string | undefined;
}

export async function reportOf(outbox: Outbox, clock: ServerClock, pace: Pace): Promise<Report> {
  await outbox.adopt();
  const waiting = (await outbox.rows("ready")).map((row) => clock.timeOf(row));
  const left = await outbox.rows("intent", { limit: SHOWN_ROWS, accepts: isSetApart });
  const inProgress = await outbox.rows("intent", { accepts: (row) => row.owner !== null });
  const rejected = await outbox.rows("rejected", { limit: SHOWN_ROWS });
  const oldest = waiting.length > 0 ? waiting.reduce((first, at) => Math.min(first, at)) : undefined;
  return {
    path: outbox.store.name,
    intents: left.map((row) => {
      const { eventId, userId, service, estimate } = row;
      return { eventId, userId, service, estimate, startedAt: dateOf(clock.timeOf(row)) };
    }),
    pending: waiting.length,
    inProgress: inProgress.length,
    rejected: rejected.map((row) => {
      const { eventId, userId, service, tokens, reason, message, attempts } = row;
      const at = dateOf(clock.timeOf(row));
      return { eventId, userId, service, tokens: tokens ?? 0, at, reason: reason ?? "", message: message ?? "", attempts };
    }),
    oldestAt: oldest === undefined ? undefined : dateOf(oldest),
    oldestAgeSeconds: oldest === undefined ? 0 : Math.max(0, clock.now() - oldest),
    nearAgeLimit: waiting.filter((at) => clock.now() - at > OLD_SECONDS).length,
    size: await outbox.size(),
    maxRows: outbox.maxRows,
    paused: pace.paused,
    lastError: pace.lastError?.message,
  };
}

function dateOf(moment: number): Date {
  return new Date(moment * 1000);
}
