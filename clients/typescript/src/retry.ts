/** Which requests are sent again, and when. */

import { type ApiError, TooManyRequests, Unreachable } from "./errors.js";

// What a proxy answers for a server that is away, and the server for a database that is.
const PASSING = new Set([502, 503, 504]);

/**
 * Truncated exponential backoff with full jitter: before the n-th repeat a random time up to
 * min(cap, base * 2^(n-1)), so that clients that failed together do not come back together.
 */
export interface RetryOptions {
  /** No repeat begins later than this after the first attempt; 0: never repeat. */
  budgetSeconds?: number;
  baseSeconds?: number;
  capSeconds?: number;
  /** From 0 to 1. */
  draw?: () => number;
  /** Hears of each repeat, before its pause: why, and which it is, counted from 1. */
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

  /** Before the given repeat, counted from 1. */
  backoffSeconds(repeat: number): number {
    return this.#draw() * Math.min(this.capSeconds, this.baseSeconds * 2 ** Math.min(repeat - 1, 32));
  }

  /**
   * How long to wait before sending the request again; undefined: give up.
   *
   * What may have been carried out is sent again only if that is safe. What never arrived, or was refused
   * for its rate, always is. The server's Retry-After is never undercut.
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
