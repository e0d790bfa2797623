/** Sends the rows of the outbox. */

import { ApiError, ClientError, ServerError } from "../errors.js";
import { NEVER, Retry } from "../retry.js";
import type { Answer, RequestOptions, Transport } from "../transport.js";
import { type Heard, heardOf } from "./cache.js";
import { asText, type ServerClock } from "./clock.js";
import type { Outbox, Settled } from "./outbox.js";
import type { Row } from "./store.js";

const INGEST = "/api/v1/usage/ingest/";
const CANCEL = "/api/v1/usage/cancel/";
const BATCH = 1000; // the most that one request may hold
const FLUSH_TIMEOUT_SECONDS = 30;
const CLOCK_ATTEMPTS = 3; // how often a row is sent while the server finds its time wrong

const SENT = new Set(["accepted", "duplicate", "over_limit"]);
const TIMES = new Set(["from_future", "too_old"]);
// These statuses blame the content. Every other refusal concerns the sender or the address, and no row.
const CONTENT = new Set([400, 413, 422]);
const PASSING = new Set([408, 429]);

/** The outcome of a flush; `pending`: rows that are still to be sent. */
export interface Flushed {
  sent: number;
  rejected: number;
  pending: number;
}

/** When to try again after a failure: truncated exponential backoff with full jitter, never before Retry-After. */
export class Pace {
  lastError: Error | undefined;
  readonly #retry = new Retry({ baseSeconds: 1, capSeconds: 60 });
  readonly #warn: (message: string) => void;
  #failures = 0;

  constructor(warn: (message: string) => void) {
    this.#warn = warn;
  }

  /**
   * Why a new try alone will not help; undefined: it may help. The try is made in any case: the token may be renewed.
   */
  get paused(): string | undefined {
    const error = this.lastError;
    const isTheirs = error instanceof ApiError && error.status < 500 && !PASSING.has(error.status);
    return isTheirs ? error.message : undefined;
  }

  succeeded(): void {
    this.#failures = 0;
    this.lastError = undefined;
  }

  /** Return the seconds until the next attempt. */
  failed(error: Error): number {
    const wasPaused = this.paused;
    this.#failures += 1;
    this.lastError = error;
    if (this.paused && !wasPaused) this.#warn(`usage is not sent, and is kept: ${error.message}`);
    const least = error instanceof ApiError ? (error.retryAfter ?? 0) : 0;
    return least + this.#retry.backoffSeconds(this.#failures);
  }
}

export class Flusher {
  readonly pace: Pace;
  readonly #outbox: Outbox;
  readonly #clock: ServerClock;
  readonly #transport: Transport;
  readonly #onlyUser: string | undefined;

  /** @param onlyUser The only user whose rows may be sent; undefined: the rows of all users may. */
  constructor(outbox: Outbox, clock: ServerClock, transport: Transport, onlyUser: string | undefined, pace: Pace) {
    this.#outbox = outbox;
    this.#clock = clock;
    this.#transport = transport;
    this.#onlyUser = onlyUser;
    this.pace = pace;
  }

  /** Send a request that may be repeated, and learn the server's time from its answer. */
  async ask(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const began = this.#clock.local();
    const answer = await this.#transport.request(method, path, { isSafe: true, retry: NEVER, ...options });
    this.#clock.learn(answer.headers, began);
    return answer;
  }

  /**
   * Send all rows that no other process is sending.
   *
   * @throws ClientError: some rows could not be sent; they are kept.
   */
  async flush(signal?: AbortSignal): Promise<Flushed> {
    try {
      return await this.attempt(signal);
    } catch (error) {
      if (error instanceof ClientError) this.pace.failed(error);
      throw error;
    }
  }

  /** Do what `flush` does, but leave it to the caller to tell the pace of a failure. */
  async attempt(signal?: AbortSignal): Promise<Flushed> {
    await this.#outbox.adopt();
    await this.#giveBack(signal);
    const total = { sent: 0, rejected: 0 };
    for (let more = true; more; ) {
      const rows = await this.#outbox.claim(BATCH, this.#onlyUser);
      if (rows.length === 0) break;
      const refused: [Row, ApiError][] = [];
      let settled: Settled[];
      try {
        settled = await this.#send(rows, refused, signal);
        // If the server accepts no row at all, the rows are not to blame.
        if (refused[0] !== undefined && !settled.some(({ status }) => status === "sent")) throw refused[0][1];
        settled.push(...(await this.#setApart(refused)));
      } finally {
        await this.#outbox.letGo(rows);
      }
      // Stop after rows that fill no batch, even if new ones have come: otherwise these would be sent one by one.
      more = rows.length === BATCH || settled.some(({ status }) => status === "ready");
      for (const { status } of settled) if (status !== "ready") total[status] += 1;
    }
    this.pace.succeeded();
    return { ...total, pending: await this.#outbox.pending(this.#onlyUser) };
  }

  async #giveBack(signal: AbortSignal | undefined): Promise<void> {
    for (const reservationId of await this.#outbox.releases()) {
      try {
        await this.ask("POST", CANCEL, { json: { reservation_id: reservationId }, signal });
      } catch (error) {
        if (!(error instanceof ApiError) || !(error.status === 404 || CONTENT.has(error.status))) throw error;
      }
      await this.#outbox.released(reservationId);
    }
  }

  /** Send rows together. If they are refused as a whole, send halves, down to the rows that are to blame. */
  async #send(rows: Row[], refused: [Row, ApiError][], signal: AbortSignal | undefined): Promise<Settled[]> {
    const versions = await this.#outbox.versions();
    const knewTheTime = this.#clock.offset !== undefined;
    let answer: Answer;
    try {
      const json = rows.map((row) => this.#event(row));
      answer = await this.ask("POST", INGEST, { json, timeout: FLUSH_TIMEOUT_SECONDS, signal });
    } catch (error) {
      if (!(error instanceof ApiError) || !CONTENT.has(error.status)) throw error;
      if (rows.length === 1) {
        refused.push([rows[0]!, error]);
        return [];
      }
      const half = Math.floor(rows.length / 2);
      const first = await this.#send(rows.slice(0, half), refused, signal);
      return [...first, ...(await this.#send(rows.slice(half), refused, signal))];
    }
    const { settled, heard } = understood(answer, rows, knewTheTime);
    await this.#outbox.settle(settled, heard, versions);
    return settled;
  }

  async #setApart(refused: [Row, ApiError][]): Promise<Settled[]> {
    const settled = refused.map(([{ eventId }, error]): Settled => {
      return { eventId, status: "rejected", reason: error.code, message: error.message };
    });
    if (settled.length > 0) await this.#outbox.settle(settled, new Map(), new Map());
    return settled;
  }

  #event(row: Row): Record<string, unknown> {
    return {
      event_id: row.eventId,
      user_id: row.userId,
      tokens: row.tokens,
      ts: asText(this.#clock.timeOf(row)),
      ...(row.reservationId ? { reservation_id: row.reservationId } : {}),
      ...(row.service ? { service: row.service } : {}),
    };
  }
}

export function notUnderstood(what: string, answer: Answer, error: unknown): ServerError {
  const cause = error instanceof Error ? error.message : String(error);
  return new ServerError("unexpected_answer", `${what} was not understood: ${cause}`, { status: answer.status });
}

function understood(
  answer: Answer,
  rows: Row[],
  knewTheTime: boolean,
): { settled: Settled[]; heard: Map<string, Heard> } {
  try {
    const { results, usage = [] } = answer.body;
    if (!Array.isArray(results) || results.length !== rows.length) throw new TypeError("not one result an event");
    const settled = rows.map((row, number) => settledAs(row, results[number], knewTheTime));
    const heard = new Map<string, Heard>();
    for (const said of usage) heard.set(String(said.user_id).toLowerCase(), heardOf(said));
    return { settled, heard };
  } catch (error) {
    // A proxy may have answered, so no row is taken for sent.
    throw notUnderstood("The answer to usage events", answer, error);
  }
}

function settledAs(row: Row, result: Record<string, unknown>, knewTheTime: boolean): Settled {
  const { eventId } = row;
  if (String(result["event_id"]).toLowerCase() !== eventId) throw new TypeError(`${result["event_id"]} instead of ${eventId}`);
  const status = String(result["status"]);
  if (SENT.has(status)) return { eventId, status: "sent" };
  const reason = String(result["reason"] || status);
  const again = TIMES.has(reason) && !knewTheTime && row.attempts < CLOCK_ATTEMPTS;
  return { eventId, status: again ? "ready" : "rejected", reason, message: result["message"] as string | undefined };
}
