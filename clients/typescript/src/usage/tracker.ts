/** The tracker: counts the uses of an allowance, and sends them in the background. */

import { BadConfiguration, ClientError } from "../errors.js";
import { NEVER } from "../retry.js";
import { letEnd, monotonic, sleep } from "../time.js";
import { type Token, Transport } from "../transport.js";
import type { View } from "./cache.js";
import { ServerClock } from "./clock.js";
import { Desk, type Standing, type Usage, type UseOptions } from "./desk.js";
import { TrackerClosed } from "./errors.js";
import { type Flushed, Pace } from "./flush.js";
import { isKey, userOf, uuidOf } from "./identity.js";
import { MAX_ROWS, Outbox } from "./outbox.js";
import { type Amount, type Policy, Rules } from "./policies.js";
import { type Report, reportOf } from "./report.js";
import type { OutboxStore } from "./store.js";

const GATHER_SECONDS = 0.5;
const CLOSE_SECONDS = 5;
const OTHERS_SECONDS = 0.05; // between looks at rows that another process is sending
const IDLE_SECONDS = 30; // between two searches for rows of processes that died

export interface UsageTrackerOptions {
  /** The user of the uses; by default the JWT's user. With a key, `use` may name others. */
  userId?: string;
  /**
   * The outbox's file on a local disk, or in a browser the name of its database; processes or tabs may share it. By
   * default there is one for each installation, among this person's lasting data.
   */
  path?: string;
  /** A store to use instead of SQLite, or of IndexedDB in browsers. */
  store?: OutboxStore;
  /** `hybrid` by default. */
  policy?: Policy;
  /** With less than this left, `hybrid` reserves first: units, or a share of the quota ("10%", the default). */
  threshold?: Amount;
  /** The most units used by `hybrid` and not yet reported to the server; by default as much as `threshold`. */
  credit?: Amount;
  /** Whether rows are sent in the background, every `gatherSeconds`; otherwise `flush` and `close` send them. */
  background?: boolean;
  gatherSeconds?: number;
  /** How many rows may be unsent; with so many, a use is refused before its call. */
  maxRows?: number;
  /** Seconds to wait for the next byte. */
  timeout?: number;
  /** Returns seconds since 1970. */
  clock?: () => number;
  fetch?: typeof fetch;
  /** Called with each warning; `console.warn` by default. */
  warn?: (message: string) => void;
}

/** Counts the uses of an allowance. */
export class UsageTracker {
  readonly #transport: Transport;
  readonly #options: UsageTrackerOptions;
  readonly #rules: Rules;
  readonly #clock: ServerClock;
  readonly #pace: Pace;
  readonly #warn: (message: string) => void;
  readonly #bell = new Bell();
  readonly #stop = new AbortController();
  readonly #sending: Promise<void>;
  #desk: Promise<Desk> | undefined;
  #isClosed = false;

  /**
   * @param baseUrl The installation's address, such as `https://queue.example.org`.
   * @param token An end user's JWT or a producer key, or a function that returns one.
   * @throws BadConfiguration
   */
  constructor(baseUrl: string, token: Token, options: UsageTrackerOptions = {}) {
    const { timeout, fetch, policy, threshold, credit, background = true } = options;
    this.#options = options;
    this.#transport = new Transport(baseUrl, token, {
      retry: NEVER,
      ...(timeout === undefined ? {} : { timeout }),
      ...(fetch === undefined ? {} : { fetch }),
    });
    this.#rules = new Rules(policy, threshold, credit);
    if (options.userId !== undefined) uuidOf(options.userId);
    this.#clock = new ServerClock(options.clock);
    this.#warn = options.warn ?? ((message): void => console.warn(`queueops: ${message}`));
    this.#pace = new Pace(this.#warn);
    this.#sending = background ? this.#sendForEver() : Promise.resolve();
    processEvents()?.once("beforeExit", this.#atExit);
  }

  /**
   * Count a call: `tracker.use({ estimate: 800, service: "gemini" }, async (usage) => { …; usage.tokens = n; })`.
   *
   * When this resolves, the tokens that the call took are on disk. After an exception nothing is counted, unless
   * `usage.tokens` was set before. Without `usage.tokens` the estimate counts, with a warning.
   *
   * @returns What `work` returns.
   * @throws QuotaExceeded: the allowance has no room for the use.
   * @throws QuotaUnavailable: the server has to be asked, and does not answer.
   * @throws OutboxFull, OutboxFailed, ApiError
   */
  async use<Value>(options: UseOptions, work: (usage: Usage) => Value | Promise<Value>): Promise<Value> {
    const usage = await this.begin(options);
    let value: Value;
    try {
      value = await work(usage);
    } catch (error) {
      await this.finish(usage, usage.taken(true, this.#warn));
      throw error;
    }
    await this.finish(usage, usage.taken(false, this.#warn));
    return value;
  }

  /** For callers whose call is no function: each begin needs its `finish`. */
  async begin(options: UseOptions = {}): Promise<Usage> {
    const desk = await this.#open();
    const usage = desk.usage(options);
    await desk.admit(usage);
    return usage;
  }

  /** @param tokens null: the call took nothing. */
  async finish(usage: Usage, tokens: number | null): Promise<void> {
    await (await this.#opened()).finish(usage, tokens);
    this.#bell.ring();
  }

  /** Ask the server for the user's allowance; later uses need not ask first. */
  async standing(userId?: string): Promise<Standing> {
    const desk = await this.#open();
    return await desk.standing(desk.user(userId));
  }

  /** Return what is known without asking, less what this outbox has used since; undefined: nothing is known. */
  async known(userId?: string): Promise<View | undefined> {
    const desk = await this.#opened();
    return await desk.outbox.view(desk.user(userId));
  }

  /**
   * Send the waiting rows now, even if a pause after a failure is not over.
   *
   * @param options.timeout Seconds to wait for rows that another process is sending; by default none.
   * @throws ApiError, Unreachable: some rows could not be sent; they are kept.
   */
  async flush({ timeout = 0 }: { timeout?: number | undefined } = {}): Promise<Flushed> {
    const desk = await this.#open();
    const deadline = monotonic() + timeout;
    const total = { sent: 0, rejected: 0 };
    for (;;) {
      const done = await desk.flusher.flush();
      total.sent += done.sent;
      total.rejected += done.rejected;
      if (done.pending === 0 || monotonic() > deadline) return { ...total, pending: done.pending };
      await sleep(OTHERS_SECONDS);
    }
  }

  /** Return a report of the rows that wait, that crashes left, and that were rejected. */
  async report(): Promise<Report> {
    return await reportOf((await this.#opened()).outbox, this.#clock, this.#pace);
  }

  /**
   * Settle a use that a crash cut off, or that was rejected.
   *
   * @param options.tokens The tokens that it took; null: it did not happen, or shall not be counted.
   * @returns False: there is no such row.
   */
  async resolve(eventId: string, { tokens }: { tokens: number | null }): Promise<boolean> {
    const done = await (await this.#opened()).resolve(eventId, tokens);
    this.#bell.ring();
    return done;
  }

  /** Send rejected rows again, once the cause is removed; return how many. */
  async retryRejected(): Promise<number> {
    const count = await (await this.#opened()).outbox.retryRejected();
    this.#bell.ring();
    return count;
  }

  /**
   * Send the rows that can be sent, and close the store. Other rows stay in it for the next start.
   *
   * @param options.timeout About how many seconds this may take.
   */
  async close({ timeout = CLOSE_SECONDS }: { timeout?: number } = {}): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    processEvents()?.off("beforeExit", this.#atExit);
    this.#stop.abort();
    this.#bell.ring();
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(), timeout * 1000);
    try {
      // Otherwise the rows that are being sent would be sent twice.
      await Promise.race([this.#sending, sleep(timeout, { signal: over.signal, background: true })]);
      await (await this.#opened()).flusher.flush(over.signal);
    } catch {
      // the rows are kept
    } finally {
      clearTimeout(timer);
      over.abort();
    }
    await (await this.#desk?.catch(() => undefined))?.outbox.store.close();
  }

  #atExit = (): void => void this.close();

  async #open(): Promise<Desk> {
    if (this.#isClosed) throw new TrackerClosed();
    return await this.#opened();
  }

  #opened(): Promise<Desk> {
    if (this.#desk === undefined) {
      const desk = (this.#desk = this.#openDesk());
      desk.catch(() => (this.#desk = undefined)); // the next call tries again: a full disk may be mended
    }
    return this.#desk;
  }

  async #openDesk(): Promise<Desk> {
    const { path, maxRows = MAX_ROWS } = this.#options;
    const given = this.#options.userId;
    const token = await this.#transport.token().catch((error: unknown) => {
      if (given === undefined) throw error; // with a user, uses can be written down without a token
    });
    let userId = given === undefined ? undefined : uuidOf(given);
    const actsForMany = token !== undefined && isKey(token);
    if (userId === undefined && !actsForMany) userId = await userOf(token ?? "");
    const { baseUrl } = this.#transport;
    const store = this.#options.store ?? (await import("#default-store")).defaultStore({ baseUrl, path });
    const outbox = new Outbox(store, this.#clock, maxRows);
    await outbox.adopt();
    const whose = { userId, onlyUser: actsForMany ? undefined : userId };
    return new Desk(outbox, this.#clock, this.#transport, this.#rules, this.#pace, whose);
  }

  async #sendForEver(): Promise<void> {
    const { signal } = this.#stop;
    const pause = (seconds: number): Promise<void> => sleep(seconds, { signal, background: true }).catch(() => {});
    while (!signal.aborted) {
      try {
        await (await this.#opened()).flusher.attempt();
      } catch (error) {
        if (error instanceof BadConfiguration) return; // every call reports it
        // No error may end this loop: every row would stay unsent, unnoticed.
        if (!(error instanceof ClientError)) this.#warn(`usage could not be sent, and is kept: ${String(error)}`);
        await pause(this.#pace.failed(error as Error));
        continue;
      }
      await this.#bell.heard(IDLE_SECONDS);
      await pause(this.#options.gatherSeconds ?? GATHER_SECONDS); // meanwhile rows gather, to be sent together
    }
  }
}

/** Wakes the waiting caller, or else the next caller that waits. */
class Bell {
  #rang = false;
  #wake: () => void = () => {};

  ring(): void {
    this.#rang = true;
    this.#wake();
  }

  /** Resolves when it rings, or after so many seconds. */
  async heard(seconds: number): Promise<void> {
    if (!this.#rang) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, seconds * 1000);
        letEnd(timer);
        this.#wake = (): void => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.#rang = false;
    this.#wake = (): void => {};
  }
}

interface ProcessEvents {
  once(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
}

/** Return the object by which the runtime tells that its work is done, if it has one. */
function processEvents(): ProcessEvents | undefined {
  const { process } = globalThis as { process?: Partial<ProcessEvents> };
  return typeof process?.once === "function" && typeof process.off === "function" ? (process as ProcessEvents) : undefined;
}
