/** The client's errors. Decide by the class or by `code`; messages are for people and may change. */

import type { components } from "./openapi.js";
import type { Subject } from "./records.js";

export type RefusedLine = components["schemas"]["RefusedLine"];
export type Fields = Record<string, string[]>;
export type Details = Record<string, unknown>;

const SHOWN_ERRORS = 3; // errors of a batch's jobs that the message shows

/** The base of every error that callers must expect. */
export class ClientError extends Error {
  /** A name that does not change. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** The address, key or another setting cannot be used. */
export class BadConfiguration extends ClientError {
  constructor(message: string) {
    super("bad_configuration", message);
  }
}

/** No answer came: no connection, a timeout, or the connection ended early. */
export class Unreachable extends ClientError {
  /** False: the request was never sent whole, so nothing happened. */
  readonly mayHaveArrived: boolean;
  /** The request's key, if it had one: the same request may safely be sent again with this key. */
  idempotencyKey: string | undefined;

  constructor(message: string, options: ErrorOptions & { mayHaveArrived?: boolean } = {}) {
    super("unreachable", message, options);
    this.mayHaveArrived = options.mayHaveArrived ?? true;
  }
}

/** The job, batch or operation has not ended in time; it goes on. */
export class WaitTimeout extends ClientError {
  /** The subject as it was last seen; undefined: the server never answered. */
  readonly latest: Subject | undefined;

  constructor(message: string, latest?: Subject) {
    super("wait_timeout", message);
    this.latest = latest;
  }
}

/** The parts of the server's answer about an error. */
export interface Refusal {
  status: number;
  fields?: Fields | undefined;
  details?: Details | undefined;
  /** Seconds after which the same request may succeed. */
  retryAfter?: number | undefined;
}

/** The server answered with an error. */
export class ApiError extends ClientError {
  /** The server's own words, without `code` and `fields`. */
  readonly reason: string;
  readonly status: number;
  /** The faults of the input, by the field's path. */
  readonly fields: Fields;
  readonly details: Details;
  /** Seconds after which the same request may succeed, if the server said so. */
  readonly retryAfter: number | undefined;

  constructor(code: string, reason: string, refusal: Refusal) {
    super(code, "");
    this.reason = reason;
    this.status = refusal.status;
    this.fields = refusal.fields ?? {};
    this.details = refusal.details ?? {};
    this.retryAfter = refusal.retryAfter;
    this.message = this.inWords();
  }

  protected inWords(): string {
    return `${this.reason}${wrong(this.fields)} (${this.code})`;
  }
}

/** The request must be changed: 400, 405, 413, 415 and 422. */
export class InvalidRequest extends ApiError {}

/** The key or token is missing, unknown, expired or revoked. */
export class NotAuthenticated extends ApiError {}

/** The key's scopes do not cover this. */
export class NotAllowed extends ApiError {}

/** The project has nothing with this id. */
export class NotFound extends ApiError {}

/** The present state of the job, batch or other object does not allow this. */
export class Conflict extends ApiError {}

/** Nothing was done; the same request may succeed after `retryAfter` seconds. */
export class TooManyRequests extends ApiError {}

/** The server, or a proxy before it, failed. */
export class ServerError extends ApiError {}

/** Jobs of the batch are not valid, so none was accepted. */
export class BatchRejected extends InvalidRequest {
  /** The first refused lines, counted from 1. */
  get errors(): RefusedLine[] {
    return (this.details["errors"] ?? []) as RefusedLine[];
  }

  protected override inWords(): string {
    const shown = this.errors.slice(0, SHOWN_ERRORS);
    const lines = shown.map((error) => `\n  line ${error.line}: ${error.message}${wrong(error.fields as Fields)}`);
    return super.inWords() + lines.join("");
  }
}

/** The idempotency key was used for other work. */
export class IdempotencyKeyReused extends InvalidRequest {}

/** There are more jobs than one request takes. Nothing was sent or accepted. */
export class TooManyJobs extends InvalidRequest {}

/** The project lives in another installation now; nothing was done. The key goes on working there. */
export class ProjectMoved extends InvalidRequest {
  /** The other installation's address; empty: whoever moved the project did not say. */
  get address(): string {
    return String(this.details["address"] ?? "");
  }
}

/** The user's allowance for the month is used up. */
export class QuotaExceeded extends Conflict {
  get remaining(): number {
    return Number(this.details["remaining"] ?? 0);
  }

  /** When the next month begins, in ISO 8601. */
  get resetsAt(): string | undefined {
    return this.details["resets_at"] as string | undefined;
  }
}

/** The project has too much unfinished work. */
export class QueueFull extends TooManyRequests {}

type ApiErrorClass = new (code: string, reason: string, refusal: Refusal) => ApiError;

const OF_CODE: Record<string, ApiErrorClass> = {
  batch_rejected: BatchRejected,
  idempotency_key_reused: IdempotencyKeyReused,
  too_many_jobs: TooManyJobs,
  quota_exceeded: QuotaExceeded,
  queue_full: QueueFull,
  project_moved: ProjectMoved,
};
const OF_STATUS: Record<number, ApiErrorClass> = {
  401: NotAuthenticated,
  403: NotAllowed,
  404: NotFound,
  409: Conflict,
  429: TooManyRequests,
};

/** The class for an error of the server: by its code, or else by its status. */
export function errorType(code: string, status: number): ApiErrorClass {
  const byFamily = status >= 500 ? ServerError : status >= 400 ? InvalidRequest : ApiError;
  return (Object.hasOwn(OF_CODE, code) ? OF_CODE[code] : undefined) ?? OF_STATUS[status] ?? byFamily;
}

function wrong(fields: Fields): string {
  return Object.entries(fields)
    .map(([path, causes]) => ` ${path || "input"}: ${causes.join(", ").replace(/\.$/, "")}.`)
    .join("");
}
