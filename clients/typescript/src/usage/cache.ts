/** What is known of a user's allowance. Stale news never raise it. */

import { secondsOf } from "./clock.js";

export const REQUESTS = "requests";
export const TOKENS = "tokens";
export const RECORD_OVERAGE = "record_overage";

/** What one answer said; undefined: nothing about it. */
export interface Heard {
  /** Units neither used nor reserved. */
  remaining: number;
  /** Seconds since 1970, by the server's clock. */
  resetsAt: number;
  month: string | undefined;
  quota: number | undefined;
  unit: string | undefined;
  policy: string | undefined;
}

export interface Cached {
  /** Raised by every answer that was taken in. */
  version: number;
  unit: string;
  policy: string;
  month: string;
  quota: number;
  remaining: number;
  resetsAt: number;
}

/** The allowance as it is known here and now. */
export interface View {
  unit: string;
  policy: string;
  quota: number;
  /** What the server last said, less `unsettled`. */
  remaining: number;
  /** Units used, or about to be, that the server's figure does not contain. */
  unsettled: number;
  month: string;
  resetsAt: number;
}

/** @throws TypeError: it is not said. */
export function heardOf(said: Record<string, unknown>): Heard {
  const { remaining, resets_at: resetsAt, month, quota, unit, policy } = said;
  if (!Number.isInteger(remaining)) throw new TypeError(`no remaining: ${remaining}`);
  return {
    remaining: remaining as number,
    resetsAt: secondsOf(resetsAt),
    month: (month ?? undefined) as string | undefined,
    quota: (quota ?? undefined) as number | undefined,
    unit: (unit ?? undefined) as string | undefined,
    policy: (policy ?? undefined) as string | undefined,
  };
}

/**
 * Take an answer in.
 *
 * Of two answers whose requests overlapped nobody can tell which the server gave later; then the smaller
 * remainder holds until a request that began after both is answered. The later of the two contains whatever
 * either of them settled, and the smaller is not above it: so it is safe.
 *
 * @param version Of what was cached when the request began; 0: nothing was.
 */
export function merge(cached: Cached | undefined, heard: Heard, version: number): Cached | undefined {
  if (cached === undefined) {
    // An answer to a reservation does not say enough to begin with.
    if (heard.month === undefined || heard.quota === undefined) return undefined;
    const { month, quota, remaining, resetsAt, unit = TOKENS, policy = "" } = heard;
    return { version: 1, unit, policy, month, quota, remaining, resetsAt };
  }
  const news: Cached = {
    version: cached.version + 1,
    unit: heard.unit ?? cached.unit,
    policy: heard.policy ?? cached.policy,
    quota: heard.quota ?? cached.quota,
    month: heard.month ?? cached.month,
    remaining: heard.remaining,
    resetsAt: heard.resetsAt,
  };
  if (news.month !== cached.month) return news.month > cached.month ? news : cached;
  if (version === cached.version) return news;
  return {
    ...news,
    quota: Math.min(news.quota, cached.quota),
    remaining: Math.min(news.remaining, cached.remaining),
    resetsAt: Math.min(news.resetsAt, cached.resetsAt),
  };
}

/**
 * @param unsettled Of the cached month.
 * @param now By the server's clock.
 * @returns undefined when nothing is known: never asked, or the month is over.
 */
export function viewOf(cached: Cached | undefined, unsettled: number, now: number): View | undefined {
  if (cached === undefined || now >= cached.resetsAt) return undefined;
  const { unit, policy, quota, month, resetsAt } = cached;
  return { unit, policy, quota, remaining: cached.remaining - unsettled, unsettled, month, resetsAt };
}

export function costOf(tokens: number, unit: string): number {
  return unit === REQUESTS ? 1 : tokens;
}
