/** A store in memory, for tests: what the others must do, as plainly as it can be said. */

export class MemoryStore {
  static #living = new Set();

  name = "memory";
  #disk;
  #seat;
  #turn = Promise.resolve();

  /** @param disk What instances share: `{ rows, facts, seq }`. */
  constructor(disk = { rows: [], facts: new Map(), seq: 0 }) {
    this.#disk = disk;
  }

  transaction(work) {
    const turn = this.#turn.then(async () => {
      const before = structuredClone(this.#disk);
      try {
        return await work(new Scope(this.#disk));
      } catch (error) {
        Object.assign(this.#disk, before);
        throw error;
      }
    });
    this.#turn = turn.catch(() => {});
    return turn;
  }

  async seat() {
    this.#seat ??= crypto.randomUUID();
    MemoryStore.#living.add(this.#seat);
    return this.#seat;
  }

  async dead(seats) {
    return [...seats].filter((seat) => !MemoryStore.#living.has(seat));
  }

  async close() {
    MemoryStore.#living.delete(this.#seat);
    this.#seat = undefined;
  }
}

class Scope {
  #disk;

  constructor(disk) {
    this.#disk = disk;
  }

  async row(eventId) {
    return structuredClone(this.#disk.rows.find((row) => row.eventId === eventId));
  }

  async put(row) {
    if (row.seq === undefined) this.#disk.rows.push({ ...row, seq: ++this.#disk.seq });
    else this.#disk.rows = this.#disk.rows.map((each) => (each.seq === row.seq ? { ...row } : each));
  }

  async remove({ seq }) {
    this.#disk.rows = this.#disk.rows.filter((row) => row.seq !== seq);
  }

  async rows(status, { limit = Infinity, accepts = () => true } = {}) {
    return structuredClone(this.#disk.rows.filter((row) => row.status === status && accepts(row)).slice(0, limit));
  }

  async heldUntil(moment) {
    return structuredClone(this.#disk.rows.filter((row) => row.heldUntil !== null && row.heldUntil <= moment));
  }

  async owners() {
    return [...new Set(this.#disk.rows.map((row) => row.owner).filter((owner) => owner !== null))];
  }

  async rowsOf(owner) {
    return structuredClone(this.#disk.rows.filter((row) => row.owner === owner));
  }

  async get(name) {
    return this.#disk.facts.get(name);
  }

  async set(name, value) {
    this.#disk.facts.set(name, value);
  }

  async unset(name) {
    this.#disk.facts.delete(name);
  }

  async names(start) {
    return [...this.#disk.facts.keys()].filter((name) => name.startsWith(start));
  }
}
