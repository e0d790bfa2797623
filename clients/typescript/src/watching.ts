/**
 * Watches a job or batch until it ends, over a websocket if one can be opened, and otherwise by polling.
 *
 * Only the answer to a GET counts as the true state. The client sends a GET first, and again whenever a socket is lost:
 * neither the end nor an error is missed, however the connection fails. The socket only makes updates come at once.
 */

import { InvalidRequest, ServerError, TooManyRequests, Unreachable, WaitTimeout } from "./errors.js";
import { Line, LineLost, type Message } from "./line.js";
import { Batch, type Event, Job, Operation, type Subject, type Target } from "./records.js";
import { Retry } from "./retry.js";
import { monotonic, sleep } from "./time.js";
import { DEFAULT_TIMEOUT_SECONDS, type Transport } from "./transport.js";
import { isKey } from "./usage/identity.js";

const OPEN_SECONDS = 10;
const HEAR_SECONDS = 5;
const ACK_MESSAGES = 50;
const ACK_SECONDS = 0.5;
const SILENT_SECONDS = 50; // the server pings every 20
const LOOK_SECONDS = 60; // a GET is sent after so long even while a socket is open
const MIN_TIMEOUT_SECONDS = 1; // the least for a GET, even if it ends after the deadline: a busy server needs so long
const LONG_POLL_SECONDS = 20; // proxies give a request up after 60
const MIN_POLL_SECONDS = 0.5;
const MAX_POLL_SECONDS = 15;
const MAX_FAILURES = 4; // sockets in a row that brought no message: a page cannot see that a socket was refused
const SOCKET_AGAIN_SECONDS = 60; // after so long a new socket is tried, if sockets are refused
const PATIENCE_SECONDS = 600;
const REMEMBERED_EVENTS = 2_000;
const REFUSALS = new Set(["bad_message", "not_signed_in", "forbidden", "too_many"]);
const TOLD = new Set(["event", "snapshot", "stats", "state"]);
const RETURNING = new Retry({ capSeconds: 5 }); // spreads the clients of a restarted server over some seconds

/** One update on the watched job, batch or operation. */
export interface Update {
  /**
   * `state`: the subject as it is now; `event`: something happened to one of its jobs, and the subject is as it was
   * last known; `lost`: the server is not reached for the moment.
   */
  kind: "state" | "event" | "lost";
  subject: Subject;
  event?: Event;
  /** Whether it came over a socket. */
  isLive: boolean;
  /** Why the server is not reached. */
  problem?: string;
}

export interface WatchOptions {
  /** Seconds until WaitTimeout is thrown. */
  timeout?: number | undefined;
  /** False: no events come, only states, at most one a second. */
  events?: boolean;
  /**
   * How long the server may be unreachable before Unreachable is thrown; meanwhile updates of the kind `lost` come. 600
   * by default.
   */
  patienceSeconds?: number;
  /** Ends the watching with its reason. */
  signal?: AbortSignal | undefined;
}

type Find = (subject: Target, timeout: number | undefined, wait: number) => Promise<Subject>;
type Updates = AsyncGenerator<Update, void, undefined>;

export class Watch {
  readonly #transport: Transport;
  readonly #find: Find;
  readonly #line: Line | undefined;
  readonly #deadline: number; // a time of monotonic()
  readonly #firstSeconds: number; // how long the server may be unreachable before its first answer
  readonly #patienceSeconds: number; // how long it may be unreachable after its first answer
  readonly #events: boolean;
  readonly #signal: AbortSignal | undefined;
  #subject: Subject | undefined;
  #cursor = 0; // every event up to this id was received
  #epoch = ""; // of the cursor: a restored database begins a new epoch, which uses ids again
  #hasListened = false;
  #failures = 0; // sockets in a row that brought no message
  #socketAt = 0; // when to try a socket next
  #takesWait = true; // whether the server accepts `wait`: an older one refuses it
  #told = new Set<number>(); // ids of emitted events, the newest last

  constructor(transport: Transport, find: Find, Socket: typeof WebSocket | undefined, options: WatchOptions) {
    this.#transport = transport;
    this.#find = find;
    this.#line = Socket && new Line(Socket);
    this.#deadline = options.timeout === undefined ? Infinity : monotonic() + options.timeout;
    this.#patienceSeconds = options.patienceSeconds ?? PATIENCE_SECONDS;
    this.#firstSeconds = Math.min(transport.retry.budgetSeconds, this.#patienceSeconds);
    this.#events = options.events ?? true;
    this.#signal = options.signal ?? transport.signal;
  }

  /**
   * Yield Updates until the subject has ended; the last one shows it ended.
   *
   * @throws ApiError: the subject does not exist, or may not be read.
   * @throws Unreachable: the server was unreachable for too long.
   * @throws WaitTimeout: the subject has not ended at the deadline.
   */
  async *follow(given: Target): Updates {
    const giveUp = (): void => this.#line?.lose("The watching was given up.");
    this.#signal?.addEventListener("abort", giveUp);
    try {
      yield* this.#look(given);
      while (!this.#subject?.hasEnded) {
        if (monotonic() >= this.#deadline) throw this.#tooLate();
        if (this.#line === undefined || this.#subject instanceof Operation || monotonic() < this.#socketAt) {
          yield* this.#poll();
          continue;
        }
        try {
          yield* this.#listen(this.#line);
        } catch (error) {
          if (!(error instanceof LineLost)) throw error;
          await this.#after(error);
        }
        if (!this.#subject?.hasEnded) yield* this.#look(given);
      }
    } finally {
      this.#signal?.removeEventListener("abort", giveUp);
      this.#line?.close();
    }
  }

  /** Send a GET: after a while, or at once if the server holds its answer back until the subject ends. */
  async *#poll(): Updates {
    if (!this.#events && this.#takesWait && !(this.#subject instanceof Operation)) {
      const began = monotonic();
      const wait = this.#bounded(LONG_POLL_SECONDS);
      try {
        yield* this.#look(this.#known(), wait);
      } catch (error) {
        if (!(error instanceof InvalidRequest) || error.code !== "invalid_query") throw error;
        this.#takesWait = false;
      }
      if (this.#subject?.hasEnded || monotonic() - began > wait / 2) return; // else the server has no room for it
    }
    await this.#pause(this.#pollSeconds());
    yield* this.#look(this.#known());
  }

  /**
   * Read the subject's state with a GET, repeated for as long as patience and deadline allow.
   *
   * @param wait Seconds that the server may wait for the subject's end.
   */
  async *#look(given: Target, wait = 0): Updates {
    const began = monotonic();
    const patienceSeconds = this.#subject ? this.#patienceSeconds : this.#firstSeconds;
    for (let repeat = 1; ; repeat++) {
      this.#signal?.throwIfAborted();
      try {
        const timeout =
          this.#deadline === Infinity && !wait
            ? undefined
            : Math.max(MIN_TIMEOUT_SECONDS + wait, this.#bounded(DEFAULT_TIMEOUT_SECONDS));
        const subject = await this.#find(this.#subject ?? given, timeout, wait);
        yield this.#shown(subject, false);
        return;
      } catch (error) {
        const mayPass = error instanceof Unreachable || error instanceof ServerError || error instanceof TooManyRequests;
        if (!mayPass) throw error;
        const least = error instanceof Unreachable ? 0 : (error.retryAfter ?? 0);
        const pause = RETURNING.backoffSeconds(repeat) + least;
        const resumesAt = monotonic() + pause;
        if (resumesAt >= this.#deadline) throw this.#tooLate();
        if (resumesAt > began + patienceSeconds) throw error;
        if (this.#subject) yield { kind: "lost", subject: this.#subject, isLive: false, problem: error.message };
        await sleep(pause, { signal: this.#signal });
      }
    }
  }

  /**
   * Yield a socket's updates until the subject has ended, the deadline is over, or the next GET is due.
   *
   * @throws LineLost
   */
  async *#listen(line: Line): Updates {
    line.close();
    await line.open(this.#socketUrl(), this.#bounded(OPEN_SECONDS));
    const token = await this.#transport.token();
    line.say({ auth: { [isKey(token) ? "key" : "token"]: token } });
    const until = Math.min(monotonic() + LOOK_SECONDS, this.#deadline);
    let silentSeconds = 0;
    let unacknowledged = 0;
    let ackAt = 0;
    let newest = 0;
    let isFirst = true;
    while (!this.#subject?.hasEnded && monotonic() < until) {
      this.#signal?.throwIfAborted();
      if (unacknowledged >= ACK_MESSAGES || (unacknowledged && monotonic() >= ackAt)) {
        line.say({ ack: newest, epoch: this.#epoch });
        unacknowledged = 0;
        ackAt = monotonic() + ACK_SECONDS;
      }
      const seconds = this.#bounded(unacknowledged ? ACK_SECONDS : HEAR_SECONDS);
      const message = await line.hear(seconds);
      if (message === undefined) {
        silentSeconds += seconds;
        if (silentSeconds > SILENT_SECONDS) throw new LineLost("The socket has gone silent.");
        continue;
      }
      silentSeconds = 0;
      const { type } = message as { type: string };
      if (type === "ping") {
        line.say({ pong: true });
      } else if (type === "error") {
        throw new LineLost(String(message["detail"]), REFUSALS.has(message["code"]));
      } else if (TOLD.has(type)) {
        unacknowledged += 1;
        if (this.#isAnew(message)) newest = 0;
        newest = Math.max(newest, message["cursor"]);
        yield* this.#hear(line, type, message, isFirst);
        isFirst = false;
      }
    }
  }

  /** Whether a message is of a new epoch; then the cursor and the emitted ids are reset. */
  #isAnew(message: Message): boolean {
    const epoch: string = message["epoch"] ?? "";
    if (epoch === this.#epoch) return false;
    this.#epoch = epoch;
    this.#cursor = 0;
    this.#hasListened = false;
    this.#told.clear();
    return true;
  }

  *#hear(line: Line, type: string, message: Message, isFirst: boolean): Generator<Update, void, undefined> {
    this.#failures = 0;
    const cursor: number = message["cursor"];
    if (type === "event") {
      this.#cursor = Math.max(this.#cursor, cursor);
      yield* this.#tell({ ...message["event"], skipped: message["skipped"] ?? 0 });
      return;
    }
    if (isFirst && this.#events && (this.#hasListened || (0 < this.#cursor && this.#cursor < cursor))) {
      // Ask for the events between the last received one and this snapshot; until they come, keep the cursor. After a
      // lost socket ask from the same cursor, too: it lags behind the events that were emitted.
      line.say({ resume: this.#cursor, epoch: this.#epoch });
    } else if (type !== "stats") {
      this.#cursor = Math.max(this.#cursor, cursor);
    }
    this.#hasListened = true;
    const data = message["data"];
    yield this.#shown(this.#subject instanceof Batch ? new Batch(data) : new Job(data), true);
  }

  *#tell(event: Event): Generator<Update, void, undefined> {
    if (!this.#events || this.#told.has(event.id)) return;
    this.#told.add(event.id);
    if (this.#told.size > REMEMBERED_EVENTS) this.#told.delete(this.#told.values().next().value!);
    yield { kind: "event", subject: this.#known(), event, isLive: true };
  }

  #shown(subject: Subject, isLive: boolean): Update {
    if (this.#subject === undefined && !(subject instanceof Operation)) {
      this.#cursor = subject.cursor ?? 0;
      this.#epoch = subject.epoch ?? "";
    }
    this.#subject = subject;
    return { kind: "state", subject, isLive };
  }

  async #after(lost: LineLost): Promise<void> {
    this.#failures += 1;
    if (lost.refused || this.#failures >= MAX_FAILURES) {
      this.#socketAt = monotonic() + SOCKET_AGAIN_SECONDS;
    } else {
      await this.#pause(RETURNING.backoffSeconds(this.#failures));
    }
  }

  #known(): Subject {
    if (this.#subject === undefined) throw new Error("nothing is told before the first look");
    return this.#subject;
  }

  #tooLate(): WaitTimeout {
    const known = this.#subject ? "It has not ended in time; it goes on." : "The server was not reached in time.";
    return new WaitTimeout(known, this.#subject);
  }

  async #pause(seconds: number): Promise<void> {
    await sleep(this.#bounded(seconds), { signal: this.#signal });
  }

  /** Return the seconds, cut off at the deadline. */
  #bounded(seconds: number): number {
    return Math.max(0, Math.min(seconds, this.#deadline - monotonic()));
  }

  #pollSeconds(): number {
    const subject = this.#known();
    const asked = (subject instanceof Operation ? undefined : subject.recheck_after_seconds) || 1;
    return Math.min(Math.max(asked, MIN_POLL_SECONDS), MAX_POLL_SECONDS) * (0.8 + 0.2 * Math.random());
  }

  #socketUrl(): string {
    const kind = this.#subject instanceof Batch ? "batches" : "jobs";
    return `ws${this.#transport.baseUrl.slice("http".length)}/ws/v1/${kind}/${this.#known().id}`;
  }
}
