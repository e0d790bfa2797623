/** The known state of a user's allowance. An outdated answer never raises the known remainder. */

import { secondsOf } from "./clock.js";

export const REQUESTS = "requests";
export const TOKENS = "tokens";
export const RECORD_OVERAGE = "record_overage";

/** The allowance's state by one answer of the server; undefined: the answer does not state that field. */
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
  /** The number of answers that were taken in. */
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
  /** The remainder that the server last stated, less `unsettled`. */
  remaining: number;
  /** Units used, or about to be, that the server's figure does not contain. */
  unsettled: number;
  month: string;
  resetsAt: number;
}

/** @throws TypeError: the answer does not state it. */
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
 * Return the cached state after an answer was taken in.
 *
 * If two requests overlapped, it is unknown which answer the server gave later. The smaller remainder is then kept
 * until a request that began after both is answered. The later answer contains whatever either request settled. The
 * smaller remainder is safe, because it is not above that answer's.
 *
 * @param version The version that was cached when the request began; 0: nothing was cached.
 */
export function merge(cached: Cached | undefined, heard: Heard, version: number): Cached | undefined {
  if (cached === undefined) {
    // An answer to a reservation states too little to begin a cache.
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
 * @param unsettled The unsettled units of the cached month.
 * @param now The time by the server's clock.
 * @returns undefined: nothing is known, because the server was never asked or the month is over.
 */
export function viewOf(cached: Cached | undefined, unsettled: number, now: number): View | undefined {
  if (cached === undefined || now >= cached.resetsAt) return undefined;
  const { unit, policy, quota, month, resetsAt } = cached;
  return { unit, policy, quota, remaining: cached.remaining - unsettled, unsettled, month, resetsAt };
}

export function costOf(tokens: number, unit: string): number {
  return unit === REQUESTS ? 1 : tokens;
}
