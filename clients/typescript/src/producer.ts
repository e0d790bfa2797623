/** The producer's client: submit work, watch it, fetch what came of it, steer it. */

import { InvalidRequest, NotFound } from "./errors.js";
import {
  Allowance,
  AuditEntry,
  Batch,
  DeadLetter,
  Delivery,
  Fire,
  type Forecast,
  type HandlerInfo,
  HeardJob,
  type HeldLane,
  Job,
  type LetterFilter,
  type Moved,
  Operation,
  type Paused,
  type Project,
  type Requeued,
  Result,
  Schedule,
  type SentAgain,
  type Subject,
  SubmittedBatch,
  type Target,
  Webhook,
  Window,
} from "./records.js";
import { newId } from "./ids.js";
import { NEVER } from "./retry.js";
import {
  type AllowanceChanges,
  type AllowanceOptions,
  encoded,
  encodedSchedule,
  type JobOptions,
  type Jobs,
  type JobSpec,
  type ScheduleChanges,
  type ScheduleOptions,
  spooled,
  type WebhookChanges,
  type WebhookOptions,
  type WindowOptions,
} from "./specs.js";
import { type Answer, type RequestOptions, type Token, Transport, type TransportOptions } from "./transport.js";
import { type Update, Watch, type WatchOptions } from "./watching.js";

const API = "/api/v1";
const PAGE_SIZE = 500;
const SMALL_PAGE_SIZE = 100; // for lists whose rows have a payload or result
const BATCH_TIMEOUT_SECONDS = 300; // 100,000 jobs are checked and stored before the answer
const PROJECT_ID = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;

export type Priority = "urgent" | "normal" | "low";
export type AnyBatch = string | Batch | SubmittedBatch;
export type Letters = Iterable<string | DeadLetter>;
/**
 * The filters of a list, by the API's own names. Values that are null or undefined are left out; several values are an
 * array.
 */
export type Filters = Record<string, unknown>;

export interface QueueOpsOptions extends TransportOptions {
  /** For runtimes without WebSocket, such as Node 20: the class of the package `ws`. Without a class, `watch` polls. */
  WebSocket?: typeof WebSocket | undefined;
}

export interface BatchOptions {
  name?: string;
  /** Tags of the batch alone; jobs have their own. */
  tags?: string[];
  /** Accept the valid jobs and report the others; otherwise one bad job rejects all. */
  partial?: boolean;
  /** Start the jobs so many seconds apart. */
  startIntervalSeconds?: number;
  /** Ids of jobs and batches that must end before any job of the batch begins; its jobs may name more. */
  after?: string[];
  /**
   * If one of `after` does not succeed: cancel the batch (the default), run it all the same, or hold it until a requeue
   * succeeds.
   */
  onFailure?: "cancel" | "run" | "hold";
  /**
   * A job to carry out once, when the whole batch has ended; an `http.request` without a body posts the batch's id and
   * counts.
   */
  onFinish?: JobSpec;
  /**
   * The batch pauses itself when so many percent of its first jobs fail for good with one code; 0: never. By default
   * the project decides.
   */
  guardPercent?: number;
  /** How many first jobs `guardPercent` looks at. */
  guardFirst?: number;
  /**
   * With a key of your own, another process can safely repeat the call for 7 days. It must then give the same jobs. By
   * default each call has a new key.
   */
  idempotencyKey?: string;
}

export interface Rescheduling {
  delaySeconds: number;
  reason?: string;
}

export interface Requeueing {
  /** Replaces the payload of each failed job. */
  payload?: Record<string, unknown>;
  priority?: Priority;
  /** Spread the starts over so many seconds. */
  spreadSeconds?: number;
  /** A note that is kept with the dead letters. */
  note?: string;
  /**
   * Requeue so many first; the rest follows once these have ended, unless too many of them fail. Not for single
   * letters.
   */
  canary?: number;
}

/**
 * A project's work, through one of its keys.
 *
 * Every request here is sent again after a lost connection, a lost answer, a 429 or a 503. That does no harm: each
 * request that changes something carries an Idempotency-Key or is harmless to repeat. Every method may throw
 * Unreachable, or a subclass of ApiError.
 */
export class QueueOps {
  readonly transport: Transport;
  readonly #WebSocket: typeof WebSocket | undefined;

  /**
   * @param baseUrl The installation's address, such as `https://queue.example.org`.
   * @param key A producer key or a user's token, or a function that returns one.
   */
  constructor(baseUrl: string, key: Token, options: QueueOpsOptions = {}) {
    this.transport = new Transport(baseUrl, key, options);
    this.#WebSocket = "WebSocket" in options ? options.WebSocket : globalThis.WebSocket;
  }

  // Submitting

  /**
   * Submit one job; when this resolves, it is stored durably.
   *
   * @returns The job with its id; `created` and `outcome` say whether it is new, or an earlier job with the same
   *     idempotency_key or unique_key.
   */
  async submit(kind: string, payload: Record<string, unknown> = {}, options: JobOptions = {}): Promise<Job> {
    const content = encoded({ kind, payload, ...options });
    const headers = { "content-type": "application/json", "idempotency-key": newId() };
    const { body } = await this.#request("POST", "/jobs/", { content, headers });
    return new Job({ kind, payload, ...body });
  }

  /**
   * Submit up to 100,000 jobs as one batch.
   *
   * All jobs are stored first, so that the request can be repeated to the byte and nothing is sent when `jobs` throws.
   *
   * @throws TooManyJobs: there are more jobs; nothing was sent.
   * @throws BatchRejected: some jobs are not valid; `errors` has their lines.
   * @throws Unreachable: no answer came; try again with its `idempotencyKey`.
   */
  async submitMany(jobs: Jobs, options: BatchOptions = {}): Promise<SubmittedBatch> {
    const key = options.idempotencyKey || newId();
    const { body } = await this.#request("POST", "/batches/", {
      content: await spooled(jobs),
      params: {
        name: options.name || undefined,
        tags: options.tags?.length ? options.tags : undefined,
        partial: options.partial || undefined,
        start_interval_seconds: options.startIntervalSeconds || undefined,
        after: options.after?.length ? options.after : undefined,
        on_failure: options.onFailure,
        on_finish: options.onFinish && encoded(options.onFinish),
        guard_percent: options.guardPercent,
        guard_first: options.guardFirst,
      },
      headers: { "content-type": "application/x-ndjson", "idempotency-key": key },
      timeout: BATCH_TIMEOUT_SECONDS,
    });
    return new SubmittedBatch({ ...body, idempotency_key: key });
  }

  /** Say what a batch of these jobs would cost, when it would end and which jobs would be refused; stores nothing. */
  async forecast(
    jobs: Jobs,
    options: Pick<BatchOptions, "partial" | "startIntervalSeconds" | "after" | "onFinish"> = {},
  ): Promise<Forecast> {
    const { body } = await this.#request("POST", "/forecast/", {
      content: await spooled(jobs),
      params: {
        partial: options.partial || undefined,
        start_interval_seconds: options.startIntervalSeconds || undefined,
        after: options.after?.length ? options.after : undefined,
        on_finish: options.onFinish && encoded(options.onFinish),
      },
      // A forecast stores nothing, so it may be sent again.
      headers: { "content-type": "application/x-ndjson", "idempotency-key": newId() },
      timeout: BATCH_TIMEOUT_SECONDS,
    });
    return body;
  }

  // Looking

  async job(job: string | Job): Promise<Job> {
    return new Job((await this.#request("GET", `/jobs/${idOf(job)}/`)).body);
  }

  async batch(batch: AnyBatch): Promise<Batch> {
    return new Batch((await this.#request("GET", `/batches/${idOf(batch)}/`)).body);
  }

  /**
   * Return what holds a batch back: its waiting jobs in groups that share all limits, the largest first, at most five.
   */
  async waiting(batch: AnyBatch): Promise<HeldLane[]> {
    return (await this.#request("GET", `/batches/${idOf(batch)}/waiting/`)).body.results;
  }

  async operation(operation: string | Operation): Promise<Operation> {
    return new Operation((await this.#request("GET", `/operations/${idOf(operation)}/`)).body);
  }

  /**
   * Iterate over the project's operations, newest first.
   *
   * @param filters The filters of `GET /operations/`: action, status, created_after, created_before.
   */
  operations(filters: Filters = {}): AsyncGenerator<Operation, void, undefined> {
    return this.#list("/operations/", Operation, filters, PAGE_SIZE);
  }

  /** Return the batch or job with this id, or the present state of a record. */
  async find(target: Target): Promise<Subject> {
    return await this.#find(target, {});
  }

  async project(): Promise<Project> {
    return (await this.#request("GET", "/project/")).body;
  }

  /** The kinds of jobs that may be submitted, with the JSON schemas of their payloads. */
  async handlers(): Promise<HandlerInfo[]> {
    return (await this.#request("GET", "/handlers/")).body.results;
  }

  /**
   * Iterate over jobs without payloads and results, newest first; pages are fetched as they are needed.
   *
   * @param filters The filters of `GET /jobs/`: state, tags (all of them) and any_tag (several: an array), kind, batch,
   *     user, created_after, and so on.
   */
  jobs(filters: Filters = {}): AsyncGenerator<Job, void, undefined> {
    return this.#list("/jobs/", Job, filters, PAGE_SIZE);
  }

  /** Iterate over batches, newest first. */
  batches(filters: Filters = {}): AsyncGenerator<Batch, void, undefined> {
    return this.#list("/batches/", Batch, filters, PAGE_SIZE);
  }

  /**
   * Iterate over dead letters, newest first.
   *
   * @param filters The filters of `GET /dead-letters/`: open, batch, kind, error_code, fingerprint, and so on.
   */
  deadLetters(filters: Filters = {}): AsyncGenerator<DeadLetter, void, undefined> {
    return this.#list("/dead-letters/", DeadLetter, filters, SMALL_PAGE_SIZE);
  }

  async deadLetter(letter: string | DeadLetter): Promise<DeadLetter> {
    return new DeadLetter((await this.#request("GET", `/dead-letters/${idOf(letter)}/`)).body);
  }

  /**
   * Iterate over what became of each job of a batch so far, in the order in which they were submitted.
   *
   * Jobs that have not ended come too, without a result. A requeued job comes as its latest successor, at the end.
   * If a batch made no job because jobs with the keys of all its lines existed, the jobs of their batches come instead.
   */
  async *results(batch: AnyBatch): AsyncGenerator<Result, void, undefined> {
    for (const one of await this.#withJobs(batch)) {
      yield* this.#list(`/batches/${idOf(one)}/results/`, Result, {}, SMALL_PAGE_SIZE);
    }
  }

  /**
   * Return a row for each job of a batch, in the order in which they were submitted: `idempotency_key`, `id`, `state`,
   * `last_error_code`, `cost_money` (in millionths), the columns or the whole `result`.
   *
   * @param options columns: places in the results, such as `data.total`; with_input: each row has the job's `payload`,
   *     too.
   */
  async table(
    batch: AnyBatch,
    options: { columns?: string[]; with_input?: boolean } = {},
  ): Promise<Record<string, unknown>[]> {
    const columns = options.columns?.length ? options.columns : undefined;
    const params = { format: "json", columns, with_input: options.with_input || undefined };
    const rows: Record<string, unknown>[] = [];
    for (const one of await this.#withJobs(batch)) {
      const path = `/batches/${idOf(one)}/table/`;
      for (const row of (await this.#request("GET", path, { params, timeout: BATCH_TIMEOUT_SECONDS })).body) rows.push(row);
    }
    return rows;
  }

  /** Return the batch, or, if it made no jobs, the batches that have the jobs which it would have made again. */
  async #withJobs(batch: AnyBatch): Promise<string[]> {
    const found = typeof batch === "string" ? await this.batch(batch) : batch;
    const known = found.known_batches ?? []; // an earlier server does not name them
    const made = "accepted" in found ? found.accepted : found.total;
    return made || !known.length ? [found.id] : known;
  }

  /** Return what a job's handler returned, however large: also if the job's record has `stored_result` instead. */
  async result(job: string | Job | Result): Promise<unknown> {
    return (await this.#request("GET", `/jobs/${idOf(job)}/result/`)).body;
  }

  // Waiting

  /**
   * Iterate over what happens to a job, batch or operation, until it has ended.
   *
   * It uses a websocket, which is opened again after a loss and resumes where it was; without a websocket, it polls.
   * The first update shows the present state, the last one the end. A batch sends at most 200 events a second.
   *
   * @throws WaitTimeout: the target has not ended within `timeout` seconds.
   */
  watch(target: Target, options: WatchOptions = {}): AsyncGenerator<Update, void, undefined> {
    // The call never repeats by itself, so that the loss of the server is reported at once.
    const find = (subject: Target, timeout: number | undefined, wait: number): Promise<Subject> =>
      this.#find(subject, { timeout, signal: options.signal, retry: NEVER, params: { wait: wait || undefined } });
    return new Watch(this.transport, find, this.#WebSocket, options).follow(target);
  }

  /**
   * Wait until a job, batch or operation has ended, however it ended, and return it.
   *
   * @throws WaitTimeout: the target has not ended in time, and goes on; `latest` is its last known state.
   */
  async wait<Given extends Target>(
    target: Given,
    options: Pick<WatchOptions, "timeout" | "signal"> = {},
  ): Promise<Ended<Given>> {
    let latest: Subject | undefined;
    for await (const update of this.watch(target, { ...options, events: false })) latest = update.subject;
    return latest as Ended<Given>;
  }

  // Steering

  /**
   * Cancel a job that has not ended; a running handler is told when it next waits.
   *
   * @throws Conflict: the job has ended.
   */
  async cancelJob(job: string | Job, { reason = "" } = {}): Promise<Job> {
    return new Job(await this.#act(`/jobs/${idOf(job)}/cancel/`, { reason }));
  }

  /** Cancel jobs, at most 10,000, except those that have ended. */
  async cancelJobs(jobs: Iterable<string | Job>, { reason = "" } = {}): Promise<Moved> {
    return await this.#act("/jobs/cancel/", { ids: Array.from(jobs, idOf), reason });
  }

  /**
   * Change the priority of a job that waits.
   *
   * @throws Conflict: the job does not wait.
   */
  async changeJobPriority(job: string | Job, priority: Priority, { reason = "" } = {}): Promise<Job> {
    return new Job(await this.#act(`/jobs/${idOf(job)}/priority/`, { priority, reason }));
  }

  /** Change the priority of jobs, at most 10,000, except those that do not wait. */
  async changeJobsPriority(jobs: Iterable<string | Job>, priority: Priority, { reason = "" } = {}): Promise<Moved> {
    return await this.#act("/jobs/priority/", { ids: Array.from(jobs, idOf), priority, reason });
  }

  /** Begin to change the priority of a batch's waiting jobs: with `canary` so many first, as `retryBatch`. */
  async changeBatchPriority(
    batch: AnyBatch,
    priority: Priority,
    { canary, reason = "" }: { canary?: number; reason?: string } = {},
  ): Promise<Operation> {
    return new Operation(await this.#act(`/batches/${idOf(batch)}/priority/`, { priority, canary, reason }));
  }

  /**
   * Let a job that waits begin so many seconds from now; 0: as soon as possible.
   *
   * @throws Conflict: the job does not wait.
   */
  async rescheduleJob(job: string | Job, { delaySeconds, reason = "" }: Rescheduling): Promise<Job> {
    return new Job(await this.#act(`/jobs/${idOf(job)}/schedule/`, { delay_seconds: delaySeconds, reason }));
  }

  /** Let jobs, at most 10,000, begin so many seconds from now, except those that do not wait. */
  async rescheduleJobs(jobs: Iterable<string | Job>, { delaySeconds, reason = "" }: Rescheduling): Promise<Moved> {
    return await this.#act("/jobs/schedule/", { ids: Array.from(jobs, idOf), delay_seconds: delaySeconds, reason });
  }

  /** Stop an operation; what it has done stays done, and one that has ended is left alone. */
  async cancelOperation(operation: string | Operation, { reason = "" } = {}): Promise<Operation> {
    return new Operation(await this.#act(`/operations/${idOf(operation)}/cancel/`, { reason }));
  }

  /**
   * Requeue a failed job, with another payload if one is given; returns the new job.
   *
   * @throws Conflict: the job has not failed, or was requeued or discarded.
   */
  async retryJob(job: string | Job, options: Omit<Requeueing, "spreadSeconds"> = {}): Promise<Job> {
    return new Job(await this.#act(`/jobs/${idOf(job)}/retry/`, requeueing(options)));
  }

  /** Begin to cancel the unfinished jobs of a batch; `wait` for the operation. */
  async cancelBatch(batch: AnyBatch, { reason = "" } = {}): Promise<Operation> {
    return new Operation(await this.#act(`/batches/${idOf(batch)}/cancel/`, { reason }));
  }

  /** Begin to requeue the failed jobs of a batch. */
  async retryBatch(batch: AnyBatch, options: Omit<Requeueing, "payload"> = {}): Promise<Operation> {
    return new Operation(await this.#act(`/batches/${idOf(batch)}/retry/`, requeueing(options)));
  }

  /** Let a job that waits for others go on all the same. */
  async goOnJob(job: string | Job, { reason = "" } = {}): Promise<Job> {
    return new Job(await this.#act(`/jobs/${idOf(job)}/go-on/`, { reason }));
  }

  /** Let a batch that waits for others go on all the same. */
  async goOnBatch(batch: AnyBatch, { reason = "" } = {}): Promise<Batch> {
    await this.#act(`/batches/${idOf(batch)}/go-on/`, { reason });
    return this.batch(batch);
  }

  /** Hold back the jobs of the batch that do not run yet. */
  async pauseBatch(batch: AnyBatch, { reason = "" } = {}): Promise<Paused> {
    return await this.#act(`/batches/${idOf(batch)}/pause/`, { reason });
  }

  /** Let the batch go on: with `canary` so many jobs first, and the rest once they have ended well. */
  async resumeBatch(batch: AnyBatch, { reason = "", canary = undefined as number | undefined } = {}): Promise<Paused> {
    return await this.#act(`/batches/${idOf(batch)}/resume/`, { reason, canary });
  }

  /** Hold back all of the project's work that does not run yet. */
  async pauseProject({ reason = "" } = {}): Promise<Paused> {
    return await this.#act("/project/pause/", { reason });
  }

  async resumeProject({ reason = "" } = {}): Promise<Paused> {
    return await this.#act("/project/resume/", { reason });
  }

  /**
   * Requeue dead letters; `moved` maps each to its new job.
   *
   * @param letters At most 10,000.
   */
  async requeue(letters: Letters, options: Requeueing = {}): Promise<Requeued> {
    return await this.#act("/dead-letters/requeue/", { ids: Array.from(letters, idOf), ...requeueing(options) });
  }

  /**
   * Begin to requeue all open dead letters that fit; `wait` for the operation.
   *
   * @param where kind, service, error_code, fingerprint, batch_id, created_from, created_until; empty: all.
   */
  async requeueWhere(where: LetterFilter, options: Requeueing = {}): Promise<Operation> {
    return new Operation(await this.#act("/dead-letters/requeue/", { filter: plain(where), ...requeueing(options) }));
  }

  /** Close dead letters for good. There is no way back. */
  async discard(letters: Letters, { reason }: { reason: string }): Promise<Moved> {
    return await this.#act("/dead-letters/discard/", { ids: Array.from(letters, idOf), reason });
  }

  /** Begin to close all open dead letters that fit; `where` as in requeueWhere. */
  async discardWhere(where: LetterFilter, { reason }: { reason: string }): Promise<Operation> {
    return new Operation(await this.#act("/dead-letters/discard/", { filter: plain(where), reason }));
  }

  // Schedules

  /**
   * Iterate over the project's schedules, newest first.
   *
   * @param filters The filters of `GET /schedules/`: name, paused, and so on.
   */
  schedules(filters: Filters = {}): AsyncGenerator<Schedule, void, undefined> {
    return this.#list("/schedules/", Schedule, filters, SMALL_PAGE_SIZE);
  }

  async schedule(schedule: string | Schedule): Promise<Schedule> {
    return new Schedule((await this.#request("GET", `/schedules/${idOf(schedule)}/`)).body);
  }

  /**
   * Iterate over what came of a schedule's fires, newest first.
   *
   * @param filters The filters of `GET /schedules/<id>/fires/`: outcome (several: an array), created_after, and so on.
   */
  async *fires(schedule: string | Schedule, filters: Filters = {}): AsyncGenerator<Fire, void, undefined> {
    yield* this.#list(`/schedules/${idOf(schedule)}/fires/`, Fire, filters, PAGE_SIZE);
  }

  /**
   * Submit the same jobs whenever the cron text is due: one as a job, several as a batch of this name.
   *
   * The key needs the scope `submit`. Jobs are checked as if they were submitted, and have no times or idempotency
   * keys of their own.
   *
   * @param cron Minute, hour, day of the month, month, day of the week.
   * @param jobs 1 to 1,000; 1 MB of JSON.
   * @throws InvalidRequest: a field is wrong, such as a name that is taken, or a cron text that never fires; `fields`
   *     names it.
   */
  async createSchedule(name: string, cron: string, jobs: JobSpec[], options: ScheduleOptions = {}): Promise<Schedule> {
    return new Schedule(await this.#store("POST", "/schedules/", { name, cron, jobs, ...options }));
  }

  /**
   * Return the first five times at which such a schedule would fire. This refuses what `createSchedule` would refuse,
   * and stores nothing.
   */
  async previewSchedule(name: string, cron: string, jobs: JobSpec[], options: ScheduleOptions = {}): Promise<string[]> {
    return (await this.#store("POST", "/schedules/preview/", { name, cron, jobs, ...options })).next_due;
  }

  /** Change a schedule; fields that are left out stay as they are. New times apply from now on. */
  async changeSchedule(schedule: string | Schedule, changes: ScheduleChanges): Promise<Schedule> {
    return new Schedule(await this.#store("PATCH", `/schedules/${idOf(schedule)}/`, changes));
  }

  /** Let a schedule fire no more until it is resumed; the work that it has submitted goes on. */
  async pauseSchedule(schedule: string | Schedule, { reason = "" } = {}): Promise<Schedule> {
    return new Schedule(await this.#act(`/schedules/${idOf(schedule)}/pause/`, { reason }));
  }

  /** Let a schedule fire again from now on; fires that were due during the pause are not made up for. */
  async resumeSchedule(schedule: string | Schedule, { reason = "" } = {}): Promise<Schedule> {
    return new Schedule(await this.#act(`/schedules/${idOf(schedule)}/resume/`, { reason }));
  }

  /** Submit a schedule's jobs now, even while it is paused; its next fire stays as it is. */
  async runSchedule(schedule: string | Schedule, { reason = "" } = {}): Promise<Fire> {
    return new Fire(await this.#act(`/schedules/${idOf(schedule)}/run/`, { reason }));
  }

  /**
   * Delete a schedule; the work that it has submitted goes on.
   *
   * @throws NotFound: there is no such object; after a lost answer, because it has been deleted.
   */
  async deleteSchedule(schedule: string | Schedule, { reason = "" } = {}): Promise<void> {
    await this.#request("DELETE", `/schedules/${idOf(schedule)}/`, {
      params: { reason: reason || undefined },
      isSafe: true,
    });
  }

  // Maintenance windows

  /**
   * Iterate over maintenance windows, newest first: the project's, and windows that hold its work along with others'.
   *
   * @param filters The filters of `GET /maintenance/`: scope (several: an array), created_after, created_before.
   */
  windows(filters: Filters = {}): AsyncGenerator<Window, void, undefined> {
    return this.#list("/maintenance/", Window, filters, SMALL_PAGE_SIZE);
  }

  async window(window: string | Window): Promise<Window> {
    return new Window((await this.#request("GET", `/maintenance/${idOf(window)}/`)).body);
  }

  /**
   * Pause the project by calendar, once or weekly. The key needs the scope `operate`.
   *
   * @throws InvalidRequest: a field is wrong, such as a time that is over, or an end before the begin; `fields` names
   *     it.
   */
  async createWindow(figures: WindowOptions): Promise<Window> {
    return new Window(await this.#store("POST", "/maintenance/", figures));
  }

  /** Change one of the project's windows; fields that are left out stay as they are. */
  async changeWindow(window: string | Window, changes: WindowOptions): Promise<Window> {
    return new Window(await this.#store("PATCH", `/maintenance/${idOf(window)}/`, changes));
  }

  /** End an open window. A weekly window comes again; a window that is not open stays as it is. */
  async endWindow(window: string | Window, { reason = "" } = {}): Promise<Window> {
    return new Window(await this.#act(`/maintenance/${idOf(window)}/end/`, { reason }));
  }

  /**
   * Delete a window; the jobs that it holds may start, unless something else holds them.
   *
   * @throws NotFound: there is no such object; after a lost answer, because it has been deleted.
   */
  async deleteWindow(window: string | Window, { reason = "" } = {}): Promise<void> {
    await this.#request("DELETE", `/maintenance/${idOf(window)}/`, {
      params: { reason: reason || undefined },
      isSafe: true,
    });
  }

  /** Iterate over the project's allowance: one, or none. */
  allowances(filters: Filters = {}): AsyncGenerator<Allowance, void, undefined> {
    return this.#list("/allowances/", Allowance, filters, PAGE_SIZE);
  }

  /** @throws NotFound: the project has no allowance, or is not the key's own (`no_allowance`). */
  async allowance(allowance: string | Allowance): Promise<Allowance> {
    return new Allowance((await this.#request("GET", allowancePath(allowance))).body);
  }

  /**
   * Give each user of the project so many requests or tokens a month. The key needs the scope `limits`.
   *
   * @throws Conflict: there is an allowance (`allowance_exists`); after a lost answer, because it has been made.
   */
  async createAllowance(quota: number, options: AllowanceOptions = {}): Promise<Allowance> {
    return new Allowance(await this.#store("POST", "/allowances/", { quota, ...options }));
  }

  /** Change an allowance, also for the current month; fields that are left out stay as they are. */
  async changeAllowance(allowance: string | Allowance, changes: AllowanceChanges): Promise<Allowance> {
    return new Allowance(await this.#store("PATCH", allowancePath(allowance), changes));
  }

  /**
   * Delete an allowance; earlier months stay as they are.
   *
   * @throws Conflict: some of it was used or reserved this month (`allowance_in_use`).
   */
  async deleteAllowance(allowance: string | Allowance, { reason }: { reason: string }): Promise<void> {
    await this.#request("DELETE", allowancePath(allowance), { params: { reason }, isSafe: true });
  }

  /**
   * Iterate over what people and keys changed in the project, newest first. The key needs the scope `audit`.
   *
   * With `order: "oldest"` no entry that is written meanwhile is missed, and the iteration ends when there are no more
   * now. Store the `cursor` of the last entry, and give it as `cursor` to go on.
   *
   * @param filters The filters of `GET /audit/`: actor, action, target, created_after, created_before, order, cursor.
   * @throws InvalidRequest: the database was restored after the cursor was given (`other_epoch`); begin without a
   *     cursor.
   */
  async *audit(filters: Filters = {}): AsyncGenerator<AuditEntry, void, undefined> {
    const params: Filters = { page_size: PAGE_SIZE, ...plain(filters) };
    for (;;) {
      const { body } = await this.#request("GET", "/audit/", { params });
      params["cursor"] = body.next_cursor;
      const last = params["order"] === "oldest" ? body.results.at(-1) : undefined;
      for (const row of body.results) yield new AuditEntry({ ...row, cursor: row === last ? body.next_cursor : null });
      if (body.results.length === 0 || !body.next_cursor) return;
    }
  }

  // Webhooks

  /**
   * Iterate over the project's webhooks, newest first.
   *
   * @param filters The filters of `GET /webhooks/`: enabled, hears_jobs, and so on.
   */
  webhooks(filters: Filters = {}): AsyncGenerator<Webhook, void, undefined> {
    return this.#list("/webhooks/", Webhook, filters, SMALL_PAGE_SIZE);
  }

  async webhook(webhook: string | Webhook): Promise<Webhook> {
    return new Webhook((await this.#request("GET", `/webhooks/${idOf(webhook)}/`)).body);
  }

  /**
   * Have signed POSTs sent to an address when batches or jobs end.
   *
   * The key needs the scope `operate`. The returned `secret` is shown only now. After a lost answer it is null: make
   * another webhook, and switch this one off.
   *
   * @throws InvalidRequest: a field is wrong; `fields` names it.
   */
  async createWebhook(url: string, options: WebhookOptions = {}): Promise<Webhook> {
    return new Webhook(await this.#store("POST", "/webhooks/", { url, ...options }));
  }

  /** Change a webhook; fields that are left out stay as they are. A new `jobs` replaces the whole filter. */
  async changeWebhook(webhook: string | Webhook, changes: WebhookChanges): Promise<Webhook> {
    return new Webhook(await this.#store("PATCH", `/webhooks/${idOf(webhook)}/`, changes));
  }

  /**
   * Give a webhook another signing secret.
   *
   * The returned `secret` is shown only now. After a lost answer it is null: change it again with an overlap of 0.
   *
   * @param options.overlapSeconds So long the former secret signs, too; a day by default. 0: it signs nothing from now
   *     on.
   * @throws Conflict: the former secret still signs (`secret_changing`), and the overlap is not 0.
   */
  async changeWebhookSecret(
    webhook: string | Webhook,
    { overlapSeconds, reason = "" }: { overlapSeconds?: number; reason?: string } = {},
  ): Promise<Webhook> {
    const path = `/webhooks/${idOf(webhook)}/secret/`;
    return new Webhook(await this.#act(path, { overlap_seconds: overlapSeconds, reason }));
  }

  /** Send a signed test, also to a webhook that is switched off; `deliveries` says what became of it. */
  async testWebhook(webhook: string | Webhook, { reason = "" } = {}): Promise<Delivery> {
    return new Delivery(await this.#act(`/webhooks/${idOf(webhook)}/test/`, { reason }));
  }

  /**
   * End a webhook's pause, and send again the messages that failed for good: under the same ids, the oldest first.
   *
   * @param options.since Only messages that failed since then.
   * @param options.confirm False sends nothing; `left` says how many would be sent.
   * @throws Conflict: the webhook is switched off.
   */
  async sendWebhookAgain(
    webhook: string | Webhook,
    { since, confirm = true, reason = "" }: { since?: Date | string; confirm?: boolean; reason?: string } = {},
  ): Promise<SentAgain> {
    return await this.#act(`/webhooks/${idOf(webhook)}/send-again/`, { since, confirm, reason });
  }

  /**
   * Iterate over the messages to a webhook, newest first.
   *
   * @param filters The filters of `GET /webhooks/<id>/deliveries/`: event, state (several: an array), and so on.
   */
  async *deliveries(webhook: string | Webhook, filters: Filters = {}): AsyncGenerator<Delivery, void, undefined> {
    yield* this.#list(`/webhooks/${idOf(webhook)}/deliveries/`, Delivery, filters, PAGE_SIZE);
  }

  /**
   * Iterate over the ended jobs that a webhook is told of, newest first.
   *
   * @param filters The filters of `GET /webhooks/<id>/jobs/`: job, waits, and so on.
   */
  async *heardJobs(webhook: string | Webhook, filters: Filters = {}): AsyncGenerator<HeardJob, void, undefined> {
    yield* this.#list(`/webhooks/${idOf(webhook)}/jobs/`, HeardJob, filters, PAGE_SIZE);
  }

  async #store(method: string, path: string, figures: object): Promise<any> {
    const headers = { "content-type": "application/json", "idempotency-key": newId() };
    return (await this.#request(method, path, { content: encodedSchedule(figures), headers })).body;
  }

  /** Return the present state of a record, or of the batch or job with an id. */
  async #find(given: Target, options: RequestOptions): Promise<Subject> {
    const id = idOf(given);
    const read = async (path: string): Promise<any> => (await this.#request("GET", `/${path}/${id}/`, options)).body;
    if (given instanceof Job) return new Job(await read("jobs"));
    if (given instanceof Operation) return new Operation(await read("operations"));
    try {
      return new Batch(await read("batches"));
    } catch (error) {
      if (!(error instanceof NotFound) || given instanceof Batch || given instanceof SubmittedBatch) throw error;
      return new Job(await read("jobs"));
    }
  }

  /** Carry out an action once, however often it is sent. Values that are undefined or empty are left to the server. */
  async #act(path: string, given: Record<string, unknown>): Promise<any> {
    const json = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined && value !== ""));
    return (await this.#request("POST", path, { json, headers: { "idempotency-key": newId() } })).body;
  }

  /** Yield the rows of a list, page by page. */
  async *#list<Item>(
    path: string,
    Kind: new (raw: any) => Item,
    filters: Filters,
    pageSize: number,
  ): AsyncGenerator<Item, void, undefined> {
    const params: Filters = { page_size: pageSize, ...plain(filters) };
    do {
      const { body } = await this.#request("GET", path, { params });
      for (const row of body.results) yield new Kind(row);
      params["cursor"] = body.next_cursor;
    } while (params["cursor"]);
  }

  #request(method: string, path: string, options?: RequestOptions): Promise<Answer> {
    return this.transport.request(method, `${API}${path}`, options);
  }
}

/** The record with which waiting for a target ends. */
export type Ended<Given> = Given extends Job
  ? Job
  : Given extends Batch | SubmittedBatch
    ? Batch
    : Given extends Operation
      ? Operation
      : Job | Batch;

/** @throws InvalidRequest: the value is no UUID, so the path would name another address. */
function idOf(given: string | { id: string }): string {
  const id = typeof given === "string" ? given : given.id;
  if (!UUID.test(id)) throw new InvalidRequest("invalid_id", `'${id}' is not an id.`, { status: 422 });
  return id;
}

/** @throws InvalidRequest: the value is no project's id, so the path would name another address. */
function allowancePath(given: string | Allowance): string {
  const project = typeof given === "string" ? given : given.project;
  if (!PROJECT_ID.test(project)) {
    throw new InvalidRequest("invalid_id", `'${project}' is not the id of a project.`, { status: 422 });
  }
  return `/allowances/${project}/`;
}

function requeueing({ payload, priority, spreadSeconds, note, canary }: Requeueing): Record<string, unknown> {
  return { payload, priority, spread_seconds: spreadSeconds, note, canary };
}

/** Replace records by their ids, and moments by texts. */
function plain(filters: object): Filters {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(given.map(([name, value]) => [name, plainValue(value)]));
}

function plainValue(value: unknown): unknown {
  if (value instanceof Date) return value.toISOString();
  return typeof value === "object" && value !== null && "id" in value ? value.id : value;
}
