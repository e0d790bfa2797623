/**
 * What the server tells: its own JSON with its own names, and a few words more.
 *
 * The fields are those of the API reference; their types are generated from the OpenAPI document. What a newer server
 * adds is there, too.
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

/** Read one that the API sent; the class tells what it is. */
export abstract class Row<Raw extends object> {
  constructor(raw: Raw) {
    Object.assign(this, raw);
  }
}

type JobFields = Pick<Schemas["JobDetail"], "id"> & Partial<Schemas["JobDetail"]> & Pick<Partial<Schemas["Submitted"]>, "created" | "outcome">;

/**
 * A job. Lists and the answer to a submission leave some fields out; `QueueOps.job` has them all.
 *
 * `created`, of a submission: false: this is a job that existed already; `outcome` says why.
 */
export interface Job extends JobFields {}
export class Job extends Row<JobFields> {
  get hasEnded(): boolean {
    return this.state !== undefined && ENDED_STATES.has(this.state);
  }

  /** Ended, and not as it should. */
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

  /** Items that ended, and not as they should. */
  get failed(): number {
    return (this.counts.failed ?? 0) + (this.counts.cancelled ?? 0);
  }
}

/** `idempotency_key`: under which it was submitted. */
type SubmittedFields = Schemas["SubmittedBatch"] & { idempotency_key: string };

export interface SubmittedBatch extends SubmittedFields {}
export class SubmittedBatch extends Row<SubmittedFields> {}

/** What a batch would be if it were submitted now; prices are in millionths of the currency. */
export type Forecast = Schemas["ForecastAnswer"];

export interface Result extends ResultFields {}
type ResultFields = Schemas["Result"];
/** What became of one job of a batch. */
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
/** What a project submits again and again. */
export interface Schedule extends ScheduleFields {}
export class Schedule extends Row<ScheduleFields> {}

type WindowFields = Schemas["Window"];
/** A maintenance window: a pause by calendar, once or weekly. */
export interface Window extends WindowFields {}
export class Window extends Row<WindowFields> {}

type AllowanceFields = Schemas["Allowance"] & { months?: number; warnings?: string[] };
/** The use that each user of a project has for a month. `months`, `warnings`: of a change, what it means. */
export interface Allowance extends AllowanceFields {}
export class Allowance extends Row<AllowanceFields> {}

/** `cursor`: with `order: "oldest"`, of the last entry of each page: what a later call goes on from. */
type AuditFields = Schemas["AuditEntry"] & { cursor: string | null };
/** What a person or key changed, with its secrets masked. */
export interface AuditEntry extends AuditFields {}
export class AuditEntry extends Row<AuditFields> {}

type WebhookFields = Schemas["Webhook"] & { secret?: string | null };
/** Where the project is told what ended. `secret`: only in the answer to its creation. */
export interface Webhook extends WebhookFields {}
export class Webhook extends Row<WebhookFields> {}

type DeliveryFields = Schemas["WebhookDelivery"];
/** One message to a webhook; its `id` is what the receiver gets as `webhook-id`. */
export interface Delivery extends DeliveryFields {}
export class Delivery extends Row<DeliveryFields> {}

type HeardJobFields = Schemas["WebhookJob"];
/** An ended job that a webhook hears of. Without a `delivery_id` it waits for the next message. */
export interface HeardJob extends HeardJobFields {}
export class HeardJob extends Row<HeardJobFields> {}

/** How many messages were sent again, and how many are left for the next call. */
export type SentAgain = Schemas["SentAgain"];

/** `moved`: what an action changed; of requeued dead letters, their new jobs. */
type MovedFields<Kind> = { moved: Kind; unmoved: string[] };
export type Moved = MovedFields<string[]>;
export type Requeued = MovedFields<Record<string, string>>;

/** Something that happened to a job, as sockets tell it. */
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
  /** So many events before this one were left out, because too many came at once. */
  skipped: number;
}

export type Subject = Job | Batch | Operation;
/** A record, or the id of a batch or a job. */
export type Target = string | Subject | SubmittedBatch;
