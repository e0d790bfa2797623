/** A store in an SQLite file, for Node 22.5 and newer, Deno, and the main process of Electron: `node:sqlite`. */

import { createHash, randomUUID } from "node:crypto";
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { monotonic, sleep } from "../time.js";
import { OutboxFailed } from "./errors.js";
import type { OutboxStore, Row, StoreOptions, Transaction } from "./store.js";

const VERSION = 1;
const APPLICATION = 0x514f4a53; // distinguishes these files from the Python client's
const BUSY_SECONDS = 10;
const SUFFIX = ".owner";
const OURS_ALONE = 0o600;

const SCHEMA = `
  CREATE TABLE event (
      seq INTEGER PRIMARY KEY AUTOINCREMENT,
      event_id TEXT NOT NULL UNIQUE,
      status TEXT NOT NULL,
      owner TEXT,
      held_until REAL,
      row TEXT NOT NULL  -- all of it, as JSON
  );
  CREATE INDEX event_status ON event (status, seq);
  CREATE INDEX event_owner ON event (owner) WHERE owner IS NOT NULL;
  CREATE INDEX event_held ON event (held_until) WHERE held_until IS NOT NULL;
  CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
  PRAGMA application_id = ${APPLICATION};
  PRAGMA user_version = ${VERSION};
`;

const BUSY = 5;
const REMEDIES: Record<number, string> = {
  13: "there is no room left on its disk; nothing was lost that had been written",
  8: "this user may not write it",
  3: "this user may not use it",
  14: "it cannot be opened or made there; see that its directory can be written by this user",
  11: "it is damaged; move it aside with its -wal file, and get rows back with `sqlite3 FILE .recover`",
  26: "this file is no outbox",
  [BUSY]: `another process has locked it for more than ${BUSY_SECONDS} s`,
  10: "its disk cannot be read or written",
};

/**
 * Return the store of an installation: a file among this user's lasting data, unless `path` names another on a local
 * disk.
 */
export function defaultStore({ baseUrl, path }: StoreOptions): OutboxStore {
  return new SqliteStore(path ?? defaultPath(baseUrl));
}

export class SqliteStore implements OutboxStore {
  readonly name: string;
  #connection: Connection | undefined;
  #seat: Seat | undefined;
  #turn: Promise<unknown> = Promise.resolve();

  /** @param path A file on a local disk, which is made for this user alone if it is missing. Processes may share it. */
  constructor(path: string) {
    this.name = resolve(path);
  }

  transaction<Value>(work: (transaction: Transaction) => Promise<Value>): Promise<Value> {
    return this.#inTurn(async () => {
      this.#connection ??= await Connection.open(this.name);
      return await this.#connection.transaction(work);
    });
  }

  seat(): Promise<string> {
    return this.#inTurn(async () => (this.#seat ??= await Seat.take(this.name)).id);
  }

  dead(seats: Iterable<string>): Promise<string[]> {
    const own = this.#seat?.id;
    return this.#inTurn(async () => {
      const all = new Set([...seats, ...seatsAt(this.name)]);
      const { DatabaseSync: Database } = await import("node:sqlite");
      return [...all].filter((seat) => seat !== own && !isAlive(Database, pathOf(this.name, seat)));
    });
  }

  close(): Promise<void> {
    return this.#inTurn(async () => {
      this.#connection?.close();
      this.#connection = undefined;
      this.#seat?.leave();
      this.#seat = undefined;
    });
  }

  /** Do work in turn, because a connection can have only one transaction. */
  #inTurn<Value>(work: () => Promise<Value>): Promise<Value> {
    const turn = this.#turn.then(() => inWords(this.name, work));
    this.#turn = turn.catch(() => {});
    return turn;
  }
}

/** The open file. Its methods wait for nothing; they are asynchronous because other stores' methods are. */
class Connection implements Transaction {
  readonly #db: DatabaseSync;
  readonly #prepared = new Map<string, StatementSync>();

  private constructor(db: DatabaseSync) {
    this.#db = db;
  }

  static async open(path: string): Promise<Connection> {
    const { DatabaseSync: Database } = await import("node:sqlite");
    mkdirSync(dirname(path), { recursive: true });
    makeIfMissing(path);
    const db = new Database(path);
    try {
      const { journal_mode: mode } = await patiently(() => db.prepare("PRAGMA journal_mode = WAL").get()!);
      if (mode !== "wal") {
        throw new OutboxFailed(`The outbox ${path} needs a local disk: its file system has no shared memory for SQLite.`);
      }
      db.exec("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON"); // macOS: fsync alone leaves rows in the drive's cache
      await patiently(() => db.exec("BEGIN IMMEDIATE"));
      const { user_version: version } = db.prepare("PRAGMA user_version").get() as { user_version: number };
      const { application_id: application } = db.prepare("PRAGMA application_id").get()!;
      if (version > VERSION) throw new OutboxFailed(`The outbox ${path} was written by a newer version of this package.`);
      if (version !== 0 && application !== APPLICATION) {
        throw new OutboxFailed(`The outbox ${path} is another program's; give each its own.`);
      }
      if (version === 0) db.exec(SCHEMA);
      db.exec("COMMIT");
    } catch (error) {
      db.close();
      throw error;
    }
    return new Connection(db);
  }

  async transaction<Value>(work: (transaction: Transaction) => Promise<Value>): Promise<Value> {
    await patiently(() => this.#db.exec("BEGIN IMMEDIATE"));
    try {
      const value = await work(this);
      this.#db.exec("COMMIT");
      return value;
    } catch (error) {
      if (this.#db.isTransaction ?? true) quietly(() => this.#db.exec("ROLLBACK"));
      throw error;
    }
  }

  close(): void {
    this.#db.close();
  }

  async row(eventId: string): Promise<Row | undefined> {
    return this.#rows("SELECT seq, row FROM event WHERE event_id = ?", eventId)[0];
  }

  async put({ seq, ...row }: Row): Promise<void> {
    const columns = [row.eventId, row.status, row.owner, row.heldUntil, JSON.stringify(row)];
    if (seq === undefined) {
      this.#statement("INSERT INTO event (event_id, status, owner, held_until, row) VALUES (?, ?, ?, ?, ?)").run(...columns);
    } else {
      const update = "UPDATE event SET event_id = ?, status = ?, owner = ?, held_until = ?, row = ? WHERE seq = ?";
      this.#statement(update).run(...columns, seq);
    }
  }

  async remove({ eventId }: Row): Promise<void> {
    this.#statement("DELETE FROM event WHERE event_id = ?").run(eventId);
  }

  async rows(
    status: Row["status"],
    { limit = Infinity, accepts = () => true }: { limit?: number; accepts?: (row: Row) => boolean } = {},
  ): Promise<Row[]> {
    const found: Row[] = [];
    for (const each of this.#statement("SELECT seq, row FROM event WHERE status = ? ORDER BY seq").iterate(status)) {
      if (found.length >= limit) break;
      const row = parsed(each);
      if (accepts(row)) found.push(row);
    }
    return found;
  }

  async heldUntil(moment: number): Promise<Row[]> {
    return this.#rows("SELECT seq, row FROM event WHERE held_until <= ?", moment);
  }

  async owners(): Promise<string[]> {
    const found = this.#statement("SELECT DISTINCT owner FROM event WHERE owner IS NOT NULL").all();
    return found.map(({ owner }) => owner as string);
  }

  async rowsOf(owner: string): Promise<Row[]> {
    return this.#rows("SELECT seq, row FROM event WHERE owner = ? ORDER BY seq", owner);
  }

  async get<Value>(name: string): Promise<Value | undefined> {
    const found = this.#statement("SELECT value FROM fact WHERE name = ?").get(name);
    return found && (JSON.parse(found["value"] as string) as Value);
  }

  async set(name: string, value: unknown): Promise<void> {
    this.#statement("INSERT OR REPLACE INTO fact VALUES (?, ?)").run(name, JSON.stringify(value));
  }

  async unset(name: string): Promise<void> {
    this.#statement("DELETE FROM fact WHERE name = ?").run(name);
  }

  async names(start: string): Promise<string[]> {
    const found = this.#statement("SELECT name FROM fact WHERE name >= ? AND name < ?").all(start, `${start}\u{10ffff}`);
    return found.map(({ name }) => name as string);
  }

  #rows(statement: string, ...parameters: (string | number)[]): Row[] {
    return this.#statement(statement).all(...parameters).map(parsed);
  }

  #statement(text: string): StatementSync {
    let statement = this.#prepared.get(text);
    if (statement === undefined) this.#prepared.set(text, (statement = this.#db.prepare(text)));
    return statement;
  }
}

/**
 * A process as an owner of an outbox's rows: it keeps an SQLite file of its own locked. The system drops the lock when
 * the process dies, however it dies.
 */
class Seat {
  private constructor(
    readonly id: string,
    readonly path: string,
    readonly db: DatabaseSync,
  ) {}

  static async take(outbox: string): Promise<Seat> {
    const { DatabaseSync: Database } = await import("node:sqlite");
    mkdirSync(dirname(outbox), { recursive: true });
    for (;;) {
      const id = randomUUID().replaceAll("-", "");
      const path = pathOf(outbox, id);
      makeIfMissing(path);
      const db = new Database(path);
      try {
        if (isLocked(db, "BEGIN EXCLUSIVE") && existsSync(path)) return new Seat(id, path, db);
      } catch (error) {
        if (existsSync(path)) throw error; // SQLite may report a removed file as a broken disk
      }
      db.close(); // another process removed the file before it was locked
    }
  }

  leave(): void {
    this.db.close();
    quietly(() => rmSync(this.path));
  }
}

/** Whether this owner still runs; the file of a dead owner is removed. */
function isAlive(Database: typeof DatabaseSync, path: string): boolean {
  if (!existsSync(path)) return false;
  let db: DatabaseSync;
  try {
    db = new Database(path);
  } catch {
    return true; // not permitted to open it: a live owner taken for dead would have its calls taken for lost
  }
  try {
    if (!isLocked(db, "BEGIN IMMEDIATE")) return true;
    quietly(() => rmSync(path));
    return false;
  } catch {
    return true;
  } finally {
    db.close();
  }
}

function isLocked(db: DatabaseSync, statement: string): boolean {
  try {
    db.exec(statement);
    return true;
  } catch (error) {
    if (primaryCode(error) === BUSY) return false;
    throw error;
  }
}

/** Return the ids of all owners, living and dead. */
function seatsAt(outbox: string): string[] {
  const start = `${basename(outbox)}-`;
  const found = readdirSync(dirname(outbox)).filter((name) => name.startsWith(start) && name.endsWith(SUFFIX));
  return found.map((name) => name.slice(start.length, -SUFFIX.length));
}

function pathOf(outbox: string, seat: string): string {
  return `${outbox}-${seat}${SUFFIX}`;
}

function makeIfMissing(path: string): void {
  // Opening and closing an existing file would drop the locks that this process holds on it.
  if (!existsSync(path)) quietly(() => closeSync(openSync(path, "wx", OURS_ALONE)));
}

/**
 * Try again while another connection is in the way, for BUSY_SECONDS.
 *
 * SQLite's own wait would block the whole process, and sleeps up to 100 ms between two tries.
 */
async function patiently<Value>(act: () => Value): Promise<Value> {
  const deadline = monotonic() + BUSY_SECONDS;
  for (;;) {
    try {
      return act();
    } catch (error) {
      if (primaryCode(error) !== BUSY || monotonic() > deadline) throw error;
    }
    await sleep(0.0005 + 0.002 * Math.random());
  }
}

async function inWords<Value>(name: string, work: () => Promise<Value>): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    const { code, message, syscall } = error as { code?: string; message?: string; syscall?: string };
    if (code === "ERR_UNKNOWN_BUILTIN_MODULE") {
      throw new OutboxFailed("This runtime has no node:sqlite; give the tracker a store.", { cause: error });
    }
    if (code !== "ERR_SQLITE_ERROR" && syscall === undefined) throw error;
    const cause = REMEDIES[primaryCode(error) ?? -1] ?? message;
    throw new OutboxFailed(`The outbox ${name} cannot be used: ${cause} (${code}).`, { cause: error });
  }
}

function primaryCode(error: unknown): number | undefined {
  const { errcode } = error as { errcode?: number };
  return errcode === undefined ? undefined : errcode & 0xff;
}

function quietly(act: () => void): void {
  try {
    act();
  } catch {
    // other processes remove what is left
  }
}

function parsed(found: unknown): Row {
  const { seq, row } = found as { seq: number; row: string };
  return { ...(JSON.parse(row) as Row), seq };
}

function defaultPath(baseUrl: string): string {
  const home =
    process.platform === "win32"
      ? process.env["LOCALAPPDATA"] || join(homedir(), "AppData", "Local")
      : process.platform === "darwin"
        ? join(homedir(), "Library", "Application Support")
        : process.env["XDG_STATE_HOME"] || join(homedir(), ".local", "state");
  // Use a digest: some file systems refuse characters of an address.
  const digest = createHash("sha256").update(baseUrl).digest("hex").slice(0, 16);
  return join(home, "queueops", `usage-js-${digest}.sqlite3`);
}
