/** Submissions: single jobs, and streams of jobs that are kept until the server accepts them. */

import { InvalidRequest, TooManyJobs } from "./errors.js";
import { writeJSON } from "./numbers.js";
import type { components } from "./openapi.js";

export const MAX_BATCH_JOBS = 100_000; // the server's limit for one batch
const BLOCK_CHARACTERS = 262_144;
const OTHERS_TURN_JOBS = 500; // read in one go before other tasks have their turn

type Schemas = components["schemas"];
type Given = Schemas["JobSpec"];

/**
 * The options of a job besides its kind and payload, by the API's own names. Moments are texts of ISO 8601, or Dates.
 */
export type JobOptions = {
  [Name in Exclude<keyof Given, "kind" | "payload">]?: OrDate<Name, Given[Name]> | undefined;
};
type OrDate<Name, Type> = Name extends "scheduled_at" | "expires_at" | "begins_at" | "ends_at" ? Type | Date : Type;

/** A job to be submitted. */
export interface JobSpec extends JobOptions {
  kind: string;
  payload?: Record<string, unknown>;
}

/** The options of a schedule besides its name, cron text and jobs, by the API's own names. */
export type ScheduleOptions = {
  [Name in Exclude<keyof Schemas["NewSchedule"], "name" | "cron" | "jobs">]?: OrDate<Name, Schemas["NewSchedule"][Name]>;
};

/** Changes to a schedule. Fields that are left out stay as they are; `ends_at: null` removes the end. */
export interface ScheduleChanges extends ScheduleOptions {
  name?: string;
  cron?: string;
  jobs?: JobSpec[];
}

/** A webhook is told of the ended jobs that fit all given fields; `{}`: of every job. */
export type EndedJobs = Partial<Schemas["EndedJobs"]>;

/** The options of a webhook besides its address, by the API's own names. */
export type WebhookOptions = Partial<Omit<Schemas["NewWebhook"], "url" | "jobs">> & { jobs?: EndedJobs | null };

/** Changes to a webhook. Fields that are left out stay as they are; a new `jobs` replaces the whole filter. */
export interface WebhookChanges extends WebhookOptions {
  url?: string;
}

/** A maintenance window: `begins_at` and `ends_at`; or `weekdays` (0 is Monday), `since` and `until`, by a `time_zone`. */
export type WindowOptions = {
  [Name in keyof Schemas["NewWindow"]]?: OrDate<Name, Schemas["NewWindow"][Name]>;
};

/** The options of an allowance besides its quota, by the API's own names. */
export type AllowanceOptions = Partial<Omit<Schemas["NewAllowance"], "quota">>;

/** Changes to an allowance. Fields that are left out stay as they are. */
export type AllowanceChanges = Partial<Schemas["NewAllowance"]>;

export type Jobs = Iterable<JobSpec> | AsyncIterable<JobSpec>;

/**
 * Return a job as JSON on one line.
 *
 * @throws InvalidRequest: it is no job, or has a value that JSON cannot hold.
 */
export function encoded(job: JobSpec): string {
  if (typeof job !== "object" || job === null || Array.isArray(job)) {
    throw invalid(`A job is an object, not ${job === null ? "null" : typeof job}.`);
  }
  return asJSON(job, "job");
}

/**
 * Return a schedule, or changes of one, as JSON.
 *
 * @throws InvalidRequest: it has a value that JSON cannot hold.
 */
export function encodedSchedule(figures: object): string {
  return asJSON(figures, "schedule");
}

function asJSON(given: object, what: string): string {
  try {
    return writeJSON(given, plain);
  } catch (error) {
    throw invalid(`The ${what} cannot be written as JSON: ${(error as Error).message}.`, what);
  }
}

/**
 * Return jobs as lines of one Blob.
 *
 * A request that is repeated because its answer was lost must be the same to the byte, and a generator cannot be
 * read twice. The Blob also keeps a slow or failing generator out of the server's transaction: nothing is sent before
 * the last job is known. `fetch` sends a Blob in pieces and tells its length; browsers keep large Blobs on disk.
 *
 * @throws TooManyJobs: there are more than MAX_BATCH_JOBS.
 * @throws InvalidRequest: a job is not valid; the message has its number, from 1.
 */
export async function spooled(jobs: Jobs): Promise<Blob> {
  const blocks: Blob[] = [];
  let block = "";
  let count = 0;
  for await (const job of jobs) {
    if (count >= MAX_BATCH_JOBS) throw tooMany();
    block += `${numbered(job, count + 1)}\n`;
    if (block.length >= BLOCK_CHARACTERS) {
      blocks.push(new Blob([block]));
      block = "";
    }
    count += 1;
    if (count % OTHERS_TURN_JOBS === 0) await new Promise((resolve) => setTimeout(resolve));
  }
  return new Blob([...blocks, block]);
}

function numbered(job: JobSpec, number: number): string {
  try {
    return encoded(job);
  } catch (error) {
    throw error instanceof InvalidRequest ? invalid(`Job ${number}: ${error.reason}`) : error;
  }
}

function plain(this: Record<string, unknown>, name: string, value: unknown): unknown {
  // JSON.stringify would write null for these numbers, and thus change the job.
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value} is no number in JSON`);
  const given = this[name];
  if (given instanceof Date && value === null) throw new TypeError("a date is invalid");
  return value;
}

function tooMany(): TooManyJobs {
  const limit = MAX_BATCH_JOBS.toLocaleString("en");
  return new TooManyJobs(
    "too_many_jobs",
    `A batch takes at most ${limit} jobs; nothing was sent. Submit several batches.`,
    { status: 413, details: { limit: MAX_BATCH_JOBS } },
  );
}

function invalid(reason: string, what = "job"): InvalidRequest {
  return new InvalidRequest(`invalid_${what}`, reason, { status: 422 });
}
