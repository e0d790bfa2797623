/** The interface of stores, in which an outbox keeps its rows. `sqlite.ts` and `indexeddb.ts` implement it. */

import type { Moment } from "./clock.js";

/**
 * A use: `intent` before its call, `ready` when its tokens are known. It is then sent and removed, or `rejected` by the
 * server.
 */
export interface Row extends Moment {
  /** A number that the store gives; rows are sent in its order. */
  seq?: number;
  eventId: string;
  userId: string;
  service: string;
  status: "intent" | "ready" | "rejected";
  /** The estimated tokens; null: not given. */
  estimate: number | null;
  tokens: number | null;
  /** Units: first the estimate's, then the used ones. */
  cost: number;
  /** The month in which the use counts; empty: not known. */
  month: string;
  reservationId: string | null;
  /** Units that the server holds for the use. */
  held: number;
  /** Until when the units are held, by the server's clock; null: nothing is held. */
  heldUntil: number | null;
  /**
   * The owner: of an intent, the process that makes the call; of a ready row, the process that sends it; null: none.
   */
  owner: string | null;
  ownedAt: number | null;
  attempts: number;
  reason: string | null;
  message: string | null;
}

/**
 * The operations of a transaction. Nothing else may be awaited within it: IndexedDB would end the transaction.
 */
export interface Transaction {
  row(eventId: string): Promise<Row | undefined>;
  /** Insert a row without `seq`; replace a row that has it. */
  put(row: Row): Promise<void>;
  remove(row: Row): Promise<void>;
  /** Return rows of a state, the oldest first: at most `limit` rows that `accepts` returns true for. */
  rows(status: Row["status"], options?: { limit?: number; accepts?: (row: Row) => boolean }): Promise<Row[]>;
  /** Return rows whose units are held until this moment at the latest. */
  heldUntil(moment: number): Promise<Row[]>;
  /** Return all owners of rows. */
  owners(): Promise<string[]>;
  rowsOf(owner: string): Promise<Row[]>;
  /** Return the fact of this name, as JSON would keep it. */
  get<Value>(name: string): Promise<Value | undefined>;
  set(name: string, value: unknown): Promise<void>;
  unset(name: string): Promise<void>;
  /** Return the names that begin so. */
  names(start: string): Promise<string[]>;
}

/**
 * Rows on a disk, shared by all processes or tabs that open the same store.
 *
 * Every method throws OutboxFailed when the store cannot be used.
 */
export interface OutboxStore {
  /** The store's name, for messages. */
  readonly name: string;
  /**
   * Do some work while no other process or tab changes the store: all of it or, when it throws, nothing. The work is
   * durable when this resolves: a crash of the machine loses none of it.
   */
  transaction<Value>(work: (transaction: Transaction) => Promise<Value>): Promise<Value>;
  /** Return the id of this process as an owner of rows, which shows others that it lives. The first call makes it. */
  seat(): Promise<string>;
  /** Return those of these ids whose process has died. No id is ever given twice. */
  dead(seats: Iterable<string>): Promise<string[]>;
  /** Close the store, and give up the ownership of rows. The next use opens the store again. */
  close(): Promise<void>;
}

/** The arguments of a default store. */
export interface StoreOptions {
  /** The installation's address: each installation has a store of its own. */
  baseUrl: string;
  /** A file for SQLite, a database's name for IndexedDB. */
  path?: string | undefined;
}
