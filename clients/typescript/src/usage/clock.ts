/** The server's time, from the Date header of its answers: the local clock may be wrong by hours. */

const HALF_A_DATE_SECONDS = 0.5; // the header's seconds are cut off to whole ones

export class ServerClock {
  /** Seconds since 1970 by the local clock. */
  readonly local: () => number;
  /** Seconds to add to the local clock; undefined until the server has answered. */
  offset: number | undefined;

  constructor(local: () => number = () => Date.now() / 1000) {
    this.local = local;
  }

  /** Seconds since 1970: the server's if known, else the local clock's. */
  now(): number {
    return this.local() + (this.offset ?? 0);
  }

  /**
   * Set the offset by the Date header of an answer that just came.
   *
   * @param began When its request was sent, by the local clock.
   */
  learn(headers: Headers, began: number): void {
    const moment = Date.parse(headers.get("date") ?? "") / 1000;
    if (Number.isFinite(moment)) this.offset = moment + HALF_A_DATE_SECONDS - (began + this.local()) / 2;
  }

  /**
   * Return when an event happened, by the server's clock, as well as can be known.
   *
   * The event can be neither later than now nor earlier than the last answer before it. Without these bounds, the
   * server would refuse the event if the local clock was set while the event waited.
   */
  timeOf({ at, clockOffset, floor }: Moment): number {
    const corrected = at + (clockOffset ?? this.offset ?? 0);
    return Math.min(Math.max(corrected, floor), Math.max(this.now(), floor));
  }
}

/** When an event happened, as it was known at that time. */
export interface Moment {
  /** The event's time, by the local clock of that time. */
  at: number;
  /** The offset that was known at that time; null: none was. */
  clockOffset: number | null;
  /** The server's time in its last answer before the event; 0: there was none. */
  floor: number;
}

/** Return seconds since 1970 as an ISO 8601 text in UTC. */
export function asText(moment: number): string {
  return new Date(moment * 1000).toISOString();
}

/**
 * Return an ISO 8601 text as seconds since 1970.
 *
 * @throws TypeError
 */
export function secondsOf(text: unknown): number {
  const seconds = typeof text === "string" ? Date.parse(text) / 1000 : NaN;
  if (!Number.isFinite(seconds)) throw new TypeError(`${text} is no moment`);
  return seconds;
}
