/** The outbox: its rows and their changes, in any store. Nothing here waits for a network. */

import { type Cached, costOf, type Heard, merge, TOKENS, type View, viewOf } from "./cache.js";
import type { ServerClock } from "./clock.js";
import { OutboxFull } from "./errors.js";
import type { OutboxStore, Row, Transaction } from "./store.js";

export const MAX_ROWS = 100_000;
const CLAIM_SECONDS = 120; // after so long others send the rows that a stopped process had claimed

// The names of the stored facts. `size`: the number of rows; `heardAt`: the server's time in its last answer.
const SIZE = "size";
const HEARD_AT = "heardAt";
const STANDING = "standing "; // followed by the user: the allowance as the server last stated it
const UNSETTLED = "unsettled "; // followed by user and month: units that no answer of the server contains yet
const RELEASE = "release "; // followed by the reservation: to give back, unless it ended before

/** A use that is about to begin. */
export interface Intent {
  eventId: string;
  userId: string;
  service: string;
  /** The estimated tokens; null: not given. */
  estimate: number | null;
}

export interface Reservation {
  id: string;
  month: string;
  amount: number;
  /** When it ends, by the server's clock. */
  heldUntil: number;
}

/** The outcome of a row; `ready`: it is to be sent again. */
export interface Settled {
  eventId: string;
  status: "sent" | "rejected" | "ready";
  reason?: string;
  message?: string | undefined;
}

export type Versions = ReadonlyMap<string, number>;
type GoesAhead = (view: View | undefined, cost: number) => boolean;

/** Every method is one transaction, durable when it resolves. Every method may throw OutboxFailed. */
export class Outbox {
  readonly store: OutboxStore;
  readonly maxRows: number;
  readonly #clock: ServerClock;

  /** @param maxRows How many rows may be unsent; with so many, no further use begins. */
  constructor(store: OutboxStore, clock: ServerClock, maxRows = MAX_ROWS) {
    this.store = store;
    this.maxRows = maxRows;
    this.#clock = clock;
  }

  // Uses

  /**
   * Write a use down before its call, if it may go ahead.
   *
   * @param goesAhead Decides by the known state of the allowance and the use's units.
   * @returns Whether the use goes ahead, and the view by which that was decided.
   * @throws OutboxFull
   */
  async begin(
    intent: Intent,
    goesAhead: GoesAhead,
    reservation?: Reservation,
  ): Promise<{ begun: boolean; view: View | undefined }> {
    const owner = await this.store.seat();
    return await this.store.transaction(async (db) => {
      for (const row of await db.heldUntil(this.#clock.now())) await write(db, row, { ...row, held: 0, heldUntil: null });
      const size = (await db.get<number>(SIZE)) ?? 0;
      if (size >= this.maxRows) {
        throw new OutboxFull(
          `The outbox ${this.store.name} holds ${size.toLocaleString("en")} rows that were not sent, as many as it may: ` +
            "the server has been away for long, or rows were rejected. See the tracker's report().",
        );
      }
      const view = await this.#view(db, intent.userId);
      const cost = costOf(intent.estimate ?? 0, view?.unit ?? TOKENS);
      if (!goesAhead(view, cost)) return { begun: false, view };
      const month = reservation?.month ?? view?.month ?? "";
      await this.#insert(db, intent, { status: "intent", cost, month, owner, tokens: null }, reservation);
      return { begun: true, view };
    });
  }

  /** Write down what a use took, even if its intent was deleted: a person may have discarded it as left by a crash. */
  async complete(intent: Intent, tokens: number, unit: string): Promise<void> {
    const cost = costOf(tokens, unit);
    await this.store.transaction(async (db) => {
      const row = await db.row(intent.eventId);
      if (row === undefined) {
        await this.#insert(db, intent, { status: "ready", cost, month: "", owner: null, tokens });
      } else if (row.status === "intent") {
        await write(db, row, { ...row, status: "ready", tokens, cost, owner: null });
      }
    });
  }

  /** Forget this process's use: it took nothing. Its reservation is given back at the next flush. */
  async drop(eventId: string): Promise<void> {
    await this.#forget(eventId, (row) => row.status === "intent");
  }

  /** Forget a use that a crash cut off and that took nothing, or one that was rejected. */
  async discard(eventId: string): Promise<boolean> {
    return await this.#forget(eventId, isSetApart);
  }

  /** Set the tokens of a use that a crash cut off, or that the server rejected, and send it (again). */
  async resolve(eventId: string, tokens: number): Promise<boolean> {
    return await this.store.transaction(async (db) => {
      const row = await db.row(eventId);
      if (row === undefined || !isSetApart(row)) return false;
      const cached = await db.get<Cached>(STANDING + row.userId);
      await write(db, row, { ...row, ...AGAIN, tokens, cost: costOf(tokens, cached?.unit ?? TOKENS), owner: null });
      return true;
    });
  }

  /** Send every rejected row again; returns how many. */
  async retryRejected(): Promise<number> {
    return await this.store.transaction(async (db) => {
      const rows = await db.rows("rejected", { accepts: (row) => row.tokens !== null });
      for (const row of rows) await write(db, row, { ...row, ...AGAIN });
      return rows.length;
    });
  }

  // Sending

  /**
   * Claim the oldest rows that no process is sending.
   *
   * @param userId The user whose rows are claimed; undefined: the rows of all users are.
   */
  async claim(limit: number, userId: string | undefined): Promise<Row[]> {
    const owner = await this.store.seat();
    const now = Date.now() / 1000;
    const isFree = (row: Row): boolean =>
      (userId === undefined || row.userId === userId) &&
      (row.owner === null || Math.abs(now - (row.ownedAt ?? 0)) > CLAIM_SECONDS);
    return await this.store.transaction(async (db) => {
      const rows = await db.rows("ready", { limit, accepts: isFree });
      const claimed = rows.map((row) => ({ ...row, owner, ownedAt: now, attempts: row.attempts + 1 }));
      for (const row of claimed) await db.put(row);
      return claimed;
    });
  }

  /** Leave claimed rows to the next sender. */
  async letGo(rows: Row[]): Promise<void> {
    const owner = await this.store.seat();
    await this.store.transaction(async (db) => {
      for (const { eventId } of rows) {
        const row = await db.row(eventId);
        if (row?.status === "ready" && row.owner === owner) await db.put({ ...row, owner: null });
      }
    });
  }

  /**
   * Store an answer in one transaction: uses stop counting as unsettled when the remainder that contains them is
   * stored.
   *
   * @param heard The state of each user's allowance by the answer.
   * @param versions The result of `versions()` before the request was sent.
   */
  async settle(settled: Settled[], heard: ReadonlyMap<string, Heard>, versions: Versions): Promise<void> {
    await this.store.transaction(async (db) => {
      for (const { eventId, status, reason = null, message = null } of settled) {
        const row = await db.row(eventId);
        if (row?.status !== "ready") continue;
        await write(db, row, status === "sent" ? undefined : { ...row, status, reason, message, owner: null });
      }
      for (const [userId, news] of heard) {
        const known = merge(await db.get<Cached>(STANDING + userId), news, versions.get(userId) ?? 0);
        if (known !== undefined) await db.set(STANDING + userId, known);
      }
      if (this.#clock.offset !== undefined) {
        await db.set(HEARD_AT, Math.max((await db.get<number>(HEARD_AT)) ?? 0, this.#clock.now()));
      }
    });
  }

  /** Return the version of every user's standing. Call this before a request whose answer goes to `settle`. */
  async versions(): Promise<Versions> {
    return await this.store.transaction(async (db) => {
      const found = new Map<string, number>();
      for (const name of await db.names(STANDING)) {
        found.set(name.slice(STANDING.length), (await db.get<Cached>(name))!.version);
      }
      return found;
    });
  }

  async view(userId: string): Promise<View | undefined> {
    return await this.store.transaction((db) => this.#view(db, userId));
  }

  /** Return how many rows are still to be sent; `userId` as for `claim`. */
  async pending(userId: string | undefined): Promise<number> {
    return (await this.rows("ready", { accepts: (row) => userId === undefined || row.userId === userId })).length;
  }

  /** Return reservations to give back; reservations that have ended by themselves are forgotten. */
  async releases(): Promise<string[]> {
    return await this.store.transaction(async (db) => {
      const found: string[] = [];
      for (const name of await db.names(RELEASE)) {
        if ((await db.get<number>(name))! <= this.#clock.now()) await db.unset(name);
        else found.push(name.slice(RELEASE.length));
      }
      return found;
    });
  }

  async giveBack(reservationId: string, heldUntil: number): Promise<void> {
    await this.store.transaction((db) => db.set(RELEASE + reservationId, heldUntil));
  }

  async released(reservationId: string): Promise<void> {
    await this.store.transaction((db) => db.unset(RELEASE + reservationId));
  }

  // The store

  /** Release the rows of dead processes: others may then send them, and their intents have no owner any more. */
  async adopt(): Promise<void> {
    await this.store.seat();
    const dead = await this.store.dead(await this.store.transaction((db) => db.owners()));
    if (dead.length === 0) return;
    await this.store.transaction(async (db) => {
      for (const owner of dead) {
        for (const row of await db.rowsOf(owner)) await db.put({ ...row, owner: null });
      }
    });
  }

  /** Return rows, for reports. */
  async rows(...query: Parameters<Transaction["rows"]>): Promise<Row[]> {
    return await this.store.transaction((db) => db.rows(...query));
  }

  async size(): Promise<number> {
    return (await this.store.transaction((db) => db.get<number>(SIZE))) ?? 0;
  }

  async #forget(eventId: string, mayGo: (row: Row) => boolean): Promise<boolean> {
    return await this.store.transaction(async (db) => {
      const row = await db.row(eventId);
      if (row === undefined || !mayGo(row)) return false;
      if (row.reservationId !== null) await db.set(RELEASE + row.reservationId, row.heldUntil ?? 0);
      await write(db, row, undefined);
      return true;
    });
  }

  async #insert(
    db: Transaction,
    { eventId, userId, service, estimate }: Intent,
    how: Pick<Row, "status" | "cost" | "month" | "owner" | "tokens">,
    reservation?: Reservation,
  ): Promise<void> {
    await write(db, undefined, {
      ...{ eventId, userId, service, estimate, ...how },
      reservationId: reservation?.id ?? null,
      held: reservation?.amount ?? 0,
      heldUntil: reservation?.heldUntil ?? null,
      at: this.#clock.local(),
      clockOffset: this.#clock.offset ?? null,
      floor: (await db.get<number>(HEARD_AT)) ?? 0,
      ...{ ownedAt: null, attempts: 0, reason: null, message: null },
    });
  }

  async #view(db: Transaction, userId: string): Promise<View | undefined> {
    const cached = await db.get<Cached>(STANDING + userId);
    if (cached === undefined) return undefined;
    const ofMonth = (await db.get<number>(unsettledName({ userId, month: cached.month }))) ?? 0;
    const ofNone = (await db.get<number>(unsettledName({ userId, month: "" }))) ?? 0;
    return viewOf(cached, ofMonth + ofNone, this.#clock.now());
  }
}

const AGAIN = { status: "ready", attempts: 0, reason: null, message: null } as const;

/** Whether a row was left by a crash, or rejected. */
export function isSetApart(row: Row): boolean {
  return row.status === "rejected" || (row.status === "intent" && row.owner === null);
}

/** Write a row together with the sums that it changes. No other code changes a row's state or units. */
async function write(db: Transaction, before: Row | undefined, after: Row | undefined): Promise<void> {
  if (after !== undefined) await db.put(after);
  else if (before !== undefined) await db.remove(before);
  const rows = Number(after !== undefined) - Number(before !== undefined);
  if (rows !== 0) await add(db, SIZE, rows);
  if (before !== undefined) await add(db, unsettledName(before), -unsettled(before));
  if (after !== undefined) await add(db, unsettledName(after), unsettled(after));
}

async function add(db: Transaction, name: string, amount: number): Promise<void> {
  if (amount === 0) return;
  const sum = ((await db.get<number>(name)) ?? 0) + amount;
  await (sum === 0 ? db.unset(name) : db.set(name, sum));
}

function unsettled(row: Row): number {
  return row.status === "rejected" ? 0 : Math.max(0, row.cost - row.held);
}

function unsettledName({ userId, month }: Pick<Row, "userId" | "month">): string {
  return `${UNSETTLED}${userId} ${month}`;
}
