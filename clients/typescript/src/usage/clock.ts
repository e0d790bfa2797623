/** The server's time, from the Date header of its answers: the local clock may be wrong by hours. */

const HALF_A_DATE_SECONDS = 0.5; // the header has whole seconds, cut off

export class ServerClock {
  /** Seconds since 1970 by the local clock. */
  readonly local: () => number;
  /** What to add to it; undefined until the server has answered. */
  offset: number | undefined;

  constructor(local: () => number = () => Date.now() / 1000) {
    this.local = local;
  }

  /** Seconds since 1970: the server's if known, else the local clock's. */
  now(): number {
    return this.local() + (this.offset ?? 0);
  }

  /**
   * Take the time of an answer that just came.
   *
   * @param began When its request was sent, by the local clock.
   */
  learn(headers: Headers, began: number): void {
    const moment = Date.parse(headers.get("date") ?? "") / 1000;
    if (Number.isFinite(moment)) this.offset = moment + HALF_A_DATE_SECONDS - (began + this.local()) / 2;
  }

  /**
   * When an event happened, by the server's clock, as well as can be known.
   *
   * It can be neither later than now nor earlier than the last answer before it. Without these bounds a clock
   * that was set while the event waited would make the server refuse it.
   */
  timeOf({ at, clockOffset, floor }: Moment): number {
    const corrected = at + (clockOffset ?? this.offset ?? 0);
    return Math.min(Math.max(corrected, floor), Math.max(this.now(), floor));
  }
}

/** When something happened, as it was known then. */
export interface Moment {
  /** By the local clock. */
  at: number;
  /** What it was behind the server's; null: not known. */
  clockOffset: number | null;
  /** The server's time as last heard of before; 0: never. */
  floor: number;
}

/** ISO 8601 in UTC. */
export function asText(moment: number): string {
  return new Date(moment * 1000).toISOString();
}

/**
 * Of an ISO 8601 text.
 *
 * @throws TypeError
 */
export function secondsOf(text: unknown): number {
  const seconds = typeof text === "string" ? Date.parse(text) / 1000 : NaN;
  if (!Number.isFinite(seconds)) throw new TypeError(`${text} is no moment`);
  return seconds;
}
