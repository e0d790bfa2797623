/** Every store does what `src/usage/store.ts` says, and a tracker works on each. */

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, it } from "node:test";
import { IDBFactory, IDBKeyRange } from "fake-indexeddb";
import { OutboxFailed, UsageTracker } from "queueops-client";
import { IndexedDbStore } from "queueops-client/indexeddb";
import { SqliteStore } from "queueops-client/sqlite";
import { MemoryStore } from "./memory_store.mjs";

globalThis.IDBKeyRange = IDBKeyRange;

/** Of Web Locks what the store uses. */
class Locks {
  #held = new Set();

  async request(name, work) {
    this.#held.add(name);
    try {
      return await work();
    } finally {
      this.#held.delete(name);
    }
  }

  async query() {
    return { held: [...this.#held].map((name) => ({ name })) };
  }
}

const directories = [];

/** Each makes a function that opens the same store again, as another process would. */
const STORES = {
  memory: () => {
    const disk = { rows: [], facts: new Map(), seq: 0 };
    return () => new MemoryStore(disk);
  },
  sqlite: () => {
    const directory = mkdtempSync(join(tmpdir(), "outbox-"));
    directories.push(directory);
    return () => new SqliteStore(join(directory, "outbox.sqlite3"));
  },
  indexeddb: () => {
    const shared = { indexedDB: new IDBFactory(), locks: new Locks() };
    return () => new IndexedDbStore("outbox", shared);
  },
};

const open = [];

function opened(make) {
  const store = make();
  open.push(store);
  return store;
}

afterEach(async () => {
  for (const store of open.splice(0)) await store.close();
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true });
});

function row(eventId, given = {}) {
  return {
    ...{ eventId, userId: "u", service: "", status: "ready", estimate: 1, tokens: 1, cost: 1, month: "" },
    ...{ reservationId: null, held: 0, heldUntil: null, owner: null, ownedAt: null, attempts: 0 },
    ...{ reason: null, message: null, at: 1, clockOffset: null, floor: 0 },
    ...given,
  };
}

const ids = (rows) => rows.map(({ eventId }) => eventId);

for (const [name, each] of Object.entries(STORES)) {
  describe(name, () => {
    it("keeps rows in their order, and changes and removes them", async () => {
      const store = opened(each());
      await store.transaction(async (db) => {
        for (const id of ["a", "b", "c", "d"]) await db.put(row(id));
      });
      await store.transaction(async (db) => {
        await db.put({ ...(await db.row("b")), status: "rejected", reason: "too_old" });
        await db.remove(await db.row("c"));
      });
      await store.transaction(async (db) => {
        assert.deepEqual(ids(await db.rows("ready")), ["a", "d"]);
        assert.deepEqual(ids(await db.rows("ready", { limit: 1 })), ["a"]);
        assert.deepEqual(ids(await db.rows("ready", { limit: 1, accepts: ({ eventId }) => eventId > "a" })), ["d"]);
        assert.equal((await db.row("b")).reason, "too_old");
        assert.equal(await db.row("c"), undefined);
      });
    });

    it("finds rows by owner and by the end of what is held", async () => {
      const store = opened(each());
      await store.transaction(async (db) => {
        await db.put(row("a", { owner: "x" }));
        await db.put(row("b", { owner: "y", held: 5, heldUntil: 10 }));
        await db.put(row("c", { owner: "x", held: 5, heldUntil: 20 }));
        await db.put(row("d"));
      });
      await store.transaction(async (db) => {
        assert.deepEqual((await db.owners()).sort(), ["x", "y"]);
        assert.deepEqual(ids(await db.rowsOf("x")), ["a", "c"]);
        assert.deepEqual(ids(await db.heldUntil(10)), ["b"]);
        assert.deepEqual(ids(await db.heldUntil(9)), []);
      });
    });

    it("keeps facts by name", async () => {
      const store = opened(each());
      await store.transaction(async (db) => {
        await db.set("standing a", { remaining: 7 });
        await db.set("standing b", 0);
        await db.set("size", 3);
        await db.unset("size");
      });
      await store.transaction(async (db) => {
        assert.deepEqual(await db.names("standing "), ["standing a", "standing b"]);
        assert.deepEqual(await db.get("standing a"), { remaining: 7 });
        assert.equal(await db.get("standing b"), 0);
        assert.equal(await db.get("size"), undefined);
      });
    });

    it("does all of a transaction or nothing", async () => {
      const store = opened(each());
      await assert.rejects(
        store.transaction(async (db) => {
          await db.put(row("a"));
          await db.set("size", 1);
          throw new Error("cut off");
        }),
        /cut off/,
      );
      await store.transaction(async (db) => {
        assert.equal(await db.row("a"), undefined);
        assert.equal(await db.get("size"), undefined);
      });
    });

    it("lets one transaction in at a time, also of two who share it", async () => {
      const make = each();
      const stores = name === "memory" ? [opened(make)] : [opened(make), opened(make)];
      const raise = (store) =>
        store.transaction(async (db) => db.set("size", ((await db.get("size")) ?? 0) + 1));
      await Promise.all(Array.from({ length: 60 }, (_, number) => raise(stores[number % stores.length])));
      assert.equal(await stores[0].transaction((db) => db.get("size")), 60);
    });

    it("tells the seats of the dead from those of the living", async () => {
      const make = each();
      const [first, second] = [opened(make), opened(make)];
      const [own, other] = [await first.seat(), await second.seat()];
      assert.equal(await first.seat(), own);
      assert.deepEqual(await first.dead([own, other, "nobody"]), ["nobody"]);
      await second.close();
      assert.deepEqual(await first.dead([own, other]), [other]);
    });

    it("carries a tracker over the loss of its server and of its process", async () => {
      const make = each();
      const events = new Map();
      let isUp = false;
      const fetch = async (_url, { body }) => {
        if (!isUp) throw new TypeError("fetch failed");
        const sent = JSON.parse(body);
        for (const event of sent) events.set(event.event_id, event.tokens);
        return Response.json({ results: sent.map(({ event_id }) => ({ event_id, status: "accepted" })), usage: [] });
      };
      const userId = "0f8fad5b-d9cb-469f-a165-70867728950e";
      const options = { userId, policy: "optimistic", background: false, fetch };
      const crashed = opened(make);
      const first = new UsageTracker("https://queue.example.org", "qo_x", { ...options, store: crashed });
      await first.use({ estimate: 50 }, (usage) => void (usage.tokens = 30));
      const { eventId } = await first.begin({ estimate: 80, service: "gemini" });
      await assert.rejects(first.flush(), { code: "unreachable" });
      await crashed.close(); // as a crash lets go of its seat

      const second = new UsageTracker("https://queue.example.org", "qo_x", { ...options, store: opened(make) });
      const { intents, pending, size } = await second.report();
      assert.deepEqual([intents.map((left) => left.eventId), pending, size], [[eventId], 1, 2]);
      assert.equal(await second.resolve(eventId, { tokens: 44 }), true);
      isUp = true;
      assert.deepEqual(await second.flush(), { sent: 2, rejected: 0, pending: 0 });
      assert.deepEqual([...events.values()], [30, 44]);
      assert.equal((await second.report()).size, 0);
      await second.close();
    });
  });
}

describe("a file", () => {
  it("is its user's alone, and leaves no seats", async () => {
    const directory = mkdtempSync(join(tmpdir(), "outbox-"));
    directories.push(directory);
    const store = opened(() => new SqliteStore(join(directory, "deeper", "outbox.sqlite3")));
    await store.seat();
    await store.transaction((db) => db.set("size", 1));
    assert.equal(statSync(store.name).mode & 0o777, 0o600);
    await store.close();
    assert.deepEqual(readdirSync(join(directory, "deeper")), ["outbox.sqlite3"]);
  });

  it("that is none says so", async () => {
    const store = opened(() => new SqliteStore("/proc/version"));
    await assert.rejects(store.transaction((db) => db.get("size")), OutboxFailed);
  });
});
