/** Which requests are sent again, and when. */

import { type ApiError, TooManyRequests, Unreachable } from "./errors.js";

// A proxy answers these while the server is down, and the server while its database is down.
const PASSING = new Set([502, 503, 504]);

/**
 * Truncated exponential backoff with full jitter: before the n-th repeat a random time up to
 * min(cap, base * 2^(n-1)). Clients that failed together thus do not come back together.
 */
export interface RetryOptions {
  /** No repeat begins later than this after the first attempt; 0: never repeat. */
  budgetSeconds?: number;
  baseSeconds?: number;
  capSeconds?: number;
  /** Returns a random number from 0 to 1. */
  draw?: () => number;
  /** Called before the pause of each repeat, with the reason and the repeat's number, counted from 1. */
  told?: (error: ApiError | Unreachable, repeat: number) => void;
}

export class Retry {
  readonly budgetSeconds: number;
  readonly baseSeconds: number;
  readonly capSeconds: number;
  readonly told: RetryOptions["told"];
  readonly #draw: () => number;

  constructor({
    budgetSeconds = 60,
    baseSeconds = 0.25,
    capSeconds = 20,
    draw = Math.random,
    told,
  }: RetryOptions = {}) {
    this.budgetSeconds = budgetSeconds;
    this.baseSeconds = baseSeconds;
    this.capSeconds = capSeconds;
    this.told = told;
    this.#draw = draw;
  }

  /** Return a random time to wait before the given repeat, counted from 1. */
  backoffSeconds(repeat: number): number {
    return this.#draw() * Math.min(this.capSeconds, this.baseSeconds * 2 ** Math.min(repeat - 1, 32));
  }

  /**
   * Return how many seconds to wait before sending the request again; undefined: give up.
   *
   * A request that may have been carried out is sent again only if that is safe. A request that never arrived, or was
   * refused for its rate, may always be sent again. The server's Retry-After is never undercut.
   */
  pauseSeconds(
    error: ApiError | Unreachable,
    { repeat, elapsed, isSafe }: { repeat: number; elapsed: number; isSafe: boolean },
  ): number | undefined {
    let mayRepeat: boolean;
    let least = 0;
    if (error instanceof Unreachable) {
      mayRepeat = isSafe || !error.mayHaveArrived;
    } else {
      mayRepeat = error instanceof TooManyRequests || (isSafe && PASSING.has(error.status));
      least = error.retryAfter ?? 0;
    }
    const pause = least + this.backoffSeconds(repeat);
    return mayRepeat && elapsed + pause <= this.budgetSeconds ? pause : undefined;
  }
}

export const NEVER = new Retry({ budgetSeconds: 0 });
