/** The work around a use: whether it may begin, and how it ends. */

import { ApiError, BadConfiguration, QuotaExceeded, ServerError, TooManyRequests, Unreachable } from "../errors.js";
import { newId } from "../ids.js";
import type { components } from "../openapi.js";
import { Retry } from "../retry.js";
import type { Transport } from "../transport.js";
import { costOf, heardOf, RECORD_OVERAGE, REQUESTS, TOKENS, type View } from "./cache.js";
import { asText, secondsOf, type ServerClock } from "./clock.js";
import { QuotaUnavailable } from "./errors.js";
import { Flusher, notUnderstood, type Pace } from "./flush.js";
import { uuidOf } from "./identity.js";
import type { Intent, Outbox } from "./outbox.js";
import type { Rules } from "./policies.js";

const RESERVE = "/api/v1/usage/reserve/";
const ME = "/api/v1/usage/me/";
const ASK_TIMEOUT_SECONDS = 5;
const ASK_RETRY = new Retry({ budgetSeconds: 1, baseSeconds: 0.1, capSeconds: 0.5 }); // a caller waits for the answer
const MAX_TOKENS_OF_A_CALL = 10 ** 9;
const MAX_SERVICE_CHARACTERS = 64;
const PRINTABLE = /^[^\p{C}\p{Zl}\p{Zp}]*$/u;

/** A user's allowance as the server knows it; uses that still wait in outboxes are not counted. */
export type Standing = components["schemas"]["StandingShown"];

export interface UseOptions {
  /** Tokens that the call takes at most. Not needed if the allowance is in requests. */
  estimate?: number;
  /** The provider that is called: at most 64 characters. */
  service?: string;
  /** With a key: the user of this use. */
  userId?: string | undefined;
}

/** One use, between its begin and its end. */
export class Usage {
  /** Made once and known before the call: the provider may get it as an idempotency key. */
  readonly eventId: string;
  /** The reservation of the units that the server holds for the use; undefined: there is none. */
  reservationId: string | undefined;
  /** @internal */
  readonly intent: Intent;
  /** @internal */
  unit = TOKENS;
  #tokens: number | undefined;

  /** @internal */
  constructor(intent: Intent) {
    this.intent = intent;
    this.eventId = intent.eventId;
  }

  /** The tokens that the call took; the caller sets them. */
  get tokens(): number | undefined {
    return this.#tokens;
  }

  set tokens(value: number) {
    this.#tokens = checked("tokens", value);
  }

  /** @internal Return the tokens of a use; null: the call failed before it took any. */
  taken(failed: boolean, warn: (message: string) => void): number | null {
    if (this.#tokens !== undefined) return this.#tokens;
    if (failed) return null;
    const estimate = this.intent.estimate ?? 0;
    if (this.unit !== REQUESTS) {
      warn(`usage.tokens was not set; the estimate, ${estimate.toLocaleString("en")}, is counted`);
    }
    return estimate;
  }
}

export class Desk {
  readonly outbox: Outbox;
  readonly flusher: Flusher;
  readonly #rules: Rules;
  readonly #userId: string | undefined;
  readonly #onlyUser: string | undefined;

  /**
   * @param userId The user of each use that names no other.
   * @param onlyUser The user of the token, who can neither act nor send for others; undefined: the token is a key.
   */
  constructor(
    outbox: Outbox,
    clock: ServerClock,
    transport: Transport,
    rules: Rules,
    pace: Pace,
    { userId, onlyUser }: { userId: string | undefined; onlyUser: string | undefined },
  ) {
    this.outbox = outbox;
    this.flusher = new Flusher(outbox, clock, transport, onlyUser, pace);
    this.#rules = rules;
    this.#userId = userId;
    this.#onlyUser = onlyUser;
  }

  /** Return a new use, which is still to be admitted. */
  usage({ estimate, service = "", userId }: UseOptions): Usage {
    if (service.length > MAX_SERVICE_CHARACTERS || !PRINTABLE.test(service)) {
      throw new BadConfiguration(`service is at most ${MAX_SERVICE_CHARACTERS} printable characters.`);
    }
    if (estimate !== undefined) checked("estimate", estimate);
    const eventId = newId();
    return new Usage({ eventId, userId: this.user(userId), service, estimate: estimate ?? null });
  }

  user(given: string | undefined): string {
    const userId = given === undefined ? this.#userId : uuidOf(given);
    if (userId === undefined) throw new BadConfiguration("A key acts for many users: name one with userId.");
    if (this.#onlyUser !== undefined && this.#onlyUser !== userId) {
      throw new BadConfiguration(`The token is for user ${this.#onlyUser}; it cannot act for ${userId}.`);
    }
    return userId;
  }

  /**
   * Let a use begin: when this resolves, the use is written down, and its call may be made.
   *
   * @throws QuotaExceeded: the allowance has no room for the use.
   * @throws QuotaUnavailable: the server has to be asked, and does not answer.
   * @throws OutboxFull, OutboxFailed
   * @throws ApiError: the server refuses this token or address.
   */
  async admit(usage: Usage): Promise<void> {
    const { intent } = usage;
    const goesAhead = (view: View | undefined, cost: number): boolean => this.#rules.goesAhead(view, cost);
    let { begun, view } = await this.outbox.begin(intent, goesAhead);
    if (!begun && view === undefined) {
      await asked(this.standing(intent.userId));
      ({ begun, view } = await this.outbox.begin(intent, goesAhead));
    }
    usage.unit = view?.unit ?? TOKENS;
    if (view !== undefined && usage.unit === TOKENS && intent.estimate === null) {
      await this.outbox.drop(intent.eventId);
      throw new BadConfiguration("The allowance is in tokens: give the use an estimate, at least what it may take.");
    }
    if (!begun) await this.#admitByReservation(usage, view);
  }

  /** Write down what a use took; null: nothing. */
  async finish(usage: Usage, tokens: number | null): Promise<void> {
    if (tokens === null) await this.outbox.drop(usage.eventId);
    else await this.outbox.complete(usage.intent, tokens, usage.unit);
  }

  /** Settle a use that a crash cut off, or that was rejected; `tokens` null: nothing is to be counted. */
  async resolve(eventId: string, tokens: number | null): Promise<boolean> {
    if (tokens === null) return await this.outbox.discard(eventId);
    return await this.outbox.resolve(eventId, checked("tokens", tokens));
  }

  /** Ask the server for the user's allowance, and write its answer to the cache. */
  async standing(userId: string): Promise<Standing> {
    const versions = await this.outbox.versions();
    const params = this.#onlyUser === undefined ? { user_id: userId } : {};
    const answer = await this.flusher.ask("GET", ME, { params, retry: ASK_RETRY, timeout: ASK_TIMEOUT_SECONDS });
    try {
      const said = answer.body as Standing;
      const heard = new Map([[uuidOf(String(said.user_id)), heardOf(said)]]);
      await this.outbox.settle([], heard, versions);
      return said;
    } catch (error) {
      throw unlessOurs(error, () => notUnderstood("The server's answer", answer, error));
    }
  }

  async #admitByReservation(usage: Usage, view: View | undefined): Promise<void> {
    try {
      try {
        await this.#reserve(usage, usage.eventId);
      } catch (error) {
        // This outbox may hold back the missing units: its uses may have taken less than was reserved for them.
        if (!(error instanceof QuotaExceeded) || !(await this.#settleUp())) throw error;
        // Under another key: the same key would return the earlier reservation, though it was given back.
        await this.#reserve(usage, `${usage.eventId}-again`);
      }
    } catch (error) {
      if (!(error instanceof QuotaUnavailable) || !this.#rules.mayGoOnAlone(view)) throw error;
      await this.outbox.begin(usage.intent, () => true);
    }
  }

  /** Reserve units under the use's own key, so that a repeated request reserves only once. */
  async #reserve(usage: Usage, key: string): Promise<void> {
    const { intent } = usage;
    const { userId } = intent;
    const versions = await this.outbox.versions();
    const amount = Math.max(1, costOf(intent.estimate ?? 0, usage.unit));
    const json = { amount, idempotency_key: key, user_id: userId };
    const options = { json, retry: ASK_RETRY, timeout: ASK_TIMEOUT_SECONDS };
    let answer;
    try {
      answer = await asked(this.flusher.ask("POST", RESERVE, options));
    } catch (error) {
      if (error instanceof QuotaExceeded) await this.#hearRefusal(userId, error, versions);
      throw error;
    }
    let heard, reservation, isFree: boolean;
    try {
      const said = answer.body as components["schemas"]["ReservedUnits"];
      heard = heardOf(said);
      const { reservation_id: id, month, amount: held } = said;
      if (typeof id !== "string" || typeof month !== "string" || !Number.isInteger(held)) throw new TypeError("no id");
      reservation = { id, month, amount: held, heldUntil: secondsOf(said.expires_at) };
      isFree = said.over_limit;
    } catch (error) {
      throw notUnderstood("The server's answer", answer, error);
    }
    await this.outbox.settle([], new Map([[userId, heard]]), versions);
    // The server does not know of the rows that wait here: they must fit beside the units that it granted.
    const fits = (view: View | undefined): boolean =>
      isFree || view === undefined || view.policy === RECORD_OVERAGE || view.remaining >= 0;
    const { begun, view } = await this.outbox.begin(intent, fits, reservation);
    usage.reservationId = reservation.id;
    if (begun) return;
    await this.outbox.giveBack(reservation.id, reservation.heldUntil);
    throw new QuotaExceeded(
      "quota_exceeded",
      "What is left of the allowance is needed for uses that were not reported yet.",
      {
        status: 409,
        details: {
          remaining: view ? Math.max(0, view.remaining + amount) : 0,
          resets_at: asText(heard.resetsAt),
          quota: view?.quota ?? null,
        },
      },
    );
  }

  async #hearRefusal(userId: string, error: QuotaExceeded, versions: ReadonlyMap<string, number>): Promise<void> {
    let heard;
    try {
      heard = heardOf(error.details);
    } catch {
      return; // an answer without these fields is a refusal, too
    }
    await this.outbox.settle([], new Map([[userId, heard]]), versions);
  }

  /** Send the waiting rows and give reservations back; return whether that may have freed units. */
  async #settleUp(): Promise<boolean> {
    const isNothing = (await this.outbox.releases()).length === 0 && (await this.outbox.pending(this.#onlyUser)) === 0;
    if (isNothing) return false;
    try {
      await this.flusher.flush();
      return true;
    } catch (error) {
      if (error instanceof ApiError || error instanceof Unreachable) return false;
      throw error;
    }
  }
}

async function asked<Value>(answer: Promise<Value>): Promise<Value> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof Unreachable || error instanceof ServerError || error instanceof TooManyRequests)) throw error;
    throw new QuotaUnavailable(
      `This use must be asked for first, and the server does not answer: ${error.message}`,
      { cause: error, retryAfter: error instanceof ApiError ? error.retryAfter : undefined },
    );
  }
}

function unlessOurs(error: unknown, otherwise: () => Error): unknown {
  const isOurs = error instanceof TypeError || error instanceof BadConfiguration;
  return isOurs ? otherwise() : error;
}

function checked(name: string, value: number): number {
  if (!Number.isInteger(value) || value < 0 || value > MAX_TOKENS_OF_A_CALL) {
    throw new RangeError(`${name} is a whole number from 0 to ${MAX_TOKENS_OF_A_CALL.toLocaleString("en")}, not ${value}`);
  }
  return value;
}
