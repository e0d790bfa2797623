/** Client of QueueOps. */

export * from "./errors.js";
export * from "./producer.js";
export {
  Allowance,
  AuditEntry,
  Batch,
  DeadLetter,
  Delivery,
  Fire,
  HeardJob,
  Job,
  Operation,
  Result,
  Schedule,
  SubmittedBatch,
  Webhook,
  Window,
} from "./records.js";
export type {
  Event,
  Forecast,
  HandlerInfo,
  HeldLane,
  JobState,
  LetterFilter,
  Moved,
  Paused,
  Project,
  Requeued,
  SentAgain,
  Subject,
  Target,
} from "./records.js";
export { NEVER, Retry, type RetryOptions } from "./retry.js";
export {
  type AllowanceChanges,
  type AllowanceOptions,
  type EndedJobs,
  type JobOptions,
  type Jobs,
  type JobSpec,
  type ScheduleChanges,
  type ScheduleOptions,
  type WebhookChanges,
  type WebhookOptions,
  type WindowOptions,
} from "./specs.js";
export { type Answer, type RequestOptions, type Token, type TransportOptions } from "./transport.js";
export { type Update, type WatchOptions } from "./watching.js";
export type { View } from "./usage/cache.js";
export { type Standing, Usage, type UseOptions } from "./usage/desk.js";
export { OutboxFailed, OutboxFull, QuotaUnavailable, TrackerClosed } from "./usage/errors.js";
export type { Flushed } from "./usage/flush.js";
export type { Amount, Policy } from "./usage/policies.js";
export type { LeftIntent, RejectedRow, Report } from "./usage/report.js";
export type { OutboxStore, Row, StoreOptions, Transaction } from "./usage/store.js";
export { UsageTracker, type UsageTrackerOptions } from "./usage/tracker.js";
