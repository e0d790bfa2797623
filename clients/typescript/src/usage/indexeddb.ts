/** A store in IndexedDB, for browsers and the renderers of Electron. Tabs share it; Web Locks tell which tabs live. */

import { newId } from "../ids.js";
import { OutboxFailed } from "./errors.js";
import type { OutboxStore, Row, StoreOptions, Transaction } from "./store.js";

const VERSION = 1;
const LAST = "\uffff";

/** Return the store of an installation: a database of its own, unless `path` names another. */
export function defaultStore({ baseUrl, path }: StoreOptions): OutboxStore {
  return new IndexedDbStore(path ?? `queueops-usage ${baseUrl}`);
}

export interface IndexedDbOptions {
  indexedDB?: IDBFactory;
  locks?: LockManager;
}

export class IndexedDbStore implements OutboxStore {
  readonly name: string;
  readonly #factory: IDBFactory;
  readonly #locks: LockManager;
  #db: Promise<IDBDatabase> | undefined;
  #seat: Promise<Seat> | undefined;

  constructor(name: string, options: IndexedDbOptions = {}) {
    this.name = name;
    this.#factory = options.indexedDB ?? globalThis.indexedDB;
    this.#locks = options.locks ?? globalThis.navigator?.locks;
    if (!this.#factory || !this.#locks) {
      throw new OutboxFailed("There is no IndexedDB, or there are no Web Locks: pages need https for both.");
    }
  }

  async transaction<Value>(work: (transaction: Transaction) => Promise<Value>): Promise<Value> {
    const db = await (this.#db ??= this.#open());
    return await this.#inWords(async () => {
      const within = db.transaction(["event", "fact"], "readwrite", { durability: "strict" });
      const committed = ended(within);
      committed.catch(() => {}); // the work or the lines below report the error
      try {
        const value = await work(new Scope(within));
        await committed;
        return value;
      } catch (error) {
        try {
          within.abort();
        } catch {
          // the transaction has ended by itself
        }
        throw error;
      }
    });
  }

  async seat(): Promise<string> {
    this.#seat ??= Seat.take(this.#locks, this.name);
    return (await this.#seat).id;
  }

  async dead(seats: Iterable<string>): Promise<string[]> {
    const { held = [] } = await this.#locks.query();
    const living = new Set(held.map((lock) => lock.name));
    return [...seats].filter((seat) => !living.has(lockOf(this.name, seat)));
  }

  async close(): Promise<void> {
    const [db, seat] = [this.#db, this.#seat];
    this.#db = this.#seat = undefined;
    (await db)?.close();
    (await seat)?.leave();
  }

  async #open(): Promise<IDBDatabase> {
    try {
      return await this.#inWords(async () => {
        const request = this.#factory.open(this.name, VERSION);
        request.onupgradeneeded = (): void => build(request.result);
        const db = await answered(request);
        db.onversionchange = (): void => db.close(); // a newer version of the page waits for this
        db.onclose = (): void => void (this.#db = undefined);
        return db;
      });
    } catch (error) {
      this.#db = undefined;
      throw error;
    }
  }

  async #inWords<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      const cause = error.name === "QuotaExceededError" ? "there is no room left for this site" : error.message;
      throw new OutboxFailed(`The outbox ${this.name} cannot be used: ${cause} (${error.name}).`, { cause: error });
    }
  }
}

class Scope implements Transaction {
  readonly #events: IDBObjectStore;
  readonly #facts: IDBObjectStore;

  constructor(within: IDBTransaction) {
    this.#events = within.objectStore("event");
    this.#facts = within.objectStore("fact");
  }

  async row(eventId: string): Promise<Row | undefined> {
    return await answered(this.#events.index("eventId").get(eventId));
  }

  async put(row: Row): Promise<void> {
    await answered(this.#events.put(row));
  }

  async remove({ seq }: Row): Promise<void> {
    await answered(this.#events.delete(seq!));
  }

  async rows(
    status: Row["status"],
    { limit = Infinity, accepts = () => true }: { limit?: number; accepts?: (row: Row) => boolean } = {},
  ): Promise<Row[]> {
    const found: Row[] = [];
    const cursors = this.#events.index("status").openCursor(status);
    await each(cursors, ({ value }) => {
      if (accepts(value)) found.push(value);
      return found.length < limit;
    });
    return found;
  }

  async heldUntil(moment: number): Promise<Row[]> {
    return await answered(this.#events.index("heldUntil").getAll(IDBKeyRange.upperBound(moment)));
  }

  async owners(): Promise<string[]> {
    const found: string[] = [];
    await each(this.#events.index("owner").openKeyCursor(null, "nextunique"), ({ key }) => {
      found.push(key as string);
      return true;
    });
    return found;
  }

  async rowsOf(owner: string): Promise<Row[]> {
    return await answered(this.#events.index("owner").getAll(owner));
  }

  async get<Value>(name: string): Promise<Value | undefined> {
    return await answered(this.#facts.get(name));
  }

  async set(name: string, value: unknown): Promise<void> {
    await answered(this.#facts.put(value, name));
  }

  async unset(name: string): Promise<void> {
    await answered(this.#facts.delete(name));
  }

  async names(start: string): Promise<string[]> {
    return (await answered(this.#facts.getAllKeys(IDBKeyRange.bound(start, start + LAST)))) as string[];
  }
}

/** A tab as an owner of an outbox's rows: it holds a lock, which the browser drops when the tab ends. */
class Seat {
  private constructor(
    readonly id: string,
    readonly leave: () => void,
  ) {}

  static async take(locks: LockManager, outbox: string): Promise<Seat> {
    const id = newId();
    return await new Promise((resolve, reject) => {
      const held = (): Promise<void> => new Promise((leave) => resolve(new Seat(id, leave)));
      locks.request(lockOf(outbox, id), held).catch(reject);
    });
  }
}

function lockOf(outbox: string, seat: string): string {
  return `${outbox} ${seat}`;
}

function build(db: IDBDatabase): void {
  const events = db.createObjectStore("event", { keyPath: "seq", autoIncrement: true });
  events.createIndex("eventId", "eventId", { unique: true });
  // An index leaves out rows whose value is null.
  for (const name of ["status", "owner", "heldUntil"]) events.createIndex(name, name);
  db.createObjectStore("fact");
}

function answered<Value>(request: IDBRequest<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    request.onsuccess = (): void => resolve(request.result);
    request.onerror = (): void => reject(request.error);
  });
}

/** Move the cursor on for as long as `goesOn` returns true. */
function each<Cursor extends IDBCursor>(
  request: IDBRequest<Cursor | null>,
  goesOn: (cursor: Cursor) => boolean,
): Promise<void> {
  return new Promise((resolve, reject) => {
    request.onerror = (): void => reject(request.error);
    request.onsuccess = (): void => {
      const cursor = request.result;
      if (cursor !== null && goesOn(cursor)) cursor.continue();
      else resolve();
    };
  });
}

function ended(within: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    within.oncomplete = (): void => resolve();
    within.onabort = (): void => reject(within.error ?? new DOMException("It was aborted.", "AbortError"));
  });
}
