/** Whether a use goes ahead at once or asks the server first. Pure. */

import { BadConfiguration } from "../errors.js";
import { RECORD_OVERAGE, type View } from "./cache.js";

/** Units, or a share of the quota: "10%". */
export type Amount = number | `${number}%`;

/**
 * `optimistic`: call, then report; never refused. `hybrid`: optimistic with plenty left, strict near the limit.
 * `strict`: reserve first, always.
 */
export type Policy = "optimistic" | "hybrid" | "strict";

export const NEAR: Amount = "10%";
const POLICIES: ReadonlySet<string> = new Set<Policy>(["optimistic", "hybrid", "strict"]);

export class Rules {
  readonly policy: Policy;
  readonly #threshold: Amount;
  readonly #credit: Amount;

  /**
   * @param threshold With less than this left, `hybrid` asks first.
   * @param credit The most units used by `hybrid` and not yet reported to the server; by default as much as
   *     `threshold`. n outboxes pass a quota by at most (n - 1) x credit: see "How far past the quota" in the Python
   *     client's README.
   */
  constructor(policy: Policy = "hybrid", threshold: Amount = NEAR, credit: Amount = threshold) {
    if (!POLICIES.has(policy)) throw new BadConfiguration(`'${policy}' is not a policy.`);
    check("threshold", threshold);
    check("credit", credit);
    this.policy = policy;
    this.#threshold = threshold;
    this.#credit = credit;
  }

  /** Whether a use of so many units may begin without asking the server. */
  goesAhead(view: View | undefined, cost: number): boolean {
    if (this.policy !== "hybrid") return this.policy === "optimistic";
    return (
      view !== undefined &&
      view.remaining - cost >= units(this.#threshold, view.quota) &&
      view.unsettled + cost <= units(this.#credit, view.quota)
    );
  }

  /** Whether a use may begin though the server does not answer: it may where overuse is only recorded. */
  mayGoOnAlone(view: View | undefined): boolean {
    return this.policy === "hybrid" && view?.policy === RECORD_OVERAGE;
  }
}

function units(amount: Amount, quota: number): number {
  return typeof amount === "number" ? amount : Math.floor((shareOf(amount) * quota) / 100);
}

function check(name: string, amount: Amount): void {
  const isUnits = typeof amount === "number" && Number.isInteger(amount) && amount >= 0;
  const isShare = typeof amount === "string" && shareOf(amount) >= 0 && shareOf(amount) <= 100;
  if (!isUnits && !isShare) {
    throw new BadConfiguration(`${name} is ${amount}; give units, or a share of the quota from "0%" to "100%".`);
  }
}

function shareOf(amount: string): number {
  return /^[\d.]+%$/.test(amount) ? Number(amount.slice(0, -1)) : NaN;
}
