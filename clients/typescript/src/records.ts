/**
 * The server's answers: its JSON with its own names, and a few additions.
 *
 * The fields are those of the API reference; their types are generated from the OpenAPI document. Fields that a newer
 * server adds are there, too.
 */

import type { components } from "./openapi.js";

type Schemas = components["schemas"];
export type JobState = Schemas["JobState"];
export type HandlerInfo = Schemas["HandlerInfo"];
export type HeldLane = Schemas["HeldLane"];
export type LetterFilter = Schemas["LetterFilter"];
export type Paused = Schemas["Paused"];
export type Project = Schemas["ProjectInfo"];

const ENDED_STATES: ReadonlySet<string> = new Set(["completed", "failed", "cancelled"]);

/** An object that the API sent; its class says of which sort. */
export abstract class Row<Raw extends object> {
  constructor(raw: Raw) {
    Object.assign(this, raw);
  }
}

type JobFields = Pick<Schemas["JobDetail"], "id"> & Partial<Schemas["JobDetail"]> & Pick<Partial<Schemas["Submitted"]>, "created" | "outcome">;

/**
 * A job. Lists and the answer to a submission leave some fields out; `QueueOps.job` has them all.
 *
 * `created`: after a submission, whether it made the job; false: the job existed already, and `outcome` says why.
 */
export interface Job extends JobFields {}
export class Job extends Row<JobFields> {
  get hasEnded(): boolean {
    return this.state !== undefined && ENDED_STATES.has(this.state);
  }

  /** Whether it has ended without success. */
  get failed(): boolean {
    return this.hasEnded && this.state !== "completed";
  }
}

type BatchFields = Schemas["Batch"] & Partial<Schemas["BatchDetail"]>;

export interface Batch extends BatchFields {}
export class Batch extends Row<BatchFields> {
  get hasEnded(): boolean {
    return this.finished >= Object.values(this.counts).reduce((sum, count) => sum + count, 0);
  }

  /** How many items have ended without success. */
  get failed(): number {
    return (this.counts.failed ?? 0) + (this.counts.cancelled ?? 0);
  }
}

/** `idempotency_key`: the key under which it was submitted. */
type SubmittedFields = Schemas["SubmittedBatch"] & { idempotency_key: string };

export interface SubmittedBatch extends SubmittedFields {}
export class SubmittedBatch extends Row<SubmittedFields> {}

/** A forecast of a batch, if it were submitted now; prices are in millionths of the currency. */
export type Forecast = Schemas["ForecastAnswer"];

export interface Result extends ResultFields {}
type ResultFields = Schemas["Result"];
/** The outcome of one job of a batch. */
export class Result extends Row<ResultFields> {
  get ok(): boolean {
    return this.state === "completed";
  }
}

type LetterFields = Schemas["DeadLetter"];
export interface DeadLetter extends LetterFields {}
export class DeadLetter extends Row<LetterFields> {}

type OperationFields = Schemas["Started"] & Partial<Schemas["Operation"]>;

/** Something done to many rows in the background. */
export interface Operation extends OperationFields {}
export class Operation extends Row<OperationFields> {
  get hasEnded(): boolean {
    return this.status !== "running";
  }
}

type FireFields = Schemas["Fire"];
/** One time at which a schedule was due. */
export interface Fire extends FireFields {}
export class Fire extends Row<FireFields> {}

type ScheduleFields = Schemas["Schedule"];
/** A repeated submission of a project. */
export interface Schedule extends ScheduleFields {}
export class Schedule extends Row<ScheduleFields> {}

type WindowFields = Schemas["Window"];
/** A maintenance window: a pause by calendar, once or weekly. */
export interface Window extends WindowFields {}
export class Window extends Row<WindowFields> {}

type AllowanceFields = Schemas["Allowance"] & { months?: number; warnings?: string[] };
/** The use that each user of a project has for a month. `months`, `warnings`: after a change, its effects. */
export interface Allowance extends AllowanceFields {}
export class Allowance extends Row<AllowanceFields> {}

/** `cursor`: with `order: "oldest"`, set on the last entry of each page: a later call goes on from it. */
type AuditFields = Schemas["AuditEntry"] & { cursor: string | null };
/** A change that a person or key made, with its secrets masked. */
export interface AuditEntry extends AuditFields {}
export class AuditEntry extends Row<AuditFields> {}

type WebhookFields = Schemas["Webhook"] & { secret?: string | null };
/** An address that gets messages about ended batches and jobs. `secret`: only when it is made or its secret changes. */
export interface Webhook extends WebhookFields {}
export class Webhook extends Row<WebhookFields> {}

type DeliveryFields = Schemas["WebhookDelivery"];
/** One message to a webhook; its `id` is what the receiver gets as `webhook-id`. */
export interface Delivery extends DeliveryFields {}
export class Delivery extends Row<DeliveryFields> {}

type HeardJobFields = Schemas["WebhookJob"];
/** An ended job that a webhook is told of. Without a `delivery_id` it waits for the next message. */
export interface HeardJob extends HeardJobFields {}
export class HeardJob extends Row<HeardJobFields> {}

/** How many messages were sent again, and how many are left for the next call. */
export type SentAgain = Schemas["SentAgain"];

/** `moved`: the ids that an action changed; for requeued dead letters, with their new jobs. */
type MovedFields<Kind> = { moved: Kind; unmoved: string[] };
export type Moved = MovedFields<string[]>;
export type Requeued = MovedFields<Record<string, string>>;

/** Something that happened to a job, as it comes over sockets. */
export interface Event {
  id: number;
  job: string;
  batch: string | null;
  user: string | null;
  type: Schemas["EventType"];
  from: JobState | null;
  to: JobState | null;
  message: string;
  percent: number | null;
  data: unknown;
  at: string;
  /** How many events before this one were left out, because too many came at once. */
  skipped: number;
}

export type Subject = Job | Batch | Operation;
/** A record, or the id of a batch or a job. */
export type Target = string | Subject | SubmittedBatch;
