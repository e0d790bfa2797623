/** Where an outbox keeps its rows: what a store must do. `sqlite.ts` and `indexeddb.ts` are two of them. */

import type { Moment } from "./clock.js";

/** A use. `intent` before its call, `ready` when what it used is known; gone once it was sent, or `rejected`. */
export interface Row extends Moment {
  /** Given by the store; rows are sent in its order. */
  seq?: number;
  eventId: string;
  userId: string;
  service: string;
  status: "intent" | "ready" | "rejected";
  /** Tokens. */
  estimate: number | null;
  tokens: number | null;
  /** Units: the estimate's, then those used. */
  cost: number;
  /** "": not known. */
  month: string;
  reservationId: string | null;
  /** Units that the server holds for it, */
  held: number;
  /** until then, by its clock; null where nothing is held. */
  heldUntil: number | null;
  /** An intent: who makes the call; a ready row: who sends it; null: nobody. */
  owner: string | null;
  ownedAt: number | null;
  attempts: number;
  reason: string | null;
  message: string | null;
}

/**
 * What may be done within a transaction. Nothing else may be awaited there: IndexedDB would end it.
 */
export interface Transaction {
  row(eventId: string): Promise<Row | undefined>;
  /** Insert a row without `seq`, replace one that has it. */
  put(row: Row): Promise<void>;
  remove(row: Row): Promise<void>;
  /** Rows of a state, the oldest first; at most `limit` of those that `accepts` does. */
  rows(status: Row["status"], options?: { limit?: number; accepts?: (row: Row) => boolean }): Promise<Row[]>;
  /** Rows whose units are held no longer than until then. */
  heldUntil(moment: number): Promise<Row[]>;
  /** All owners of rows. */
  owners(): Promise<string[]>;
  rowsOf(owner: string): Promise<Row[]>;
  /** A fact by its name, which is kept as JSON is. */
  get<Value>(name: string): Promise<Value | undefined>;
  set(name: string, value: unknown): Promise<void>;
  unset(name: string): Promise<void>;
  /** Names that begin so. */
  names(start: string): Promise<string[]>;
}

/**
 * Rows on a disk, shared by whoever opens the same store: processes, or tabs.
 *
 * Every method throws OutboxFailed when the store cannot be used.
 */
export interface OutboxStore {
  /** For messages: which store it is. */
  readonly name: string;
  /**
   * Do some work, alone among all that share the store: all of it or, when it throws, nothing. Durable when this
   * resolves: a crash of the machine loses none of it.
   */
  transaction<Value>(work: (transaction: Transaction) => Promise<Value>): Promise<Value>;
  /** The id of this process's seat, which shows others that it lives; taken when first asked for. */
  seat(): Promise<string>;
  /** Those of the given seats whose process has died. No id is ever given twice. */
  dead(seats: Iterable<string>): Promise<string[]>;
  /** Let go of the store and the seat. Used again, it opens again. */
  close(): Promise<void>;
}

/** What a default store is made of. */
export interface StoreOptions {
  /** Of the installation: each has a store of its own. */
  baseUrl: string;
  /** A file for SQLite, a database's name for IndexedDB. */
  path?: string | undefined;
}
