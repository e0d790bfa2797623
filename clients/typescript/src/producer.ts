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
const SMALL_PAGE_SIZE = 100; // where each row comes with its payload or result
const BATCH_TIMEOUT_SECONDS = 300; // 100,000 jobs are checked and stored before the answer
const PROJECT_ID = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const UUID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;

export type Priority = "urgent" | "normal" | "low";
export type AnyBatch = string | Batch | SubmittedBatch;
export type Letters = Iterable<string | DeadLetter>;
/** Of a list, by the API's own names. What is null or undefined is left out; several values: an array. */
export type Filters = Record<string, unknown>;

export interface QueueOpsOptions extends TransportOptions {
  /** Where the runtime has none, such as Node 20: the class of the package `ws`. Without any, `watch` asks. */
  WebSocket?: typeof WebSocket | undefined;
}

export interface BatchOptions {
  name?: string;
  /** Of the batch alone; jobs have their own. */
  tags?: string[];
  /** Accept the valid jobs and report the others; otherwise one bad job rejects all. */
  partial?: boolean;
  /** Start the jobs so far apart. */
  startIntervalSeconds?: number;
  /** Ids of jobs and batches that must end before any of it begins; its jobs may name others besides. */
  after?: string[];
  /** When one of those does not succeed: cancel it (the default), run it all the same, or hold it until a requeue does. */
  onFailure?: "cancel" | "run" | "hold";
  /** A job to carry out once, when all have ended; an `http.request` without a body posts the batch's id and counts. */
  onFinish?: JobSpec;
  /** The batch pauses itself when so many percent of its first jobs fail for good with one code; 0: never. By default as the project says. */
  guardPercent?: number;
  /** How many those first jobs are. */
  guardFirst?: number;
  /**
   * One of your own makes the call safe to repeat by another process, for 7 days. The jobs must then come out the
   * same. By default a new one for each call.
   */
  idempotencyKey?: string;
}

export interface Requeueing {
  /** Instead of each failed job's. */
  payload?: Record<string, unknown>;
  priority?: Priority;
  /** Spread the starts over so long. */
  spreadSeconds?: number;
  /** Kept with the dead letters. */
  note?: string;
  /** So many first; the rest once they have ended well, or never. Not of single letters. */
  canary?: number;
}

/**
 * A project's work, through one of its keys.
 *
 * What may be repeated without harm is sent again after a lost connection, a lost answer, a 429 or a 503: every
 * request here is, because each that changes something carries an Idempotency-Key or is harmless to repeat.
 * Every method throws ApiError (by its subclasses) and Unreachable.
 */
export class QueueOps {
  readonly transport: Transport;
  readonly #WebSocket: typeof WebSocket | undefined;

  /**
   * @param baseUrl Of the installation: `https://queue.example.org`.
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
   * @returns Its id, and in `created` and `outcome` whether it is new, or one with the options' idempotency_key or unique_key.
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
   * All jobs are laid down first, so that the request can be repeated to the byte and nothing is sent when `jobs`
   * throws.
   *
   * @throws TooManyJobs: there are more; nothing was sent.
   * @throws BatchRejected: with the lines refused.
   * @throws Unreachable: with the key under which to try again.
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

  /** Say what a batch of these jobs would cost, when it would end and what would be refused; stores nothing. */
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
      // Nothing is stored: it may be sent again.
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
   * What holds a batch: waiting jobs that share their limits together, those with the most jobs first, at most five.
   */
  async waiting(batch: AnyBatch): Promise<HeldLane[]> {
    return (await this.#request("GET", `/batches/${idOf(batch)}/waiting/`)).body.results;
  }

  async operation(operation: string | Operation): Promise<Operation> {
    return new Operation((await this.#request("GET", `/operations/${idOf(operation)}/`)).body);
  }

  /** The batch or job with this id, or a record as it is now. */
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
   * @param filters Of `GET /jobs/`: state, tags (all of them) and any_tag (several: an array), kind, batch, user,
   *     created_after, and so on.
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
   * @param filters Of `GET /dead-letters/`: open, batch, kind, error_code, fingerprint, and so on.
   */
  deadLetters(filters: Filters = {}): AsyncGenerator<DeadLetter, void, undefined> {
    return this.#list("/dead-letters/", DeadLetter, filters, SMALL_PAGE_SIZE);
  }

  /**
   * Iterate over what became of each job of a batch so far, in the order in which they were submitted.
   *
   * Jobs that have not ended come too, without a result. A requeued job comes as its latest successor, at the end.
   * Of a batch that made no job, as the keys of all its lines are known, those of the batches come that have their jobs.
   */
  async *results(batch: AnyBatch): AsyncGenerator<Result, void, undefined> {
    for (const one of await this.#withJobs(batch)) {
      yield* this.#list(`/batches/${idOf(one)}/results/`, Result, {}, SMALL_PAGE_SIZE);
    }
  }

  /**
   * A row for each job of a batch, in the order in which they were submitted: `idempotency_key`, `id`, `state`,
   * `last_error_code`, `cost_money` (in millionths), the columns or the whole `result`.
   *
   * @param options columns: places in the results, such as `data.total`; with_input: each has its `payload`, too.
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

  /** The batch, or those whose jobs it would have made again. */
  async #withJobs(batch: AnyBatch): Promise<string[]> {
    const found = typeof batch === "string" ? await this.batch(batch) : batch;
    const known = found.known_batches ?? []; // an earlier server names none
    const made = "accepted" in found ? found.accepted : found.total;
    return made || !known.length ? [found.id] : known;
  }

  /** What a job's handler returned, however large: also where its record has `stored_result` instead. */
  async result(job: string | Job | Result): Promise<unknown> {
    return (await this.#request("GET", `/jobs/${idOf(job)}/result/`)).body;
  }

  // Waiting

  /**
   * Iterate over what happens to a job, batch or operation, until it has ended.
   *
   * By a websocket, which is opened again after a loss and resumes where it was; by asking where there is none.
   * The first update shows how things are, the last one the end. Of a batch's events at most 200 a second come.
   *
   * @throws WaitTimeout: it has not ended within `timeout` seconds.
   */
  watch(target: Target, options: WatchOptions = {}): AsyncGenerator<Update, void, undefined> {
    // Never repeated by itself, so that the loss of the server is told at once.
    const find = (subject: Target, timeout: number | undefined, wait: number): Promise<Subject> =>
      this.#find(subject, { timeout, signal: options.signal, retry: NEVER, params: { wait: wait || undefined } });
    return new Watch(this.transport, find, this.#WebSocket, options).follow(target);
  }

  /**
   * Wait until a job, batch or operation has ended, however it ended, and return it.
   *
   * @throws WaitTimeout: with how it was last seen. It goes on.
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
   * Cancel a job that has not ended; a running one is told where its handler next waits.
   *
   * @throws Conflict: it has ended.
   */
  async cancelJob(job: string | Job, { reason = "" } = {}): Promise<Job> {
    return new Job(await this.#act(`/jobs/${idOf(job)}/cancel/`, { reason }));
  }

  /** Cancel those of at most 10,000 jobs that have not ended. */
  async cancelJobs(jobs: Iterable<string | Job>, { reason = "" } = {}): Promise<Moved> {
    return await this.#act("/jobs/cancel/", { ids: Array.from(jobs, idOf), reason });
  }

  /**
   * Requeue a failed job, with another payload if one is given; returns the new job.
   *
   * @throws Conflict: it has not failed, or was requeued or discarded.
   */
  async retryJob(job: string | Job, options: Omit<Requeueing, "spreadSeconds"> = {}): Promise<Job> {
    return new Job(await this.#act(`/jobs/${idOf(job)}/retry/`, requeueing(options)));
  }

  /** Begin to cancel what has not ended of a batch; `wait` for the operation. */
  async cancelBatch(batch: AnyBatch, { reason = "" } = {}): Promise<Operation> {
    return new Operation(await this.#act(`/batches/${idOf(batch)}/cancel/`, { reason }));
  }

  /** Begin to requeue what has failed of a batch. */
  async retryBatch(batch: AnyBatch, options: Omit<Requeueing, "payload"> = {}): Promise<Operation> {
    return new Operation(await this.#act(`/batches/${idOf(batch)}/retry/`, requeueing(options)));
  }

  /** Let a job go on all the same that waits for others. */
  async goOnJob(job: string | Job, { reason = "" } = {}): Promise<Job> {
    return new Job(await this.#act(`/jobs/${idOf(job)}/go-on/`, { reason }));
  }

  /** Let a batch go on all the same that waits for others. */
  async goOnBatch(batch: AnyBatch, { reason = "" } = {}): Promise<Batch> {
    await this.#act(`/batches/${idOf(batch)}/go-on/`, { reason });
    return this.batch(batch);
  }

  /** Hold back what does not run yet. */
  async pauseBatch(batch: AnyBatch, { reason = "" } = {}): Promise<Paused> {
    return await this.#act(`/batches/${idOf(batch)}/pause/`, { reason });
  }

  /** Let it go on: with `canary` so many jobs first, and the rest once they have ended well. */
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
   * @param filters Of `GET /schedules/`: name, paused, and so on.
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
   * @param filters Of `GET /schedules/<id>/fires/`: outcome (several: an array), created_after, and so on.
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
   * @throws InvalidRequest: with the field that is wrong: also of a name that is taken, and of what would never fire.
   */
  async createSchedule(name: string, cron: string, jobs: JobSpec[], options: ScheduleOptions = {}): Promise<Schedule> {
    return new Schedule(await this.#store("POST", "/schedules/", { name, cron, jobs, ...options }));
  }

  /** Say when such a schedule would fire first, five times; refuses what its creation would, stores nothing. */
  async previewSchedule(name: string, cron: string, jobs: JobSpec[], options: ScheduleOptions = {}): Promise<string[]> {
    return (await this.#store("POST", "/schedules/preview/", { name, cron, jobs, ...options })).next_due;
  }

  /** Change a schedule; what is left out stays as it is. Other times count from now on. */
  async changeSchedule(schedule: string | Schedule, changes: ScheduleChanges): Promise<Schedule> {
    return new Schedule(await this.#store("PATCH", `/schedules/${idOf(schedule)}/`, changes));
  }

  /** Let it fire no more until it is resumed; what it has submitted goes on. */
  async pauseSchedule(schedule: string | Schedule, { reason = "" } = {}): Promise<Schedule> {
    return new Schedule(await this.#act(`/schedules/${idOf(schedule)}/pause/`, { reason }));
  }

  /** Let it fire again from now on; nothing is made up for. */
  async resumeSchedule(schedule: string | Schedule, { reason = "" } = {}): Promise<Schedule> {
    return new Schedule(await this.#act(`/schedules/${idOf(schedule)}/resume/`, { reason }));
  }

  /** Submit its jobs now, also while it is paused; its next fire stays as it is. */
  async runSchedule(schedule: string | Schedule, { reason = "" } = {}): Promise<Fire> {
    return new Fire(await this.#act(`/schedules/${idOf(schedule)}/run/`, { reason }));
  }

  /**
   * Delete a schedule; what it has submitted goes on.
   *
   * @throws NotFound: there is none; after a lost answer because it has been deleted.
   */
  async deleteSchedule(schedule: string | Schedule, { reason = "" } = {}): Promise<void> {
    await this.#request("DELETE", `/schedules/${idOf(schedule)}/`, {
      params: { reason: reason || undefined },
      isSafe: true,
    });
  }

  // Maintenance windows

  /**
   * Iterate over maintenance windows, newest first: the project's, and those that hold its work with others'.
   *
   * @param filters Of `GET /maintenance/`: scope (several: an array), created_after, created_before.
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
   * @throws InvalidRequest: with the field that is wrong: also of times that are over, or end before they begin.
   */
  async createWindow(figures: WindowOptions): Promise<Window> {
    return new Window(await this.#store("POST", "/maintenance/", figures));
  }

  /** Change one of the project's windows; what is left out stays as it is. */
  async changeWindow(window: string | Window, changes: WindowOptions): Promise<Window> {
    return new Window(await this.#store("PATCH", `/maintenance/${idOf(window)}/`, changes));
  }

  /** End a window that is open; a weekly one comes again, one that is not open stays as it is. */
  async endWindow(window: string | Window, { reason = "" } = {}): Promise<Window> {
    return new Window(await this.#act(`/maintenance/${idOf(window)}/end/`, { reason }));
  }

  /**
   * Delete a window; what it holds may start, unless something else holds it.
   *
   * @throws NotFound: there is none; after a lost answer because it has been deleted.
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

  /** @throws NotFound: `no_allowance`: the project has none, or is not the key's own. */
  async allowance(allowance: string | Allowance): Promise<Allowance> {
    return new Allowance((await this.#request("GET", allowancePath(allowance))).body);
  }

  /**
   * Give each user of the project so many requests or tokens a month. The key needs the scope `limits`.
   *
   * @throws Conflict: `allowance_exists`; after a lost answer because it has been made.
   */
  async createAllowance(quota: number, options: AllowanceOptions = {}): Promise<Allowance> {
    return new Allowance(await this.#store("POST", "/allowances/", { quota, ...options }));
  }

  /** Change it, also for the current month; what is left out stays as it is. */
  async changeAllowance(allowance: string | Allowance, changes: AllowanceChanges): Promise<Allowance> {
    return new Allowance(await this.#store("PATCH", allowancePath(allowance), changes));
  }

  /**
   * Delete it; months before stay as they are.
   *
   * @throws Conflict: `allowance_in_use`: some of it was used or reserved this month.
   */
  async deleteAllowance(allowance: string | Allowance, { reason }: { reason: string }): Promise<void> {
    await this.#request("DELETE", allowancePath(allowance), { params: { reason }, isSafe: true });
  }

  /**
   * Iterate over what people and keys changed in the project, newest first. The key needs the scope `audit`.
   *
   * With `order: "oldest"` none is missed that is written meanwhile, and the iteration ends when there are no more now.
   * Store the `cursor` of the last entry, and give it as `cursor` to go on.
   *
   * @param filters Of `GET /audit/`: actor, action, target, created_after, created_before, order, cursor.
   * @throws InvalidRequest: `other_epoch`: the database was restored since the cursor; begin again, without one.
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
   * @param filters Of `GET /webhooks/`: enabled, hears_jobs, and so on.
   */
  webhooks(filters: Filters = {}): AsyncGenerator<Webhook, void, undefined> {
    return this.#list("/webhooks/", Webhook, filters, SMALL_PAGE_SIZE);
  }

  async webhook(webhook: string | Webhook): Promise<Webhook> {
    return new Webhook((await this.#request("GET", `/webhooks/${idOf(webhook)}/`)).body);
  }

  /**
   * Have an address told, by signed POSTs, when batches end or jobs do.
   *
   * The key needs the scope `operate`. The `secret` in what is returned is shown now or never; after a lost answer it is
   * null: make another, and switch this one off.
   *
   * @throws InvalidRequest: with the field that is wrong.
   */
  async createWebhook(url: string, options: WebhookOptions = {}): Promise<Webhook> {
    return new Webhook(await this.#store("POST", "/webhooks/", { url, ...options }));
  }

  /** Change a webhook; what is left out stays as it is, and a filter of jobs replaces the whole one. */
  async changeWebhook(webhook: string | Webhook, changes: WebhookChanges): Promise<Webhook> {
    return new Webhook(await this.#store("PATCH", `/webhooks/${idOf(webhook)}/`, changes));
  }

  /** Send a signed test, also to one that is switched off; `deliveries` says what became of it. */
  async testWebhook(webhook: string | Webhook, { reason = "" } = {}): Promise<Delivery> {
    return new Delivery(await this.#act(`/webhooks/${idOf(webhook)}/test/`, { reason }));
  }

  /**
   * End a webhook's pause and send again what failed for good, under the same ids, the oldest first.
   *
   * @param options.since Only messages that failed since then.
   * @param options.confirm False sends nothing; `left` says how many would be sent.
   * @throws Conflict The webhook is switched off.
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
   * @param filters Of `GET /webhooks/<id>/deliveries/`: event, state (several: an array), and so on.
   */
  async *deliveries(webhook: string | Webhook, filters: Filters = {}): AsyncGenerator<Delivery, void, undefined> {
    yield* this.#list(`/webhooks/${idOf(webhook)}/deliveries/`, Delivery, filters, PAGE_SIZE);
  }

  /**
   * Iterate over the ended jobs that a webhook hears of, newest first.
   *
   * @param filters Of `GET /webhooks/<id>/jobs/`: job, waits, and so on.
   */
  async *heardJobs(webhook: string | Webhook, filters: Filters = {}): AsyncGenerator<HeardJob, void, undefined> {
    yield* this.#list(`/webhooks/${idOf(webhook)}/jobs/`, HeardJob, filters, PAGE_SIZE);
  }

  async #store(method: string, path: string, figures: object): Promise<any> {
    const headers = { "content-type": "application/json", "idempotency-key": newId() };
    return (await this.#request(method, path, { content: encodedSchedule(figures), headers })).body;
  }

  /** What an id or an earlier record stands for, as it is now. A plain id may be a batch's or a job's. */
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

  /** Do something once. What is undefined or empty is left to the server. */
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

/** What waiting for a target ends with. */
export type Ended<Given> = Given extends Job
  ? Job
  : Given extends Batch | SubmittedBatch
    ? Batch
    : Given extends Operation
      ? Operation
      : Job | Batch;

/** @throws InvalidRequest: it is no UUID, so it would name another address. */
function idOf(given: string | { id: string }): string {
  const id = typeof given === "string" ? given : given.id;
  if (!UUID.test(id)) throw new InvalidRequest("invalid_id", `'${id}' is not an id.`, { status: 422 });
  return id;
}

/** @throws InvalidRequest: it is no project's id, so it would name another address. */
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

/** A record stands for its id; moments become texts. */
function plain(filters: object): Filters {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(given.map(([name, value]) => [name, plainValue(value)]));
}

function plainValue(value: unknown): unknown {
  if (value instanceof Date) return value.toISOString();
  return typeof value === "object" && value !== null && "id" in value ? value.id : value;
}
