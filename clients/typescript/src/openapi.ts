// Written by generate_types.mjs from the OpenAPI document: do not change it.
export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @enum {string} */
        AimEnum: "start" | "end" | "succeed";
        /**
         * Algorithm
         * @enum {string}
         */
        Algorithm: "sliding_window" | "token_bucket" | "leaky_bucket" | "fixed_window" | "concurrency";
        /**
         * @description * `sliding_window` - Sliding Window
         *     * `token_bucket` - Token Bucket
         *     * `leaky_bucket` - Leaky Bucket
         *     * `fixed_window` - Fixed Window
         *     * `concurrency` - Concurrency
         * @enum {string}
         */
        AlgorithmEnum: "sliding_window" | "token_bucket" | "leaky_bucket" | "fixed_window" | "concurrency";
        Allowance: {
            policy?: components["schemas"]["AllowancePolicy"];
            project: string;
            /**
             * Format: int64
             * @description In the unit, for each user and month.
             */
            quota: number;
            /** @description A reservation that nobody confirmed is given back after so long. Longer than the longest call. */
            reservation_seconds?: number;
            /** @description No key of the project may change it. */
            readonly set_by_operator: boolean;
            /** @description Where the month begins at midnight: Europe/Vienna. */
            time_zone?: string;
            unit?: components["schemas"]["AllowanceUnit"];
            /** Format: date-time */
            readonly updated_at: string;
        };
        /**
         * AllowancePolicy
         * @enum {string}
         */
        AllowancePolicy: "strict" | "record_overage";
        /**
         * AllowanceUnit
         * @enum {string}
         */
        AllowanceUnit: "requests" | "tokens";
        /**
         * Amounts
         * @description The amounts that a call takes, by unit.
         */
        Amounts: {
            /**
             * Cached Tokens
             * @description Of the input, what a cache has.
             * @default null
             */
            cached_tokens: number | null;
            /**
             * Enqueued Tokens
             * @description Of a batch that the provider keeps.
             * @default null
             */
            enqueued_tokens: number | null;
            /**
             * Input Tokens
             * @description All of the input, what a cache has included.
             * @default null
             */
            input_tokens: number | null;
            /**
             * Output Tokens
             * @default null
             */
            output_tokens: number | null;
            /**
             * Tokens
             * @description The sum, as the provider sums it.
             * @default null
             */
            tokens: number | null;
        };
        /**
         * AskedCall
         * @description One call that asks to go.
         */
        AskedCall: {
            /**
             * @description What it takes by unit, for limits of that unit; of output tokens the most there can be. What is left out follows from the cost.
             * @default null
             */
            amounts: components["schemas"]["Amounts"] | null;
            /** Call Type */
            call_type: components["schemas"]["AskedCallCallTypeEnum"];
            /**
             * Cost
             * @description Tokens, estimated. Each call takes one request and one place in flight besides.
             * @default 1
             */
            cost: number;
            /**
             * Known Cost
             * @description The part of the cost that is no guess. Null: all of it.
             * @default null
             */
            known_cost: number | null;
            /**
             * Model
             * @description The service's model, where it has several.
             * @default
             */
            model: string;
            /**
             * Project
             * @description By default the key's own; it cannot be another.
             * @default null
             */
            project: string | null;
            /** Service */
            service: string;
            /**
             * User
             * @description As the provider sees it. Empty: none.
             * @default
             */
            user: string;
        };
        /** @enum {string} */
        AskedCallCallTypeEnum: "read" | "write";
        /** @description A project's cap of calls in flight. */
        AtOnce: {
            /** Format: double */
            at_most: number;
            each_user: boolean;
            /** @description False: an operator has switched the limit off, or to shadow. */
            enforced: boolean;
            id: number;
            /** @description Empty: every kind. */
            kind: string;
            /** @description Of the limit that it is. */
            name: string;
            /** @description Empty: every service. */
            service: string;
            /**
             * Format: double
             * @description In flight now; of caps for each user, of who has the most.
             */
            used: number;
        };
        AtOnceCaps: {
            results: components["schemas"]["AtOnce"][];
        };
        AuditEntry: {
            readonly action: string;
            readonly actor: string;
            /** @description Of who asked. */
            readonly address: string;
            after: unknown;
            before: unknown;
            /** Format: date-time */
            readonly created_at: string;
            readonly id: number;
            /** @description How many rows it changed. */
            readonly moved: number;
            readonly project_id: string;
            readonly reason: string;
            readonly target: string;
        };
        /** @description A batch, with its progress. */
        Batch: {
            /** @description The jobs and batches that it was submitted to wait for. */
            after: string[];
            /** @description Items by state; a requeued item counts once, as its latest job. */
            counts: components["schemas"]["Counts"];
            /** Format: date-time */
            readonly created_at: string;
            /**
             * Format: date-time
             * @description A forecast from its past speed and the limits; null while nothing is known.
             */
            eta: string | null;
            /**
             * Format: date-time
             * @description Set where the two differ much: it ends between this and `eta`.
             */
            eta_earliest: string | null;
            finished: number;
            /** Format: date-time */
            readonly finished_at: string | null;
            /** @description When it stops itself; null: never. */
            guard: components["schemas"]["Guard"] | null;
            /** @description What stops it, in words, where the verdict is `held`; else null. */
            held_by: string | null;
            /** @description Of those rate_limited, how many wait for an outage to end, and not for quota; at most 10,000. */
            held_by_outage: number;
            /** Format: uuid */
            readonly id: string;
            /** @description The first 20 batches that have jobs which were submitted again with this one, and their results. */
            known_batches: string[];
            readonly name: string;
            /**
             * @description What if one of those does not succeed.
             *
             *     * `cancel` - it is cancelled
             *     * `run` - it runs all the same
             *     * `hold` - it waits until a requeue of that one succeeds
             */
            on_failure: components["schemas"]["OnFailureEnum"] | components["schemas"]["NullEnum"];
            /**
             * Format: uuid
             * @description The job that waits for its end. Null: none was asked for.
             */
            readonly on_finish_job: string | null;
            readonly paused: boolean;
            /**
             * Format: double
             * @description Percent of the items that have ended.
             */
            progress: number;
            /** Format: double */
            rate_per_second: number | null;
            /** Format: double */
            recheck_after_seconds: number | null;
            /** @description Of those queued, how many wait for their time; at most 100,000, in long lists 10,000. */
            scheduled: number;
            /**
             * Format: date-time
             * @description When the last of them may begin; null: none waits for its time.
             */
            scheduled_until: string | null;
            readonly submitted_by: string;
            tags: string[];
            readonly total: number;
            /**
             * @description The state of the batch in one word. A batch that has ended has the first of these that fits: `succeeded`, every job is completed; `failed`, some jobs failed and none is completed; `cancelled`, at least half of the jobs were cancelled; `succeeded_with_failures`.
             *
             *     * `waiting` - Waiting
             *     * `held` - Held
             *     * `running` - Running
             *     * `succeeded` - Succeeded
             *     * `succeeded_with_failures` - succeeded with failures
             *     * `failed` - Failed
             *     * `cancelled` - Cancelled
             */
            verdict: components["schemas"]["VerdictEnum"];
        };
        /** @description A batch, with its progress. */
        BatchDetail: {
            /** @description The jobs and batches that it was submitted to wait for. */
            after: string[];
            /** @description What its calls cost so far, in millionths of `currency`; null: not known, or a price is missing. */
            cost_money: number | null;
            /** @description Items by state; a requeued item counts once, as its latest job. */
            counts: components["schemas"]["Counts"];
            /** Format: date-time */
            readonly created_at: string;
            /** @description Three letters, such as USD. */
            currency: string;
            /** @description Everything up to here is in this answer: `resume` a socket from it to get what came after. 0 while none is known. */
            cursor: number;
            /** @description Of the cursor: a restored database begins a new one. Send it with the cursor. */
            epoch: string;
            /**
             * Format: date-time
             * @description A forecast from its past speed and the limits; null while nothing is known.
             */
            eta: string | null;
            /**
             * Format: date-time
             * @description Set where the two differ much: it ends between this and `eta`.
             */
            eta_earliest: string | null;
            finished: number;
            /** Format: date-time */
            readonly finished_at: string | null;
            /** @description When it stops itself; null: never. */
            guard: components["schemas"]["Guard"] | null;
            /** @description What stops it, in words, where the verdict is `held`; else null. */
            held_by: string | null;
            /** @description Of those rate_limited, how many wait for an outage to end, and not for quota; at most 10,000. */
            held_by_outage: number;
            /** Format: uuid */
            readonly id: string;
            /** @description The first 20 batches that have jobs which were submitted again with this one, and their results. */
            known_batches: string[];
            readonly name: string;
            /**
             * @description What if one of those does not succeed.
             *
             *     * `cancel` - it is cancelled
             *     * `run` - it runs all the same
             *     * `hold` - it waits until a requeue of that one succeeds
             */
            on_failure: components["schemas"]["OnFailureEnum"] | components["schemas"]["NullEnum"];
            /**
             * Format: uuid
             * @description The job that waits for its end. Null: none was asked for.
             */
            readonly on_finish_job: string | null;
            readonly paused: boolean;
            /**
             * Format: double
             * @description Percent of the items that have ended.
             */
            progress: number;
            /** Format: double */
            rate_per_second: number | null;
            /** Format: double */
            recheck_after_seconds: number | null;
            /** @description Of those queued, how many wait for their time; at most 100,000, in long lists 10,000. */
            scheduled: number;
            /**
             * Format: date-time
             * @description When the last of them may begin; null: none waits for its time.
             */
            scheduled_until: string | null;
            readonly submitted_by: string;
            tags: string[];
            readonly total: number;
            /**
             * @description The state of the batch in one word. A batch that has ended has the first of these that fits: `succeeded`, every job is completed; `failed`, some jobs failed and none is completed; `cancelled`, at least half of the jobs were cancelled; `succeeded_with_failures`.
             *
             *     * `waiting` - Waiting
             *     * `held` - Held
             *     * `running` - Running
             *     * `succeeded` - Succeeded
             *     * `succeeded_with_failures` - succeeded with failures
             *     * `failed` - Failed
             *     * `cancelled` - Cancelled
             */
            verdict: components["schemas"]["VerdictEnum"];
        };
        /** BatchDocument */
        BatchDocument: {
            /**
             * After
             * @description Jobs and batches of the project that must end first, by their ids, and jobs by their idempotency keys, also of earlier lines of the same batch; at most 100.
             * @default []
             */
            after: string[];
            /**
             * Guard First
             * @description Until so many have ended, at most twice as many are let go. By default as the project says: 50.
             * @default null
             */
            guard_first: number | null;
            /**
             * Guard Percent
             * @description The batch pauses itself when so many percent of its first `guard_first` jobs fail for good with one code. 0: never. By default as the project says: 20 percent, in batches of more than 200 jobs.
             * @default null
             */
            guard_percent: number | null;
            /**
             * Jobs
             * @description Each as in the submission of one job.
             */
            jobs: unknown[];
            /**
             * Name
             * @default
             */
            name: string;
            /**
             * @description When one of `after` does not succeed (it is a dead letter, cancelled or expired): cancel it, run it all the same, or hold it until a requeue of that one succeeds.
             * @default cancel
             */
            on_failure: components["schemas"]["OnFailure"];
            /**
             * @description A job to carry out once, when all of the batch has ended, without times and idempotency_key. As a query parameter, its JSON.
             * @default null
             */
            on_finish: components["schemas"]["JobSpec"] | null;
            /**
             * Partial
             * @description Accept the valid jobs and report the others.
             * @default false
             */
            partial: boolean;
            /**
             * Start Interval Seconds
             * @description Start the jobs this far apart.
             * @default 0
             */
            start_interval_seconds: number;
            /**
             * Tags
             * @description Of the batch alone. As a query parameter, separated by commas.
             * @default []
             */
            tags: string[];
        };
        /** @description The batch of its provider that a job was a line of last. */
        BatchOfJob: {
            /** Format: uuid */
            id: string;
            /** @description What its provider calls it; empty while it is not known there. */
            provider_id: string;
            state: components["schemas"]["ProviderBatchState"];
        };
        BatchWaiting: {
            results: components["schemas"]["HeldLane"][];
        };
        /** BindingLimit */
        BindingLimit: {
            /**
             * Ahead
             * @description By the work before it.
             */
            ahead: number;
            /**
             * Key
             * @description Under which the limit counts it: the quota's owner.
             */
            key: string;
            /** Limit */
            limit: string;
            /**
             * Needed
             * @description By the batch, in the unit.
             */
            needed: number;
            /**
             * Seconds
             * @description Until the last of it has passed. Null: it never does.
             */
            seconds: number | null;
            /**
             * Share
             * @description Of the whole time; 1: this limit sets the pace.
             */
            share: number;
            /** Unit */
            unit: string;
        };
        /**
         * BindingShown
         * @description The limit that takes longest to have room, in its own unit.
         */
        BindingShown: {
            /** Available */
            available: number;
            /** Capacity */
            capacity: number;
            /**
             * Cooling
             * @description The provider pushed back, or an operator did.
             */
            cooling: boolean;
            /**
             * Hard Reset
             * @description Room comes back only at the provider's daily reset.
             */
            hard_reset: boolean;
            /** Key */
            key: string;
            /** Limit */
            limit: string;
            /** Needed */
            needed: number;
            /** Unit */
            unit: components["schemas"]["BindingShownUnitEnum"];
        };
        /** @enum {string} */
        BindingShownUnitEnum: "requests" | "tokens" | "in_flight";
        /**
         * @description A budget and how it stands in the current period; amounts in millionths of the currency.
         *
         *     `context["standings"]`: how each budget stands, by its id.
         */
        Budget: {
            /** Format: int64 */
            amount: number;
            /**
             * Format: uuid
             * @description Of one batch: which.
             */
            batch_id?: string | null;
            readonly currency: string;
            /**
             * Format: date-time
             * @description When the next period begins; null: never.
             */
            readonly ends_at: string | null;
            /** @description What calls under way can cost at most. */
            readonly held: number;
            readonly id: number;
            /** @description Of a budget for each user: who has spent the most; the figures are theirs. */
            readonly key: string;
            readonly left: number;
            /** @description Shown wherever it has no room. */
            name: string;
            note?: string;
            period?: components["schemas"]["PeriodEnum"];
            policy?: components["schemas"]["BudgetPolicyEnum"];
            scope?: components["schemas"]["BudgetScopeEnum"];
            /** @description An operator made or changed it: keys of the project may not change it. */
            readonly set_by_operator: boolean;
            readonly spent: number;
            /** @description Where a day or month begins at midnight: Europe/Vienna. */
            time_zone?: string;
            /** @description The part of `spent` of which nobody knows whether it was billed: the most that it can be. */
            readonly unknown: number;
            /**
             * Format: uuid
             * @description Of one user: who.
             */
            user_id?: string | null;
        };
        /** @enum {string} */
        BudgetPolicy: "wait" | "reject";
        /**
         * @description * `wait` - wait: jobs beyond it are held until there is room
         *     * `reject` - reject: jobs beyond it fail
         * @enum {string}
         */
        BudgetPolicyEnum: "wait" | "reject";
        /**
         * BudgetScope
         * @enum {string}
         */
        BudgetScope: "project" | "each_user" | "user" | "batch";
        /**
         * @description * `project` - the project
         *     * `each_user` - each user
         *     * `user` - one user
         *     * `batch` - one batch
         * @enum {string}
         */
        BudgetScopeEnum: "project" | "each_user" | "user" | "batch";
        /** Burn */
        Burn: {
            /**
             * Jobs
             * @description Whose deadlines passed in it.
             */
            jobs: number;
            /** Missed */
            missed: number;
            /**
             * Rate
             * @description How many times as fast as it may the budget is used up.
             */
            rate: number;
            /**
             * Window
             * @description Such as `1 h`.
             */
            window: string;
        };
        /**
         * CallType
         * @enum {string}
         */
        CallType: "read" | "write";
        /** @description The rows of an operation that go first. */
        Canary: {
            /** @description The most frequent error code of them; empty: none failed. */
            code: string;
            ended: number;
            /** @description For good, with `code`. */
            failed: number;
            /** @description How many have gone. */
            jobs: number;
            /** @description It fails where so many percent failed with one code. */
            percent: number;
            /** @description How many were asked for. */
            rows: number;
            /**
             * @description `trying`: the rest waits for them; `passed`: it follows; `failed`: the operation has ended.
             *
             *     * `trying` - Trying
             *     * `passed` - Passed
             *     * `failed` - Failed
             */
            state: components["schemas"]["CanaryStateEnum"];
        };
        /**
         * @description * `trying` - Trying
         *     * `passed` - Passed
         *     * `failed` - Failed
         * @enum {string}
         */
        CanaryStateEnum: "trying" | "passed" | "failed";
        /** CancelledReservation */
        CancelledReservation: {
            /**
             * Released
             * @description By this call.
             */
            released: boolean;
            /**
             * Remaining
             * @description Null: the project has no allowance any more.
             */
            remaining: number | null;
            /**
             * Reservation Id
             * Format: uuid
             */
            reservation_id: string;
            /**
             * Resets At
             * @description Null as well then.
             */
            resets_at: string | null;
            /**
             * Status
             * @description As it is now.
             */
            status: components["schemas"]["CancelledReservationStatusEnum"];
        };
        /** @enum {string} */
        CancelledReservationStatusEnum: "cancelled" | "confirmed" | "expired";
        /** CancelMany */
        CancelMany: {
            /**
             * Ids
             * @description At most 10,000.
             */
            ids: string[];
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /** CancelReservation */
        CancelReservation: {
            /**
             * Reservation Id
             * Format: uuid
             */
            reservation_id: string;
        };
        /** ChangeBatchPriorityInput */
        ChangeBatchPriorityInput: {
            /**
             * Canary
             * @description So many first. The rest follows once all their jobs have ended. Null: all at once.
             * @default null
             */
            canary: number | null;
            /**
             * Canary Percent
             * @description The rest does not follow where so many percent of them failed with one code.
             * @default 20
             */
            canary_percent: number;
            priority: components["schemas"]["Priority"];
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /**
         * ChangeLimit
         * @description Changes to a limit. A field that is left out stays as it is.
         */
        ChangeLimit: {
            algorithm?: components["schemas"]["Algorithm"];
            call_type?: components["schemas"]["LimitCallType"];
            /** Capacity */
            capacity?: number | null;
            /** Clears Late Seconds */
            clears_late_seconds?: number;
            /**
             * Counts Cached
             * @description Of input tokens: those read from a cache count, too.
             */
            counts_cached?: boolean;
            /** Enabled */
            enabled?: boolean;
            /**
             * Fail Open
             * @description Calls proceed while the limiter's database is out of reach.
             */
            fail_open?: boolean;
            /** Guard Seconds */
            guard_seconds?: number;
            /** Headroom Percent */
            headroom_percent?: number;
            /**
             * Kind
             * @description Only calls in flight of jobs of this kind.
             */
            kind?: string;
            /**
             * Learns Caps
             * @description A cap that the provider states is taken over at once.
             */
            learns_caps?: boolean;
            /** Lease Seconds */
            lease_seconds?: number;
            /**
             * Model
             * @description Only calls of this model. Empty: of every model.
             */
            model?: string;
            /** Name */
            name?: string;
            /** Note */
            note?: string;
            /** Notice Percent */
            notice_percent?: number;
            /**
             * Per Model
             * @description Each model has counters of its own.
             */
            per_model?: boolean;
            /**
             * Project
             * @description Only calls of this project's jobs.
             */
            project?: string;
            /**
             * Provider Quota
             * @description What the provider allows in a window.
             */
            provider_quota?: number | null;
            /**
             * Reason
             * @description For the audit trail.
             */
            reason?: string;
            /** Refill Per Second */
            refill_per_second?: number | null;
            /** @description Of tokens and output tokens: whether the provider counts what a call uses, or all it may bring. */
            reserves?: components["schemas"]["Reserves"];
            /** Reset Zone */
            reset_zone?: string;
            scope?: components["schemas"]["LimitScope"];
            /**
             * Seen At
             * @description The `updated_at` of what you looked at: refused if somebody changed it since.
             */
            seen_at?: string | null;
            /** Service */
            service?: string;
            /**
             * Shadow
             * @description Counts what it would refuse, but blocks nothing.
             */
            shadow?: boolean;
            /** Slack Seconds */
            slack_seconds?: number | null;
            unit?: components["schemas"]["Unit"];
            /** Warning Percent */
            warning_percent?: number;
            /** Window Seconds */
            window_seconds?: number | null;
        };
        /** ChangePriority */
        ChangePriority: {
            priority: components["schemas"]["Priority"];
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /** ChangePriorityMany */
        ChangePriorityMany: {
            /**
             * Ids
             * @description At most 10,000.
             */
            ids: string[];
            priority: components["schemas"]["Priority"];
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /**
         * @description * `after` - after
         *     * `guard` - guard
         *     * `paused` - paused
         *     * `budget` - budget
         *     * `outage` - outage
         *     * `scheduled` - scheduled
         *     * `retry_backoff` - retry_backoff
         *     * `limit` - limit
         *     * `cooled_down` - cooled_down
         *     * `turn` - turn
         *     * `slots` - slots
         *     * `pool` - pool
         *     * `credentials` - credentials
         * @enum {string}
         */
        CodeEnum: "after" | "guard" | "paused" | "budget" | "outage" | "scheduled" | "retry_backoff" | "limit" | "cooled_down" | "turn" | "slots" | "pool" | "credentials";
        /** @description Jobs by state. */
        Counts: {
            cancelled: number;
            completed: number;
            dispatched: number;
            failed: number;
            in_progress: number;
            queued: number;
            rate_limited: number;
            retried: number;
        };
        DeadLetter: {
            /** @description Each failed attempt with its time, error and delay; for people's sessions also the `traceback` of a handler's bug. */
            attempts: unknown;
            /** Format: uuid */
            readonly batch_id: string | null;
            readonly crash_count: number;
            /** Format: date-time */
            readonly created_at: string;
            readonly error_class: string;
            readonly error_code: string;
            readonly error_message: string;
            /** @description Equal for failures with one cause. */
            readonly fingerprint: string;
            readonly http_status: number | null;
            /** Format: uuid */
            readonly id: string;
            /** Format: uuid */
            readonly job: string;
            readonly kind: string;
            readonly note: string;
            readonly payload: unknown;
            /** @description What the operator is told to do. */
            readonly remediation: string;
            /** Format: uuid */
            readonly requeued_as: string | null;
            readonly resolution: components["schemas"]["Resolution"] | components["schemas"]["NullEnum"];
            /** Format: date-time */
            readonly resolved_at: string | null;
            readonly resolved_by: string;
            readonly retry_count: number;
            readonly service: string;
        };
        /**
         * Decide
         * @description Calls that want to go now, in the order in which they may.
         */
        Decide: {
            /** Calls */
            calls: components["schemas"]["AskedCall"][];
            /**
             * Hold Seconds
             * @description What a call holds and nobody settles is given back after this.
             * @default 600
             */
            hold_seconds: number;
        };
        /** Decisions */
        Decisions: {
            /**
             * Decisions
             * @description One a call, in order.
             */
            decisions: components["schemas"]["DecisionShown"][];
            /**
             * Degraded
             * @description The limiter's database was out of reach: the calls go uncounted.
             */
            degraded: boolean;
        };
        /** DecisionShown */
        DecisionShown: {
            binding: components["schemas"]["BindingShown"] | null;
            /**
             * Holder
             * @description Settle the call under this name when it has ended; null: there is nothing to.
             */
            holder: string | null;
            /** Kind */
            kind: components["schemas"]["KindEnum"];
            /** Reason */
            reason: string;
            /**
             * Retry After Seconds
             * @description The same from now on; right whatever your clock says.
             */
            retry_after_seconds: number | null;
            /**
             * Retry At
             * @description Of defer and retry: the earliest time, if nothing else comes.
             */
            retry_at: string | null;
        };
        /** DeletedInfo */
        DeletedInfo: {
            /** Deleted */
            deleted: boolean;
        };
        /** Discard */
        Discard: {
            /** Reason */
            reason: string;
        };
        /** DiscardMany */
        DiscardMany: {
            filter?: components["schemas"]["LetterFilter"];
            /**
             * Ids
             * @description At most 10,000.
             */
            ids?: string[];
            /** Reason */
            reason: string;
        } & (unknown | unknown);
        /** @description A batch's end, as its callback is told of it. */
        EndedBatch: {
            /** Format: uuid */
            batch: string;
            /** @description When the callback was let go; null: it waits. */
            counts: components["schemas"]["Counts"] | null;
            name: string;
            /**
             * @description What became of it; null: it had not ended.
             *
             *     * `waiting` - Waiting
             *     * `held` - Held
             *     * `running` - Running
             *     * `succeeded` - Succeeded
             *     * `succeeded_with_failures` - succeeded with failures
             *     * `failed` - Failed
             *     * `cancelled` - Cancelled
             */
            verdict: components["schemas"]["VerdictEnum"] | components["schemas"]["NullEnum"];
        };
        /**
         * EndedJobs
         * @description Jobs that fit all that is given; nothing given is every job.
         */
        EndedJobs: {
            /**
             * Any Tag
             * @description One of these tags, or several.
             * @default []
             */
            any_tag: string[];
            /**
             * Batch Id
             * @default null
             */
            batch_id: string | null;
            /**
             * Kinds
             * @description One of these kinds.
             * @default []
             */
            kinds: string[];
            /**
             * Outcomes
             * @description Ended so. `failed` is for good: each of them has a dead letter.
             * @default []
             */
            outcomes: components["schemas"]["OutcomesEnum"][];
            /**
             * Tags
             * @description All of these tags.
             * @default []
             */
            tags: string[];
            /**
             * User Id
             * @default null
             */
            user_id: string | null;
        };
        /** Error */
        Error: {
            error: components["schemas"]["ErrorDetail"];
        };
        /** ErrorDetail */
        ErrorDetail: {
            /**
             * Code
             * @description Stable: decide by it, not by the message.
             */
            code: string;
            /**
             * Details
             * @description Figures, by error code.
             * @default null
             */
            details: {
                [key: string]: unknown;
            } | null;
            /**
             * Fields
             * @description What is wrong, by the path of the field.
             * @default null
             */
            fields: {
                [key: string]: string[];
            } | null;
            /** Message */
            message: string;
        };
        Event: {
            /** Format: uuid */
            readonly batch_id: string | null;
            /** Format: date-time */
            readonly created_at: string;
            data: unknown;
            readonly event_type: components["schemas"]["EventType"];
            readonly from_status: components["schemas"]["JobState"] | components["schemas"]["NullEnum"];
            readonly id: number;
            /** Format: uuid */
            readonly job_id: string;
            readonly message: string;
            readonly progress_percent: number | null;
            readonly to_status: components["schemas"]["JobState"] | components["schemas"]["NullEnum"];
            /** Format: uuid */
            readonly user_id: string | null;
        };
        /**
         * @description * `batch.finished` - a batch ended
         *     * `jobs.ended` - jobs ended
         *     * `webhook.test` - test
         * @enum {string}
         */
        EventEnum: "batch.finished" | "jobs.ended" | "webhook.test";
        /** EventResult */
        EventResult: {
            /**
             * Event Id
             * @description As it was sent; null if it was no text.
             */
            event_id: string | null;
            /**
             * Message
             * @description Of rejected, for people.
             * @default null
             */
            message: string | null;
            /**
             * Reason
             * @description Of rejected.
             * @default null
             */
            reason: ("malformed" | "foreign_user" | "too_old" | "from_future") | null;
            /** Status */
            status: components["schemas"]["EventResultStatusEnum"];
        };
        /** @enum {string} */
        EventResultStatusEnum: "accepted" | "duplicate" | "over_limit" | "rejected";
        /** EventsByName */
        EventsByName: {
            /** Events */
            events: components["schemas"]["UsedUnits"][];
        };
        /**
         * @description * `state_change` - State Change
         *     * `progress` - Progress
         *     * `error` - Error
         *     * `scheduling` - Scheduling
         *     * `audit` - Audit
         * @enum {string}
         */
        EventType: "state_change" | "progress" | "error" | "scheduling" | "audit";
        Fire: {
            /** @description Empty: it was due. */
            readonly asked_by: string;
            /** Format: uuid */
            readonly batch_id: string | null;
            /** Format: date-time */
            readonly created_at: string;
            /**
             * Format: date-time
             * @description By the cron text; of a run by hand, when it was asked for.
             */
            readonly due_at: string;
            readonly error_code: string;
            readonly error_message: string;
            /** Format: uuid */
            readonly id: string;
            /** Format: uuid */
            readonly job_id: string | null;
            /** @description Fires before it that were missed; at most 1,000. */
            readonly left_out: number;
            readonly outcome: components["schemas"]["FireOutcomeEnum"];
        };
        /**
         * @description * `submitted` - Submitted
         *     * `refused` - Refused
         *     * `skipped` - Skipped
         * @enum {string}
         */
        FireOutcomeEnum: "submitted" | "refused" | "skipped";
        /** ForecastAnswer */
        ForecastAnswer: {
            /**
             * Accepted
             * @description False: its submission would be refused because of what is rejected.
             */
            accepted: boolean;
            /** @description By batches of their providers all that can go so; the rest live. */
            batch: components["schemas"]["ForecastWay"];
            /**
             * Binding
             * @description The slowest limit first, at most ten.
             */
            binding: components["schemas"]["BindingLimit"][];
            /**
             * Budgets
             * @description Those that would not suffice, if all goes live.
             */
            budgets: components["schemas"]["ShortBudget"][];
            /** Currency */
            currency: string;
            jobs: components["schemas"]["ForecastJobs"];
            /**
             * Learned
             * @description Whether all follow from earlier calls of the project. False: some are only bounds; null: none.
             */
            learned: boolean | null;
            /** @description All of them live. */
            live: components["schemas"]["ForecastWay"];
            /** Missing Prices */
            missing_prices: components["schemas"]["UnpricedModel"][];
            rejected: components["schemas"]["Rejections"];
            /**
             * Tokens
             * @description By unit; empty where no job counts tokens.
             */
            tokens: {
                [key: string]: components["schemas"]["ForecastTokens"];
            };
        };
        /** ForecastJobs */
        ForecastJobs: {
            /**
             * By Batch
             * @description Of the count: that would go by a batch of their provider, as they are.
             */
            by_batch: number;
            /** By Model */
            by_model: components["schemas"]["JobsOfModel"][];
            /**
             * Count
             * @description That would be made.
             */
            count: number;
            /**
             * Duplicates
             * @description Lines whose idempotency_key stands for the same work already.
             */
            duplicates: number;
        };
        /** ForecastTokens */
        ForecastTokens: {
            /**
             * Expected
             * @description As calls of the kind and model have lately had on average; else the most.
             */
            expected: number;
            /**
             * Known
             * @description What is no guess: the input as it is estimated.
             */
            known: number;
            /**
             * Reserved
             * @description What limits keep free for them until their answers tell.
             */
            reserved: number;
        };
        /** ForecastWay */
        ForecastWay: {
            /**
             * Finish At
             * @description When the last would have ended. Null: nobody knows, see `why`.
             */
            finish_at: string | null;
            /**
             * Price
             * @description In millionths of the currency. Null: a price is missing.
             */
            price: number | null;
            /** @description Between which it lies, where calls like these are too few yet. Null: `learned`, or no price. */
            price_range: components["schemas"]["PriceRange"] | null;
            /**
             * Seconds
             * @description Until then.
             */
            seconds: number | null;
            /**
             * Why
             * @description Why nobody knows when; else empty.
             */
            why: string;
        };
        /** @description How a counter stands; figures in the limit's unit. */
        Gauge: {
            /** Format: double */
            available: number;
            blocked_reason: string;
            /** Format: date-time */
            blocked_until: string | null;
            /** Format: double */
            capacity: number;
            counter_id: string;
            key: string;
            /** @description The highest threshold reached, in percent. */
            level: number;
            /**
             * Format: date-time
             * @description Null: one more call has room now.
             */
            next_free_at: string | null;
            /**
             * Format: date-time
             * @description When the cap of this key comes back to what it was; null: it has none that ends.
             */
            override_ends_at: string | null;
            /** Format: double */
            per_second: number | null;
            /** Format: double */
            percent: number;
            /**
             * Format: double
             * @description The part of the cap in use since the provider pushed back.
             */
            pressure: number;
            /** Format: date-time */
            proposed_at: string | null;
            /**
             * Format: double
             * @description What the provider says the cap of this key is; null: nothing is proposed.
             */
            proposed_capacity: number | null;
            shadow_denials: number;
            /**
             * Format: double
             * @description The part of the cap that the ramp after a resume leaves open; 1: all.
             */
            share: number;
            unit: string;
            /** Format: date-time */
            updated_at: string;
            /** Format: double */
            used: number;
        };
        /** GoesOn */
        GoesOn: {
            /** Goes On */
            goes_on: boolean;
            /**
             * Id
             * Format: uuid
             */
            id: string;
        };
        /** @description When a batch stops itself, and whether it has. */
        Guard: {
            /** @description The most frequent error code of them. */
            code: string | null;
            /** @description Of these, when it stopped; null: it did not. */
            ended: number | null;
            /** @description Of those, for good with `code`. */
            failed: number | null;
            /** @description Jobs that decide. */
            first: number;
            /** @description Of the first jobs, that fail for good with one code. */
            percent: number;
            /**
             * @description `trial`: its first jobs are tried, others are held; `passed`: the rest was let go; `stopped`: it is paused, `resume` goes on; `went_on`: somebody said so.
             *
             *     * `trial` - Trial
             *     * `passed` - Passed
             *     * `stopped` - Stopped
             *     * `went_on` - Went On
             */
            state: components["schemas"]["GuardStateEnum"];
        };
        /**
         * @description * `trial` - Trial
         *     * `passed` - Passed
         *     * `stopped` - Stopped
         *     * `went_on` - Went On
         * @enum {string}
         */
        GuardStateEnum: "trial" | "passed" | "stopped" | "went_on";
        /** HandlerInfo */
        HandlerInfo: {
            call_type: components["schemas"]["CallType"];
            /** Description */
            description: string;
            /**
             * Idempotent
             * @description Null: it depends on the payload.
             */
            idempotent: boolean | null;
            /** Kind */
            kind: string;
            /** Payload Schema */
            payload_schema: {
                [key: string]: unknown;
            };
            /** Retry Policy */
            retry_policy: string;
            /** Sends Effect Key */
            sends_effect_key: boolean;
            /**
             * Service
             * @description Null: it depends on the payload.
             */
            service: string | null;
            /** Timeout Seconds */
            timeout_seconds: number;
        };
        /** Handlers */
        Handlers: {
            /** Results */
            results: components["schemas"]["HandlerInfo"][];
        };
        HeardJobs: {
            /** @description One of these, or several. */
            any_tag: string[];
            /** Format: uuid */
            batch_id: string | null;
            kinds: string[];
            outcomes: string[];
            /** @description All of these. */
            tags: string[];
            /** Format: uuid */
            user_id: string | null;
        };
        /** @description Waiting jobs of a batch that share their limits, and why they wait. */
        HeldLane: {
            /** @description How many wait in it. */
            jobs: number;
            /**
             * Format: date-time
             * @description When limits should let the last of them go. Null: nobody knows.
             */
            last_starts_at: string | null;
            /** @description True: the batch has more than 100,000 waiting jobs, and there may be more here. */
            more: boolean;
            /** @description Of the last of them, in the order in which they must end. */
            reasons: components["schemas"]["Reason"][];
            /** @description Whose they are; empty: nobody's, or they share no limit. */
            user: string;
        };
        /** @enum {string} */
        IfPendingEnum: "keep" | "replace";
        /** IngestedUsage */
        IngestedUsage: {
            /**
             * Results
             * @description One an event, in order.
             */
            results: components["schemas"]["EventResult"][];
            /**
             * Usage
             * @description Of each user of whom an event was counted or known.
             */
            usage: components["schemas"]["StandingShown"][];
        };
        /**
         * IngestUsage
         * @description Up to 1,000 events, as an array or below `events`, or one event by itself.
         *
         *     For the OpenAPI document only: each event is read alone.
         */
        IngestUsage: components["schemas"]["UsedUnits"][] | components["schemas"]["EventsByName"] | components["schemas"]["UsedUnits"];
        Job: {
            /** Format: uuid */
            readonly batch: string | null;
            readonly call_type: components["schemas"]["CallType"];
            /**
             * Format: date-time
             * @description By when its producer wants it done.
             */
            readonly complete_by: string | null;
            readonly cost: number;
            /** @description Estimated by unit: input_tokens, output_tokens. Null: the cost says all. */
            costs: {
                [key: string]: number;
            } | null;
            readonly crash_count: number;
            /** Format: date-time */
            readonly created_at: string;
            readonly deferral_count: number;
            /** Format: date-time */
            readonly expires_at: string | null;
            /** Format: date-time */
            readonly finished_at: string | null;
            readonly held: boolean;
            /** Format: uuid */
            readonly id: string;
            readonly idempotency_key: string | null;
            readonly kind: string;
            readonly last_error_code: string;
            readonly last_error_message: string;
            readonly model: string | null;
            /** Format: uuid */
            readonly origin: string | null;
            readonly priority: components["schemas"]["Priority"];
            readonly progress: number;
            readonly progress_message: string;
            readonly retry_count: number;
            readonly retry_policy: string | null;
            /** Format: date-time */
            readonly scheduled_at: string | null;
            readonly service: string;
            /** Format: date-time */
            readonly started_at: string | null;
            state: components["schemas"]["JobState"];
            tags: string[];
            unique_key: string | null;
            /** Format: date-time */
            readonly updated_at: string;
            /** Format: uuid */
            readonly user_id: string | null;
            /** @description batch: it waits for a batch of its provider. Null: it goes live. */
            readonly via: string | null;
        };
        JobDetail: {
            /** @description Attempts begun, crashes apart. */
            attempts: number;
            /** Format: uuid */
            readonly batch: string | null;
            readonly call_type: components["schemas"]["CallType"];
            /**
             * Format: date-time
             * @description By when its producer wants it done.
             */
            readonly complete_by: string | null;
            readonly cost: number;
            /** @description What its calls cost so far, in millionths of `currency`; null: not known, or a price is missing. */
            cost_money: number | null;
            /** @description Estimated by unit: input_tokens, output_tokens. Null: the cost says all. */
            costs: {
                [key: string]: number;
            } | null;
            readonly crash_count: number;
            /** Format: date-time */
            readonly created_at: string;
            /** @description Three letters, such as USD. */
            currency: string;
            /** @description Everything up to here is in this answer: `resume` a socket from it to get what came after. 0 while none is known. */
            cursor: number;
            readonly deferral_count: number;
            /** @description The score by which it is claimed; null once it runs or has ended. */
            effective_priority: number | null;
            /** @description Of a batch's callback; null: it is none. */
            ended_batch: components["schemas"]["EndedBatch"] | null;
            /** @description Of the cursor: a restored database begins a new one. Send it with the cursor. */
            epoch: string;
            /**
             * Format: date-time
             * @description When it should end; null while nothing is known.
             */
            eta: string | null;
            /** Format: date-time */
            readonly expires_at: string | null;
            /** Format: date-time */
            readonly finished_at: string | null;
            readonly held: boolean;
            /** Format: uuid */
            readonly id: string;
            readonly idempotency_key: string | null;
            readonly kind: string;
            readonly last_error_code: string;
            readonly last_error_message: string;
            last_event: components["schemas"]["Event"] | null;
            readonly model: string | null;
            /** Format: uuid */
            readonly origin: string | null;
            payload: unknown;
            /** @description Null: it can go live alone, or nothing tells what it takes. */
            prices: components["schemas"]["WayPrices"] | null;
            readonly priority: components["schemas"]["Priority"];
            readonly progress: number;
            readonly progress_message: string;
            /** @description Null: it never was in one. */
            provider_batch: components["schemas"]["BatchOfJob"] | null;
            /**
             * Format: double
             * @description When asking again is worth while; also sent as Retry-After.
             */
            recheck_after_seconds: number | null;
            result: unknown;
            readonly retry_count: number;
            readonly retry_policy: string | null;
            /** Format: date-time */
            readonly scheduled_at: string | null;
            readonly service: string;
            /** Format: date-time */
            readonly started_at: string | null;
            state: components["schemas"]["JobState"];
            /** @description Of a large result, which is in the result store: where to get it, while `result` is null. Else null. */
            stored_result: components["schemas"]["PlaceOfResult"] | null;
            tags: string[];
            /** @description The values of its payload that come from other jobs; in the payload once it need not wait. */
            takes: components["schemas"]["Take"][];
            unique_key: string | null;
            /** Format: date-time */
            readonly updated_at: string;
            /** Format: uuid */
            readonly user_id: string | null;
            /** @description batch: it waits for a batch of its provider. Null: it goes live. */
            readonly via: string | null;
            /** @description The same in full; null once it runs or has ended. */
            waiting: components["schemas"]["Waiting"] | null;
            /** @description Why it does not run now, in words. */
            waiting_for: string | null;
        };
        /** JobMoved */
        JobMoved: {
            /**
             * Id
             * Format: uuid
             */
            id: string;
            /** @description The state after the action. */
            state: components["schemas"]["JobState"];
        };
        /** JobsOfModel */
        JobsOfModel: {
            /** Jobs */
            jobs: number;
            /** Kind */
            kind: string;
            /** Model */
            model: string | null;
            /** Service */
            service: string;
        };
        /**
         * JobSpec
         * @description A job as its producer asks for it.
         */
        JobSpec: {
            /**
             * After
             * @description Jobs and batches of the project that must end first, by their ids, and jobs by their idempotency keys, also of earlier lines of the same batch; at most 100.
             * @default []
             */
            after: string[];
            /**
             * Complete By
             * @description By when it is wanted: what has time goes by a batch of its provider, at half the price.
             * @default null
             */
            complete_by: string | null;
            /**
             * Cost
             * @description Estimated units or tokens.
             * @default null
             */
            cost: number | null;
            /**
             * Debounce Most Seconds
             * @description At most so long after the first. By default ten times debounce_seconds.
             * @default null
             */
            debounce_most_seconds: number | null;
            /**
             * Debounce Seconds
             * @description Begin when so long no job with the unique_key was submitted; each replaces the one that waits.
             * @default null
             */
            debounce_seconds: number | null;
            /**
             * Delay Seconds
             * @description Not before this many seconds from now.
             * @default null
             */
            delay_seconds: number | null;
            /**
             * Expires At
             * @description Fails if it still waits at this time.
             * @default null
             */
            expires_at: string | null;
            /**
             * Idempotency Key
             * @description Unique in the project: a second job with it is not created.
             * @default null
             */
            idempotency_key: string | null;
            /**
             * If Pending
             * @description When a job with the unique_key has not ended: keep it as it is, or replace its work where it has not begun.
             * @default keep
             */
            if_pending: components["schemas"]["IfPendingEnum"];
            /**
             * Kind
             * @description Which handler carries it out.
             */
            kind: string;
            /**
             * Model
             * @description The service's model, where it has several.
             * @default null
             */
            model: string | null;
            /**
             * @description When one of `after` does not succeed (it is a dead letter, cancelled or expired): cancel it, run it all the same, or hold it until a requeue of that one succeeds.
             * @default cancel
             */
            on_failure: components["schemas"]["OnFailure"];
            /**
             * Payload
             * @description Validated against the handler's schema. A value may come from the result of a job in `after`: `{"$from": {"job": "its id or idempotency key", "path": "data.total"}}`. A text may come from a file: `{"$file": "file-..."}`.
             */
            payload?: {
                [key: string]: unknown;
            };
            /** @default normal */
            priority: components["schemas"]["Priority"];
            /**
             * Retry Policy
             * @description Instead of the handler's own.
             * @default null
             */
            retry_policy: string | null;
            /**
             * Scheduled At
             * @description Not before this time.
             * @default null
             */
            scheduled_at: string | null;
            /**
             * Tags
             * @description To find it by: at most 20, each of at most 100 characters, no commas.
             * @default []
             */
            tags: string[];
            /**
             * Unique In
             * @description Whether jobs of other kinds may have the same unique_key.
             * @default kind
             */
            unique_in: components["schemas"]["UniqueInEnum"];
            /**
             * Unique Key
             * @description While a job with it has not ended, no second one is created.
             * @default null
             */
            unique_key: string | null;
            /**
             * User Id
             * @description The end user on whose behalf the call is made.
             * @default null
             */
            user_id: string | null;
            /**
             * User Label
             * @description What operators call the user of `user_id`; the last one given is shown.
             * @default null
             */
            user_label: string | null;
            /**
             * Via
             * @description live: a call of its own; batch: by a batch of its provider; auto, and the default of what has a complete_by: by batch where the deadline allows it.
             * @default null
             */
            via: ("auto" | "live" | "batch") | null;
        };
        /**
         * JobState
         * @enum {string}
         */
        JobState: "queued" | "rate_limited" | "dispatched" | "in_progress" | "retried" | "completed" | "failed" | "cancelled";
        /** @enum {string} */
        KindEnum: "proceed" | "defer" | "retry" | "reject";
        /** KnownJob */
        KnownJob: {
            /**
             * Batch
             * @description Of that job. Null: it was submitted by itself.
             */
            batch: string | null;
            /**
             * Job
             * Format: uuid
             * @description That stands for its key.
             */
            job: string;
            /**
             * Line
             * @description Counted from 1.
             */
            line: number;
            /**
             * Outcome
             * @description As of the submission of one job.
             */
            outcome: components["schemas"]["KnownJobOutcomeEnum"];
        };
        /** @enum {string} */
        KnownJobOutcomeEnum: "duplicate" | "pending" | "replaced";
        /**
         * LetterFilter
         * @description Open dead letters that fit everything given; with nothing given, all of the project's.
         */
        LetterFilter: {
            /**
             * Batch Id
             * Format: uuid
             */
            batch_id?: string;
            /**
             * Created From
             * Format: date-time
             */
            created_from?: string;
            /**
             * Created Until
             * Format: date-time
             */
            created_until?: string;
            /** Error Code */
            error_code?: string;
            /** Fingerprint */
            fingerprint?: string;
            /** Kind */
            kind?: string;
            /** Service */
            service?: string;
        };
        /** @description A limit, with the overrides and counters that its caller may see: `context["seen"]`, by limit. */
        Limit: {
            readonly algorithm: components["schemas"]["AlgorithmEnum"];
            readonly call_type: components["schemas"]["LimitCallTypeEnum"];
            /**
             * Format: double
             * @description In the limit's unit: a window's cap, a bucket's burst, or calls in flight. 0 rejects every call.
             */
            readonly capacity: number;
            /** @description A queue behind the limit that takes longer than this to clear is a warning. */
            readonly clears_late_seconds: number;
            /** @description Up to 20, the fullest first. */
            readonly counters: components["schemas"]["Gauge"][];
            /** @description Of input tokens: those read from a cache count, too. Off for Anthropic, where they are free. */
            readonly counts_cached: boolean;
            readonly enabled: boolean;
            /** @description Calls proceed while the limiter's database is out of reach. Off: they are deferred. */
            readonly fail_open: boolean;
            /**
             * Format: double
             * @description Calls this close to a reset count before and after it: clocks differ.
             */
            readonly guard_seconds: number;
            /**
             * Format: double
             * @description Left unused, for programs that share the quota without asking here.
             */
            readonly headroom_percent: number;
            readonly id: number;
            /** @description Only calls in flight of jobs of this kind. Empty: of every kind. */
            readonly kind: string;
            /** @description A cap that the provider states is taken over at once. Off: it waits for an operator. */
            readonly learns_caps: boolean;
            /**
             * Format: double
             * @description A call in flight frees its place by itself after so long. Longer than the longest call.
             */
            readonly lease_seconds: number;
            /** @description Only calls of this model. Empty: of every model. */
            readonly model: string;
            /** @description Shown wherever the limit binds. */
            readonly name: string;
            /** @description Where the figure comes from; who confirmed it. */
            readonly note: string;
            readonly notice_percent: number;
            readonly overrides: components["schemas"]["Override"][];
            /** @description The provider counts each model by itself. */
            readonly per_model: boolean;
            /** @description Only calls of this project's jobs. Empty: of every project's. */
            readonly project: string;
            /**
             * Format: date-time
             * @description When a refusal last asked for it; null once somebody has changed it.
             */
            readonly proposed_at: string | null;
            /** @description What refusals show that the provider counts; empty once somebody has changed the limit. */
            readonly proposed_reserves: string;
            /**
             * Format: double
             * @description What the provider allows in a window. A bucket is held against it: burst + window x rate.
             */
            readonly provider_quota: number | null;
            /**
             * Format: double
             * @description Of a bucket.
             */
            readonly refill_per_second: number | null;
            /**
             * @description Of tokens and output tokens, what the provider counts of a call: what it uses, so that the rest of its estimate comes back when it ends, or all of its max_output_tokens from the start.
             *
             *     * `used` - what calls use
             *     * `max` - all that they may bring
             */
            readonly reserves: components["schemas"]["ReservesEnum"];
            /** @description Time zone at whose midnight a daily quota is reset: America/Los_Angeles. */
            readonly reset_zone: string;
            readonly scope: components["schemas"]["LimitScopeEnum"];
            /** @description The external API, as its handlers name it: google-sheets. Empty: calls in flight to any. */
            readonly service: string;
            /** @description Counts and reports what it would refuse, but blocks nothing. Only a provider's refusal holds calls back for a while. */
            readonly shadow: boolean;
            /**
             * Format: double
             * @description How much later than others a call may arrive. Empty: half a second for a minute.
             */
            readonly slack_seconds: number | null;
            readonly unit: components["schemas"]["LimitUnitEnum"];
            /** Format: date-time */
            readonly updated_at: string;
            readonly warning_percent: number;
            /**
             * Format: double
             * @description Of a window.
             */
            readonly window_seconds: number | null;
        };
        /**
         * LimitCallType
         * @enum {string}
         */
        LimitCallType: "read" | "write" | "any";
        /**
         * @description * `read` - Read
         *     * `write` - Write
         *     * `any` - Any
         * @enum {string}
         */
        LimitCallTypeEnum: "read" | "write" | "any";
        /**
         * LimitScope
         * @enum {string}
         */
        LimitScope: "global" | "project" | "user" | "project_user";
        /**
         * @description * `global` - everyone together
         *     * `project` - Project
         *     * `user` - User
         *     * `project_user` - user of a project
         * @enum {string}
         */
        LimitScopeEnum: "global" | "project" | "user" | "project_user";
        /**
         * @description * `requests` - Requests
         *     * `tokens` - Tokens
         *     * `input_tokens` - input tokens
         *     * `output_tokens` - output tokens
         *     * `enqueued_tokens` - tokens enqueued at the provider
         *     * `in_flight` - calls in flight
         * @enum {string}
         */
        LimitUnitEnum: "requests" | "tokens" | "input_tokens" | "output_tokens" | "enqueued_tokens" | "in_flight";
        /**
         * Missed
         * @description How a schedule makes up for fires that nobody made in time.
         * @enum {string}
         */
        Missed: "skip" | "once" | "all";
        /**
         * @description * `skip` - are left out
         *     * `once` - are made up for by one
         *     * `all` - are made up for one by one
         * @enum {string}
         */
        MissedEnum: "skip" | "once" | "all";
        ModelRoute: {
            /** Format: date-time */
            readonly created_at: string;
            /** @description A credential, or a pool of credentials, that the project may use. */
            readonly credential: string;
            /** Format: uuid */
            readonly id: string;
            /**
             * Model
             * @description The name in the request, such as gpt-4o-mini; with * at its end every name that begins so.
             */
            readonly pattern: string;
            /** @description The route with the lowest place that fits is taken. */
            readonly place: number;
            /**
             * @description Whose protocol the server speaks.
             *
             *     * `openai` - OpenAI, or a compatible server
             *     * `anthropic` - Anthropic
             */
            readonly provider: components["schemas"]["ProviderEnum"];
            /** @description By which limits it goes. Empty: those of the provider's name. */
            readonly service: string;
        };
        /** Moved */
        Moved: {
            /** Moved */
            moved: string[];
            /**
             * Unmoved
             * @description Unknown in this project, or in a state this does not apply to.
             */
            unmoved: string[];
        };
        /**
         * NewAllowance
         * @description The use that each user of the project has for a calendar month.
         */
        NewAllowance: {
            /**
             * @description Whether reservations beyond the quota are refused or recorded.
             * @default strict
             */
            policy: components["schemas"]["AllowancePolicy"];
            /**
             * Quota
             * @description In the unit, for each user and month.
             */
            quota: number;
            /**
             * Reason
             * @description For the audit trail.
             * @default
             */
            reason: string;
            /**
             * Reservation Seconds
             * @description A reservation that nobody confirmed is given back after so long.
             * @default 300
             */
            reservation_seconds: number;
            /**
             * Time Zone
             * @description Where a month begins at midnight.
             * @default UTC
             */
            time_zone: string;
            /** @default requests */
            unit: components["schemas"]["AllowanceUnit"];
        };
        /**
         * NewBudget
         * @description Whose money it is, and how much; amounts in millionths of the currency.
         */
        NewBudget: {
            /** Amount */
            amount: number;
            /**
             * Batch Id
             * @description Of scope `batch`: which.
             * @default null
             */
            batch_id: string | null;
            /** Name */
            name: string;
            /**
             * Note
             * @default
             */
            note: string;
            /** @default month */
            period: components["schemas"]["Period"];
            /** @default wait */
            policy: components["schemas"]["Policy"];
            /**
             * Reason
             * @description For the audit trail.
             * @default
             */
            reason: string;
            /** @default project */
            scope: components["schemas"]["BudgetScope"];
            /**
             * Time Zone
             * @description Where a day or month begins at midnight.
             * @default UTC
             */
            time_zone: string;
            /**
             * User Id
             * @description Of scope `user`: who.
             * @default null
             */
            user_id: string | null;
        };
        /** NewLimit */
        NewLimit: {
            /** @default sliding_window */
            algorithm: components["schemas"]["Algorithm"];
            /** @default any */
            call_type: components["schemas"]["LimitCallType"];
            /**
             * Capacity
             * @default null
             */
            capacity: number | null;
            /**
             * Clears Late Seconds
             * @default 3600
             */
            clears_late_seconds: number;
            /**
             * Counts Cached
             * @description Of input tokens: those read from a cache count, too.
             * @default true
             */
            counts_cached: boolean;
            /**
             * Enabled
             * @default true
             */
            enabled: boolean;
            /**
             * Fail Open
             * @description Calls proceed while the limiter's database is out of reach.
             * @default false
             */
            fail_open: boolean;
            /**
             * Guard Seconds
             * @default 0.5
             */
            guard_seconds: number;
            /**
             * Headroom Percent
             * @default 0
             */
            headroom_percent: number;
            /**
             * Kind
             * @description Only calls in flight of jobs of this kind.
             * @default
             */
            kind: string;
            /**
             * Learns Caps
             * @description A cap that the provider states is taken over at once.
             * @default false
             */
            learns_caps: boolean;
            /**
             * Lease Seconds
             * @default 600
             */
            lease_seconds: number;
            /**
             * Model
             * @description Only calls of this model. Empty: of every model.
             * @default
             */
            model: string;
            /** Name */
            name: string;
            /**
             * Note
             * @default
             */
            note: string;
            /**
             * Notice Percent
             * @default 60
             */
            notice_percent: number;
            /**
             * Per Model
             * @description Each model has counters of its own.
             * @default false
             */
            per_model: boolean;
            /**
             * Project
             * @description Only calls of this project's jobs.
             * @default
             */
            project: string;
            /**
             * Provider Quota
             * @description What the provider allows in a window.
             * @default null
             */
            provider_quota: number | null;
            /**
             * Reason
             * @description For the audit trail.
             * @default
             */
            reason: string;
            /**
             * Refill Per Second
             * @default null
             */
            refill_per_second: number | null;
            /**
             * @description Of tokens and output tokens: whether the provider counts what a call uses, or all it may bring.
             * @default used
             */
            reserves: components["schemas"]["Reserves"];
            /**
             * Reset Zone
             * @default
             */
            reset_zone: string;
            /** @default project */
            scope: components["schemas"]["LimitScope"];
            /**
             * Service
             * @description Empty: calls in flight to any, of a project or a kind.
             * @default
             */
            service: string;
            /**
             * Shadow
             * @description Counts what it would refuse, but blocks nothing.
             * @default false
             */
            shadow: boolean;
            /**
             * Slack Seconds
             * @default null
             */
            slack_seconds: number | null;
            /** @default requests */
            unit: components["schemas"]["Unit"];
            /**
             * Warning Percent
             * @default 80
             */
            warning_percent: number;
            /**
             * Window Seconds
             * @default 60
             */
            window_seconds: number | null;
        };
        /** NewModelRoute */
        NewModelRoute: {
            /**
             * Credential
             * @description A credential, or a pool of credentials, that the project may use.
             */
            credential: string;
            /**
             * Pattern
             * @description A model's name; with * at its end every name that begins so.
             */
            pattern: string;
            /**
             * Place
             * @description The route with the lowest place that fits is taken.
             * @default 0
             */
            place: number;
            /**
             * @description Whose protocol the server speaks.
             * @default openai
             */
            provider: components["schemas"]["Protocol"];
            /**
             * Reason
             * @default
             */
            reason: string;
            /**
             * Service
             * @description By which limits it goes. Empty: those of the provider's name.
             * @default
             */
            service: string;
        };
        /** NewSchedule */
        NewSchedule: {
            /**
             * Cron
             * @description Minute, hour, day of the month, month, day of the week, read as Debian's cron reads them.
             * @example 30 2 * * MON-FRI
             */
            cron: string;
            /**
             * Ends At
             * @description It does not fire later.
             * @default null
             */
            ends_at: string | null;
            /**
             * Jitter Seconds
             * @description Each fire is late by less than that.
             * @default 0
             */
            jitter_seconds: number;
            /**
             * Jobs
             * @description Each as in the submission of one job, without times of its own and idempotency_key. One is submitted as a job, several as a batch of the schedule's name.
             */
            jobs: {
                [key: string]: unknown;
            }[];
            /**
             * @description What becomes of fires that are more than a minute late, because no worker ran or the project was paused: skip, once (one for all of them) or all (each, the newest `most_missed`).
             * @default once
             */
            missed: components["schemas"]["Missed"];
            /**
             * Most Missed
             * @default 10
             */
            most_missed: number;
            /**
             * Name
             * @description Of its own in the project.
             */
            name: string;
            /**
             * Reason
             * @default
             */
            reason: string;
            /**
             * Time Zone
             * @description Whose clock it goes by, as `Europe/Berlin`.
             * @default UTC
             */
            time_zone: string;
        };
        /** NewSecret */
        NewSecret: {
            /**
             * Overlap Seconds
             * @description How long messages are signed with the former secret, too. 0: it signs nothing from now on.
             * @default 86400
             */
            overlap_seconds: number;
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /** NewWebhook */
        NewWebhook: {
            /**
             * Batches
             * @description It is told that batches ended.
             * @default true
             */
            batches: boolean;
            /**
             * Enabled
             * @default true
             */
            enabled: boolean;
            /**
             * @description Which ended jobs it is told of. Null: of none.
             * @default null
             */
            jobs: components["schemas"]["EndedJobs"] | null;
            /**
             * Most Jobs
             * @description Ended jobs of one message, at most.
             * @default 100
             */
            most_jobs: number;
            /**
             * Reason
             * @default
             */
            reason: string;
            /**
             * Url
             * @description It takes POSTs of JSON.
             */
            url: string;
        };
        /**
         * NewWindow
         * @description Once, or every week.
         */
        NewWindow: {
            /**
             * Begins At
             * @description Once: from then.
             * @default null
             */
            begins_at: string | null;
            /**
             * Ends At
             * @description Once: until then.
             * @default null
             */
            ends_at: string | null;
            /**
             * Reason
             * @description Shown wherever work waits for it.
             * @default
             */
            reason: string;
            /**
             * Since
             * @description Weekly: what the clock shows when it begins.
             * @default null
             */
            since: string | null;
            /**
             * Time Zone
             * @description Weekly: whose clock, as `Europe/Berlin`.
             * @default UTC
             */
            time_zone: string;
            /**
             * Until
             * @description Weekly: it ends at the next such time. The same as `since`: a whole day.
             * @default null
             */
            until: string | null;
            /**
             * Weekdays
             * @description Weekly: the days on which it begins; 0 is Monday.
             * @default []
             */
            weekdays: number[];
        };
        NullEnum: null;
        /**
         * ObjectiveInfo
         * @description An objective as it stands now.
         */
        ObjectiveInfo: {
            /** Aim */
            aim: components["schemas"]["AimEnum"];
            /**
             * Attained Percent
             * @description Null: there were no jobs.
             */
            attained_percent: number | null;
            /**
             * Budget Left Percent
             * @description Of the misses it allows; below 0: it is broken.
             */
            budget_left_percent: number | null;
            /** Burn */
            burn: components["schemas"]["Burn"][];
            /** Id */
            id: number;
            /**
             * Jobs
             * @description Whose deadlines passed in the window.
             */
            jobs: number;
            /**
             * Kind
             * @description Empty: jobs of every kind.
             */
            kind: string;
            /** Missed */
            missed: number;
            /** Name */
            name: string;
            /** Note */
            note: string;
            /** Percent */
            percent: number;
            /** Service */
            service: string;
            /** Window Days */
            window_days: number;
            /** Within Seconds */
            within_seconds: number | null;
            /** Words */
            words: string;
        };
        /** Objectives */
        Objectives: {
            /** Next */
            next: string | null;
            /**
             * Next Cursor
             * @description Null on the last page.
             */
            next_cursor: string | null;
            /** Objectives */
            objectives: components["schemas"]["ObjectiveInfo"][];
        };
        /**
         * OnFailure
         * @description How a waiting job or batch goes on if a job or batch that it waits for does not succeed.
         * @enum {string}
         */
        OnFailure: "cancel" | "run" | "hold";
        /**
         * @description * `cancel` - it is cancelled
         *     * `run` - it runs all the same
         *     * `hold` - it waits until a requeue of that one succeeds
         * @enum {string}
         */
        OnFailureEnum: "cancel" | "run" | "hold";
        Operation: {
            readonly action: string;
            /** @description Null: all went at once. */
            readonly canary: components["schemas"]["Canary"] | null;
            /** Format: date-time */
            readonly created_at: string;
            /** @description Rows acted on. */
            readonly done: number;
            readonly error: string;
            /** Format: date-time */
            readonly finished_at: string | null;
            /** Format: uuid */
            readonly id: string;
            readonly reason: string;
            /** @description Rows left alone: changed meanwhile. */
            readonly skipped: number;
            readonly status: components["schemas"]["OperationStatus"];
            /** @description Rows that matched when it began. */
            readonly total: number;
            /** Format: date-time */
            readonly updated_at: string;
        };
        /**
         * @description * `running` - Running
         *     * `done` - Done
         *     * `cancelled` - Cancelled
         *     * `failed` - Failed
         * @enum {string}
         */
        OperationStatus: "running" | "done" | "cancelled" | "failed";
        /** @enum {string} */
        OutcomesEnum: "completed" | "failed" | "cancelled";
        Override: {
            /** Format: double */
            capacity: number;
            /**
             * Format: date-time
             * @description From then on the key has again what it had. Empty: it stays.
             */
            ends_at?: string | null;
            /** @description As the counter shows it: project:acme, or project:acme/user:… */
            key: string;
            note?: string;
            /** Format: double */
            refill_per_second?: number | null;
        };
        PaginatedAllowanceList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Allowance"][];
        };
        PaginatedAuditEntryList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["AuditEntry"][];
        };
        PaginatedBatchList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Batch"][];
        };
        PaginatedBudgetList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Budget"][];
        };
        PaginatedDeadLetterList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["DeadLetter"][];
        };
        PaginatedEventList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Event"][];
        };
        PaginatedFireList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Fire"][];
        };
        PaginatedGaugeList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Gauge"][];
        };
        PaginatedJobList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Job"][];
        };
        PaginatedLimitList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Limit"][];
        };
        PaginatedModelRouteList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["ModelRoute"][];
        };
        PaginatedOperationList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Operation"][];
        };
        PaginatedProviderBatchList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["ProviderBatch"][];
        };
        PaginatedResultList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Result"][];
        };
        PaginatedScheduleList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Schedule"][];
        };
        PaginatedUsageEventList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["UsageEvent"][];
        };
        PaginatedUserMonthList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["UserMonth"][];
        };
        PaginatedWebhookDeliveryList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["WebhookDelivery"][];
        };
        PaginatedWebhookJobList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["WebhookJob"][];
        };
        PaginatedWebhookList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Webhook"][];
        };
        PaginatedWindowList: {
            /**
             * Format: uri
             * @example https://queue.example.org/api/v1/…/?cursor=MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next: string | null;
            /**
             * @description Null on the last page.
             * @example MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx
             */
            next_cursor: string | null;
            results: components["schemas"]["Window"][];
        };
        /**
         * ChangeAllowance
         * @description Changes to an allowance. A field that is left out stays as it is.
         */
        PatchedChangeAllowance: {
            /** @description Whether reservations beyond the quota are refused or recorded. */
            policy?: components["schemas"]["AllowancePolicy"];
            /** Quota */
            quota?: number;
            /**
             * Reason
             * @description For the audit trail.
             */
            reason?: string;
            /**
             * Reservation Seconds
             * @description A reservation that nobody confirmed is given back after so long.
             */
            reservation_seconds?: number;
            /**
             * Time Zone
             * @description Where a month begins at midnight.
             */
            time_zone?: string;
            unit?: components["schemas"]["AllowanceUnit"];
        };
        /**
         * ChangeBudget
         * @description Changes to a budget. A field that is left out stays as it is.
         *
         *     Scope, user, batch, period and time zone cannot be changed.
         */
        PatchedChangeBudget: {
            /** Amount */
            amount?: number;
            /**
             * Batch Id
             * @description Of scope `batch`: which.
             */
            batch_id?: string | null;
            /** Name */
            name?: string;
            /** Note */
            note?: string;
            period?: components["schemas"]["Period"];
            policy?: components["schemas"]["Policy"];
            /**
             * Reason
             * @description For the audit trail.
             */
            reason?: string;
            scope?: components["schemas"]["BudgetScope"];
            /**
             * Time Zone
             * @description Where a day or month begins at midnight.
             */
            time_zone?: string;
            /**
             * User Id
             * @description Of scope `user`: who.
             */
            user_id?: string | null;
        };
        /**
         * ChangeLimit
         * @description Changes to a limit. A field that is left out stays as it is.
         */
        PatchedChangeLimit: {
            algorithm?: components["schemas"]["Algorithm"];
            call_type?: components["schemas"]["LimitCallType"];
            /** Capacity */
            capacity?: number | null;
            /** Clears Late Seconds */
            clears_late_seconds?: number;
            /**
             * Counts Cached
             * @description Of input tokens: those read from a cache count, too.
             */
            counts_cached?: boolean;
            /** Enabled */
            enabled?: boolean;
            /**
             * Fail Open
             * @description Calls proceed while the limiter's database is out of reach.
             */
            fail_open?: boolean;
            /** Guard Seconds */
            guard_seconds?: number;
            /** Headroom Percent */
            headroom_percent?: number;
            /**
             * Kind
             * @description Only calls in flight of jobs of this kind.
             */
            kind?: string;
            /**
             * Learns Caps
             * @description A cap that the provider states is taken over at once.
             */
            learns_caps?: boolean;
            /** Lease Seconds */
            lease_seconds?: number;
            /**
             * Model
             * @description Only calls of this model. Empty: of every model.
             */
            model?: string;
            /** Name */
            name?: string;
            /** Note */
            note?: string;
            /** Notice Percent */
            notice_percent?: number;
            /**
             * Per Model
             * @description Each model has counters of its own.
             */
            per_model?: boolean;
            /**
             * Project
             * @description Only calls of this project's jobs.
             */
            project?: string;
            /**
             * Provider Quota
             * @description What the provider allows in a window.
             */
            provider_quota?: number | null;
            /**
             * Reason
             * @description For the audit trail.
             */
            reason?: string;
            /** Refill Per Second */
            refill_per_second?: number | null;
            /** @description Of tokens and output tokens: whether the provider counts what a call uses, or all it may bring. */
            reserves?: components["schemas"]["Reserves"];
            /** Reset Zone */
            reset_zone?: string;
            scope?: components["schemas"]["LimitScope"];
            /**
             * Seen At
             * @description The `updated_at` of what you looked at: refused if somebody changed it since.
             */
            seen_at?: string | null;
            /** Service */
            service?: string;
            /**
             * Shadow
             * @description Counts what it would refuse, but blocks nothing.
             */
            shadow?: boolean;
            /** Slack Seconds */
            slack_seconds?: number | null;
            unit?: components["schemas"]["Unit"];
            /** Warning Percent */
            warning_percent?: number;
            /** Window Seconds */
            window_seconds?: number | null;
        };
        /**
         * ChangeModelRoute
         * @description Fields that are left out stay as they are.
         */
        PatchedChangeModelRoute: {
            /** Credential */
            credential?: string;
            /** Pattern */
            pattern?: string;
            /**
             * Place
             * @description The route with the lowest place that fits is taken.
             */
            place?: number;
            /** @description Whose protocol the server speaks. */
            provider?: components["schemas"]["Protocol"];
            /** Reason */
            reason?: string;
            /**
             * Service
             * @description By which limits it goes. Empty: those of the provider's name.
             */
            service?: string;
        };
        /**
         * ChangeSchedule
         * @description Fields that are left out stay as they are.
         */
        PatchedChangeSchedule: {
            /**
             * Cron
             * @description Minute, hour, day of the month, month, day of the week, read as Debian's cron reads them.
             * @example 30 2 * * MON-FRI
             */
            cron?: string;
            /**
             * Ends At
             * @description It does not fire later.
             */
            ends_at?: string | null;
            /**
             * Jitter Seconds
             * @description Each fire is late by less than that.
             */
            jitter_seconds?: number;
            /**
             * Jobs
             * @description Each as in the submission of one job, without times of its own and idempotency_key. One is submitted as a job, several as a batch of the schedule's name.
             */
            jobs?: {
                [key: string]: unknown;
            }[];
            /** @description What becomes of fires that are more than a minute late, because no worker ran or the project was paused: skip, once (one for all of them) or all (each, the newest `most_missed`). */
            missed?: components["schemas"]["Missed"];
            /** Most Missed */
            most_missed?: number;
            /**
             * Name
             * @description Of its own in the project.
             */
            name?: string;
            /** Reason */
            reason?: string;
            /**
             * Time Zone
             * @description Whose clock it goes by, as `Europe/Berlin`.
             */
            time_zone?: string;
        };
        /**
         * ChangeWebhook
         * @description Fields that are left out stay as they are.
         */
        PatchedChangeWebhook: {
            /**
             * Batches
             * @description It is told that batches ended.
             */
            batches?: boolean;
            /** Enabled */
            enabled?: boolean;
            /** @description Which ended jobs it is told of. Null: of none. */
            jobs?: components["schemas"]["EndedJobs"] | null;
            /**
             * Most Jobs
             * @description Ended jobs of one message, at most.
             */
            most_jobs?: number;
            /** Reason */
            reason?: string;
            /**
             * Url
             * @description It takes POSTs of JSON.
             */
            url?: string;
        };
        /**
         * ChangeWindow
         * @description Fields that are left out stay as they are.
         */
        PatchedChangeWindow: {
            /**
             * Begins At
             * @description Once: from then.
             */
            begins_at?: string | null;
            /**
             * Ends At
             * @description Once: until then.
             */
            ends_at?: string | null;
            /**
             * Reason
             * @description Shown wherever work waits for it.
             */
            reason?: string;
            /**
             * Since
             * @description Weekly: what the clock shows when it begins.
             */
            since?: string | null;
            /**
             * Time Zone
             * @description Weekly: whose clock, as `Europe/Berlin`.
             */
            time_zone?: string;
            /**
             * Until
             * @description Weekly: it ends at the next such time. The same as `since`: a whole day.
             */
            until?: string | null;
            /**
             * Weekdays
             * @description Weekly: the days on which it begins; 0 is Monday.
             */
            weekdays?: number[];
        };
        /** Paused */
        Paused: {
            /**
             * Changed Jobs
             * @description Jobs that were held or released by this call.
             */
            changed_jobs: number;
            /** Paused */
            paused: boolean;
        };
        /**
         * Period
         * @enum {string}
         */
        Period: "day" | "month" | "total";
        /**
         * @description * `day` - a day
         *     * `month` - a month
         *     * `total` - in all
         * @enum {string}
         */
        PeriodEnum: "day" | "month" | "total";
        /** @description Where a result is that is too large to be part of this answer. */
        PlaceOfResult: {
            /** @description Of the result, as JSON. */
            bytes: number;
            /** @description Gives the result alone. */
            url: string;
        };
        /**
         * Policy
         * @enum {string}
         */
        Policy: "wait" | "reject";
        /** PriceRange */
        PriceRange: {
            /**
             * At Least
             * @description With no output of the calls of whose like too little is known.
             */
            at_least: number;
            /**
             * At Most
             * @description With all that they can bring. Null: nothing bounds the output of some.
             */
            at_most: number | null;
        };
        /**
         * Priority
         * @enum {string}
         */
        Priority: "urgent" | "normal" | "low";
        /** ProjectInfo */
        ProjectInfo: {
            /** Counts */
            counts: {
                [key: string]: number;
            };
            /**
             * Encrypted
             * @description Payloads and results are encrypted in the database.
             */
            encrypted: boolean;
            /** Id */
            id: string;
            /**
             * Max Waiting Jobs
             * @description Submissions beyond this many unfinished jobs are refused.
             */
            max_waiting_jobs: number;
            /** Name */
            name: string;
            /** Paused */
            paused: boolean;
            /**
             * Scheduled
             * @description Of those queued, how many wait for their time; at most 100,000.
             */
            scheduled: number;
            /**
             * Scheduled Until
             * @description When the last of them may begin; null: none waits for its time.
             */
            scheduled_until: string | null;
            /** Unfinished */
            unfinished: number;
        };
        /**
         * Protocol
         * @enum {string}
         */
        Protocol: "openai" | "anthropic";
        ProviderBatch: {
            readonly cancel_reason: string;
            /** Format: date-time */
            readonly cancel_requested_at: string | null;
            /**
             * Format: date-time
             * @description When all of its lines were settled.
             */
            readonly closed_at: string | null;
            /**
             * Format: date-time
             * @description The earliest deadline of its jobs.
             */
            readonly complete_by: string;
            /** Format: date-time */
            readonly created_at: string;
            /** @description Lines that the provider has worked through. */
            readonly done: number;
            /** @description Answers that nobody waited for any more. */
            readonly dropped: number;
            /**
             * Format: date-time
             * @description When the provider had ended it.
             */
            readonly ended_at: string | null;
            readonly enqueued_tokens: number;
            readonly error: string;
            /** @description Lines that the provider answered with an error. */
            readonly failed: number;
            /** @description Lines whose job goes again without an attempt. */
            readonly handed_back: number;
            /** Format: uuid */
            readonly id: string;
            readonly kind: string;
            readonly lines: number;
            /**
             * Format: date-time
             * @description When what is not done must go live.
             */
            readonly live_at: string;
            readonly model: string;
            /** Provider's id */
            readonly provider_id: string;
            /** As the provider says */
            readonly provider_state: string;
            readonly service: string;
            readonly state: components["schemas"]["ProviderBatchState"];
            /** Format: date-time */
            readonly submitted_at: string | null;
            /** @description Lines whose job was completed by it. */
            readonly succeeded: number;
            /** @description Lines that the provider closed without an answer, or that were not waited for: they may be billed. */
            readonly unanswered: number;
        };
        /**
         * @description * `creating` - being handed over
         *     * `open` - at the provider
         *     * `collecting` - results are being read
         *     * `completed` - Completed
         *     * `expired` - expired at the provider
         *     * `cancelled` - Cancelled
         *     * `failed` - refused by the provider
         * @enum {string}
         */
        ProviderBatchState: "creating" | "open" | "collecting" | "completed" | "expired" | "cancelled" | "failed";
        /**
         * @description * `openai` - OpenAI, or a compatible server
         *     * `anthropic` - Anthropic
         * @enum {string}
         */
        ProviderEnum: "openai" | "anthropic";
        /** @description One thing that keeps a job from running. */
        Reason: {
            /**
             * Format: double
             * @description In the limit's unit.
             */
            available: number | null;
            /** @description Who gave it its time by hand: user:7. */
            by: string | null;
            /**
             * Format: double
             * @description In the limit's unit.
             */
            capacity: number | null;
            code: components["schemas"]["CodeEnum"];
            /**
             * Format: date-time
             * @description When it ends by itself. Null: nobody knows, or somebody must act.
             */
            free_at: string | null;
            /** @description Whom the limit counts: project:acme. */
            key: string | null;
            /** @description The limit's name, for `limit` and `cooled_down`. */
            limit: string | null;
            /**
             * Format: double
             * @description In the limit's unit.
             */
            needed: number | null;
            /** @description For people; may change. */
            text: string;
            /** @description What it counts: requests, tokens or in_flight. */
            unit: string | null;
        };
        /** RefusedLine */
        RefusedLine: {
            /** Code */
            code: string;
            /** Fields */
            fields: {
                [key: string]: string[];
            };
            /**
             * Line
             * @description Counted from 1.
             */
            line: number;
            /** Message */
            message: string;
        };
        /** Rejections */
        Rejections: {
            /** Count */
            count: number;
            /**
             * Jobs
             * @description The first 100.
             */
            jobs: components["schemas"]["RefusedLine"][];
        };
        /** Removed */
        Removed: {
            /** Removed */
            removed: boolean;
        };
        /** Requeue */
        Requeue: {
            /**
             * Note
             * @default
             */
            note: string;
            /**
             * Payload
             * @description Instead of the failed job's.
             * @default null
             */
            payload: {
                [key: string]: unknown;
            } | null;
            /** @default null */
            priority: components["schemas"]["Priority"] | null;
        };
        /** RequeueBatch */
        RequeueBatch: {
            /**
             * Canary
             * @description So many first. The rest follows once all their jobs have ended. Null: all at once.
             * @default null
             */
            canary: number | null;
            /**
             * Canary Percent
             * @description The rest does not follow where so many percent of them failed with one code.
             * @default 20
             */
            canary_percent: number;
            /**
             * Note
             * @default
             */
            note: string;
            /** @default null */
            priority: components["schemas"]["Priority"] | null;
            /**
             * Spread Seconds
             * @description Spread the starts over this.
             * @default 0
             */
            spread_seconds: number;
        };
        /** Requeued */
        Requeued: {
            /**
             * Moved
             * @description Dead letter -> its new job.
             */
            moved: {
                [key: string]: string;
            };
            /** Unmoved */
            unmoved: string[];
        };
        /** RequeuedOne */
        RequeuedOne: {
            /**
             * Id
             * Format: uuid
             * @description The new job.
             */
            id: string;
            /**
             * Origin
             * Format: uuid
             * @description The failed job.
             */
            origin: string;
            /** Url */
            url: string;
        };
        /** RequeueMany */
        RequeueMany: {
            /**
             * Canary
             * @description So many first. The rest follows once all their jobs have ended. Null: all at once.
             * @default null
             */
            canary: number | null;
            /**
             * Canary Percent
             * @description The rest does not follow where so many percent of them failed with one code.
             * @default 20
             */
            canary_percent: number;
            filter?: components["schemas"]["LetterFilter"];
            /**
             * Ids
             * @description At most 10,000.
             */
            ids?: string[];
            /**
             * Note
             * @default
             */
            note: string;
            /**
             * Payload
             * @description Instead of each failed job's.
             * @default null
             */
            payload: {
                [key: string]: unknown;
            } | null;
            /** @default null */
            priority: components["schemas"]["Priority"] | null;
            /**
             * Spread Seconds
             * @description Spread the starts over this.
             * @default 0
             */
            spread_seconds: number;
        } & ({
            canary?: null;
        } | unknown);
        /** Reschedule */
        Reschedule: {
            /**
             * Delay Seconds
             * @description From now. 0: run as soon as possible.
             */
            delay_seconds: number;
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /** RescheduleMany */
        RescheduleMany: {
            /**
             * Delay Seconds
             * @description From now. 0: run as soon as possible.
             */
            delay_seconds: number;
            /**
             * Ids
             * @description At most 10,000.
             */
            ids: string[];
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /** ReservedUnits */
        ReservedUnits: {
            /** Amount */
            amount: number;
            /**
             * Expires At
             * Format: date-time
             * @description Given back then, unless an event names it before.
             */
            expires_at: string;
            /**
             * Month
             * @description `YYYY-MM`: the month that it counts against, whenever it is used.
             */
            month: string;
            /**
             * Over Limit
             * @description Granted beyond the quota, because the policy is to record overage.
             */
            over_limit: boolean;
            /**
             * Remaining
             * @description What the user has left after it.
             */
            remaining: number;
            /**
             * Reservation Id
             * Format: uuid
             */
            reservation_id: string;
            /**
             * Resets At
             * Format: date-time
             * @description When the next month begins.
             */
            resets_at: string;
            /**
             * User Id
             * Format: uuid
             */
            user_id: string;
        };
        /**
         * Reserves
         * @enum {string}
         */
        Reserves: "used" | "max";
        /**
         * @description * `used` - what calls use
         *     * `max` - all that they may bring
         * @enum {string}
         */
        ReservesEnum: "used" | "max";
        /**
         * ReserveUsage
         * @description Units of a user's allowance to hold before a call.
         */
        ReserveUsage: {
            /**
             * Amount
             * @description In the allowance's unit; with tokens, the most that the call may cost.
             * @default 1
             */
            amount: number;
            /**
             * Idempotency Key
             * @description The same key again gets the same reservation. Or send it as Idempotency-Key.
             * @default null
             */
            idempotency_key: string | null;
            /**
             * User Id
             * @description A server key names the user; a user's token is its own.
             * @default null
             */
            user_id: string | null;
        };
        /** Reset */
        Reset: {
            /**
             * Delay Seconds
             * @default null
             */
            delay_seconds: number | null;
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /** ResetMany */
        ResetMany: {
            /**
             * Delay Seconds
             * @default null
             */
            delay_seconds: number | null;
            /**
             * Ids
             * @description At most 10,000.
             */
            ids: string[];
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /**
         * @description * `requeued` - Requeued
         *     * `discarded` - Discarded
         * @enum {string}
         */
        Resolution: "requeued" | "discarded";
        Result: {
            /** Format: date-time */
            readonly finished_at: string | null;
            /** Format: uuid */
            readonly id: string;
            readonly idempotency_key: string | null;
            readonly kind: string;
            readonly last_error_code: string;
            readonly last_error_message: string;
            /** Format: uuid */
            readonly origin: string | null;
            result: unknown;
            state: components["schemas"]["JobState"];
            /** @description Of a large result, which is in the result store: where to get it, while `result` is null. Else null. */
            stored_result: components["schemas"]["PlaceOfResult"] | null;
            /** Format: uuid */
            readonly user_id: string | null;
        };
        /** ResumeBatchInput */
        ResumeBatchInput: {
            /**
             * Canary
             * @description So many first. The rest follows once all their jobs have ended. Null: all at once.
             * @default null
             */
            canary: number | null;
            /**
             * Canary Percent
             * @description The rest does not follow where so many percent of them failed with one code.
             * @default 20
             */
            canary_percent: number;
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /** Saved */
        Saved: {
            /**
             * Changed
             * @description The fields that have another value now.
             */
            changed: string[];
            /** Id */
            id: number;
            /** Url */
            url: string;
            /**
             * Warnings
             * @description What the figures mean, where that may surprise.
             */
            warnings: string[];
        };
        /** @description An allowance that was just saved; `context["saved"]` says what that means. */
        SavedAllowance: {
            /** @description How many users' months have another quota now. */
            readonly months: number;
            policy?: components["schemas"]["AllowancePolicy"];
            project: string;
            /**
             * Format: int64
             * @description In the unit, for each user and month.
             */
            quota: number;
            /** @description A reservation that nobody confirmed is given back after so long. Longer than the longest call. */
            reservation_seconds?: number;
            /** @description No key of the project may change it. */
            readonly set_by_operator: boolean;
            /** @description Where the month begins at midnight: Europe/Vienna. */
            time_zone?: string;
            unit?: components["schemas"]["AllowanceUnit"];
            /** Format: date-time */
            readonly updated_at: string;
            /** @description What the change means, where that may surprise. */
            readonly warnings: string[];
        };
        /** @description The view reads the last fires of a whole page at once: `last_fires`, by schedule. */
        Schedule: {
            /** Format: date-time */
            readonly created_at: string;
            /** @description Minute, hour, day of the month, month, day of the week: 30 2 * * MON-FRI is at half past two on working days. */
            readonly cron: string;
            /**
             * Format: date-time
             * @description It does not fire later. Empty: it goes on.
             */
            readonly ends_at: string | null;
            /** Format: uuid */
            readonly id: string;
            /** @description Each fire is late by less than that, so that schedules of one time do not come all at once. */
            readonly jitter_seconds: number;
            readonly jobs: {
                [key: string]: unknown;
            }[];
            readonly last_fire: components["schemas"]["Fire"] | null;
            /**
             * Missed fires
             * @description More than a minute late: no worker ran, or the project was paused.
             *
             *     * `skip` - are left out
             *     * `once` - are made up for by one
             *     * `all` - are made up for one by one
             */
            readonly missed: components["schemas"]["MissedEnum"];
            /**
             * Up to
             * @description Where each is made up for: the newest so many.
             */
            readonly most_missed: number;
            /** @description Of its own in the project; its batches are called so, too. */
            readonly name: string;
            /** @description The next five by the cron text, without jitter. */
            readonly next_due: string[];
            /** Format: date-time */
            readonly next_fire_at: string | null;
            readonly paused: boolean;
            readonly refused_in_a_row: number;
            /** @description Whose clock it goes by: Europe/Berlin. */
            readonly time_zone: string;
        };
        /** SchedulePreview */
        SchedulePreview: {
            /**
             * Next Due
             * @description The next five, without jitter.
             */
            next_due: string[];
        };
        /** SendAgain */
        SendAgain: {
            /**
             * Confirm
             * @description False: only say how many messages there are.
             * @default false
             */
            confirm: boolean;
            /**
             * Reason
             * @default
             */
            reason: string;
            /**
             * Since
             * @description Only messages that failed for good since.
             * @default null
             */
            since: string | null;
        };
        SentAgain: {
            /** @description False: nothing was sent. */
            confirmed: boolean;
            /** @description Messages that failed and wait to be sent again. */
            left: number;
            /** @description Messages that were sent again. */
            sent: number;
        };
        /**
         * SetAtOnce
         * @description Whose calls, and how many may be in flight.
         */
        SetAtOnce: {
            /** At Most */
            at_most: number;
            /**
             * Each User
             * @description So many for each user; else for the project together.
             * @default false
             */
            each_user: boolean;
            /**
             * Kind
             * @description Of jobs of this kind alone. Empty: of every kind.
             * @default
             */
            kind: string;
            /**
             * Reason
             * @default
             */
            reason: string;
            /**
             * Service
             * @description To this service alone. Empty: to every one.
             * @default
             */
            service: string;
        };
        /** SetOverride */
        SetOverride: {
            /** Capacity */
            capacity: number;
            /**
             * Ends At
             * @description From then on the key has again what it had. Null, and no `for_seconds`: it stays.
             * @default null
             */
            ends_at: string | null;
            /**
             * For Seconds
             * @description In place of `ends_at`: from now on for so long.
             * @default null
             */
            for_seconds: number | null;
            /**
             * Key
             * @description As its counter shows it: `project:acme`, `project:acme/user:u`.
             */
            key: string;
            /**
             * Note
             * @default
             */
            note: string;
            /**
             * Reason
             * @default
             */
            reason: string;
            /**
             * Refill Per Second
             * @default null
             */
            refill_per_second: number | null;
        } | {
            ends_at?: null;
        } | {
            for_seconds?: null;
        };
        /**
         * Settle
         * @description The end of a call.
         */
        Settle: {
            /**
             * Actual
             * @description The tokens that it cost. Null: not known, the estimate stands.
             * @default null
             */
            actual: number | null;
            /**
             * @description What it took by unit. A unit that is left out keeps its estimate.
             * @default null
             */
            amounts: components["schemas"]["Amounts"] | null;
            /**
             * Holder
             * @description From the decision that let it go.
             */
            holder: string;
        };
        /** Settled */
        Settled: {
            /** Holder */
            holder: string;
            /**
             * Settled
             * @description False: it was settled before, or its time to settle was over.
             */
            settled: boolean;
        };
        /** ShortBudget */
        ShortBudget: {
            /** Budget */
            budget: string;
            /** Left */
            left: number;
            /**
             * Needed
             * @description What the work should cost, in millionths. Null: a price is missing.
             */
            needed: number | null;
            /**
             * Policy
             * @description What becomes of the jobs beyond it.
             */
            policy: components["schemas"]["BudgetPolicy"];
            /**
             * User Id
             * @description Whose it is; null: the project's.
             */
            user_id: string | null;
        };
        /** Simulate */
        Simulate: {
            /** @description As for changing the limit. */
            changes: components["schemas"]["ChangeLimit"];
            /**
             * Hours
             * @default 1
             */
            hours: number;
        };
        /**
         * Simulated
         * @description The same calls under today's figures and under the proposed ones.
         */
        Simulated: {
            /** Calls */
            calls: number;
            /** Cut */
            cut: boolean;
            /** Hours */
            hours: number;
            /** Keys */
            keys: number;
            /** Played In Groups Of */
            played_in_groups_of: number;
            proposed: components["schemas"]["SimulatedOutcome"];
            today: components["schemas"]["SimulatedOutcome"];
            /** Waited Seconds */
            waited_seconds: number;
            /** Warnings */
            warnings: string[];
        };
        /**
         * SimulatedOutcome
         * @description The outcome of the calls under one set of figures.
         *
         *     Attributes:
         *         delayed: Calls that waited for this limit.
         *         total_wait_seconds: Summed over the calls.
         *         p95_wait_seconds: The 95th percentile over all calls, including calls that did not wait.
         *         longest_wait_seconds: The longest wait of one call.
         *         rejected: Calls that could never fit.
         *         utilisation_percent: The share of the limit's pace that the busiest key used; None: the limit has no pace.
         *         busiest_key: Empty where nothing was counted.
         *         unfinished: Calls that would have gone after the end of the time played.
         */
        SimulatedOutcome: {
            /** Busiest Key */
            busiest_key: string;
            /** Delayed */
            delayed: number;
            /** Longest Wait Seconds */
            longest_wait_seconds: number;
            /** P95 Wait Seconds */
            p95_wait_seconds: number;
            /** Rejected */
            rejected: number;
            /** Total Wait Seconds */
            total_wait_seconds: number;
            /** Unfinished */
            unfinished: number;
            /** Utilisation Percent */
            utilisation_percent: number | null;
        };
        Span: {
            /** Format: date-time */
            begins_at: string;
            /** Format: date-time */
            ends_at: string;
        };
        /** SpendGroupShown */
        SpendGroupShown: {
            /** Cached Tokens */
            cached_tokens: number;
            /** Calls */
            calls: number;
            /** Input Tokens */
            input_tokens: number;
            /**
             * Key
             * @description The day, project, user or batch, or `provider/model`; null: it had none.
             */
            key: string | null;
            /**
             * Model
             * @default null
             */
            model: string | null;
            /**
             * Money
             * @description In millionths of the currency, of the calls that have a price.
             */
            money: number;
            /** Output Tokens */
            output_tokens: number;
            /**
             * Provider
             * @description By model alone, as `model` and `via` are.
             * @default null
             */
            provider: string | null;
            /**
             * Unknown
             * @description Calls of which nobody knows what they cost; the most is counted.
             */
            unknown: number;
            /**
             * Unknown Money
             * @description The part of `money` that is theirs.
             */
            unknown_money: number;
            /**
             * Unpriced
             * @description Calls that had no price.
             */
            unpriced: number;
            /**
             * Via
             * @default null
             */
            via: ("live" | "batch" | "flex" | "priority") | null;
        };
        /** SpendShown */
        SpendShown: {
            /** Currency */
            currency: string;
            /**
             * From
             * Format: date
             */
            from: string;
            /** Groups */
            groups: components["schemas"]["SpendGroupShown"][];
            /**
             * To
             * Format: date
             */
            to: string;
            total: components["schemas"]["SpendSumShown"];
        };
        /**
         * SpendSumShown
         * @description The cost of some calls together.
         */
        SpendSumShown: {
            /** Cached Tokens */
            cached_tokens: number;
            /** Calls */
            calls: number;
            /** Input Tokens */
            input_tokens: number;
            /**
             * Money
             * @description In millionths of the currency, of the calls that have a price.
             */
            money: number;
            /** Output Tokens */
            output_tokens: number;
            /**
             * Unknown
             * @description Calls of which nobody knows what they cost; the most is counted.
             */
            unknown: number;
            /**
             * Unknown Money
             * @description The part of `money` that is theirs.
             */
            unknown_money: number;
            /**
             * Unpriced
             * @description Calls that had no price.
             */
            unpriced: number;
        };
        /**
         * StandingShown
         * @description A user's current month.
         */
        StandingShown: {
            /** Month */
            month: string;
            /** Overage */
            overage: number;
            /** Policy */
            policy: components["schemas"]["StandingShownPolicyEnum"];
            /** Quota */
            quota: number;
            /**
             * Remaining
             * @description Quota less used less reserved; never below 0.
             */
            remaining: number;
            /** Reserved */
            reserved: number;
            /**
             * Resets At
             * Format: date-time
             */
            resets_at: string;
            /** Unit */
            unit: components["schemas"]["StandingShownUnitEnum"];
            /** Used */
            used: number;
            /**
             * User Id
             * Format: uuid
             */
            user_id: string;
        };
        /** @enum {string} */
        StandingShownPolicyEnum: "strict" | "record_overage";
        /** @enum {string} */
        StandingShownUnitEnum: "requests" | "tokens";
        /** Started */
        Started: {
            /**
             * Id
             * Format: uuid
             * @description The operation; it goes on in the background.
             */
            id: string;
            /** Status */
            status: components["schemas"]["StartedStatusEnum"];
            /**
             * Total
             * @description Rows that matched when it began.
             */
            total: number;
            /** Url */
            url: string;
        };
        /** @enum {string} */
        StartedStatusEnum: "running" | "done" | "cancelled" | "failed";
        /** Submitted */
        Submitted: {
            /**
             * Created
             * @description False: `id` is a job that existed already.
             */
            created: boolean;
            /**
             * Id
             * Format: uuid
             */
            id: string;
            /**
             * Outcome
             * @description duplicate: a job with this idempotency_key and the same work existed. pending: one with this unique_key has not ended, and is left as it is. replaced: that one does this work now.
             */
            outcome: components["schemas"]["SubmittedOutcomeEnum"];
            /** Url */
            url: string;
        };
        /** SubmittedBatch */
        SubmittedBatch: {
            /** Accepted */
            accepted: number;
            /**
             * Duplicates
             * @description Jobs whose idempotency_key existed already.
             */
            duplicates: number;
            /** Error Count */
            error_count: number;
            /**
             * Errors
             * @description The first 1,000.
             */
            errors: components["schemas"]["RefusedLine"][];
            /**
             * Id
             * Format: uuid
             */
            id: string;
            /**
             * Known
             * @description Lines that made no job, as their key is known: the first 1,000.
             */
            known: components["schemas"]["KnownJob"][];
            /**
             * Known Batches
             * @description The first 20 batches that have those jobs: their results are there.
             */
            known_batches: string[];
            /**
             * Pending
             * @description Jobs not made because one with their unique_key has not ended.
             */
            pending: number;
            /**
             * Replaced
             * @description Of those pending: whose work that one does now.
             */
            replaced: number;
            /** Url */
            url: string;
        };
        /** @enum {string} */
        SubmittedOutcomeEnum: "created" | "duplicate" | "pending" | "replaced";
        /** @description A value of the payload that comes from another job's result. */
        Take: {
            /** Format: uuid */
            job: string;
            /** @description In that job's result: `data.total`; empty: all of it. */
            path: string;
            /** @description In the payload: `payload.values.0.0`. */
            place: string;
        };
        /** @enum {string} */
        UniqueInEnum: "kind" | "project";
        /**
         * Unit
         * @description The unit that a limit counts; `ratelimits.costs` says how much a call takes of each.
         * @enum {string}
         */
        Unit: "requests" | "tokens" | "input_tokens" | "output_tokens" | "enqueued_tokens" | "in_flight";
        /** UnpricedModel */
        UnpricedModel: {
            /** Model */
            model: string;
            /** Service */
            service: string;
            /** Via */
            via: components["schemas"]["ViaEnum"];
        };
        UsageEvent: {
            /**
             * Format: int64
             * @description What it adds to `used`, in the allowance's unit of its time.
             */
            amount: number;
            /** @description Made by an operator. */
            correction?: boolean;
            /** Format: date-time */
            created_at: string;
            /**
             * Format: uuid
             * @description Chosen by whoever reports it: the same id counts once.
             */
            event_id: string;
            readonly id: number;
            month: string;
            /** Format: date-time */
            occurred_at: string;
            over_limit?: boolean;
            /** Format: uuid */
            reservation_id: string | null;
            service?: string;
            /** Format: int64 */
            tokens?: number;
            /** Format: uuid */
            user_id: string;
        };
        /**
         * UsedUnits
         * @description One call that was made.
         */
        UsedUnits: {
            /**
             * Event Id
             * Format: uuid
             * @description Made by whoever made the call, once: it is counted once, however often sent.
             */
            event_id: string;
            /**
             * Reservation Id
             * @description Released, and confirmed, by the event.
             * @default null
             */
            reservation_id: string | null;
            /**
             * Service
             * @default
             */
            service: string;
            /**
             * Tokens
             * @description What the call cost. Where the allowance counts requests, every event is one.
             */
            tokens: number;
            /**
             * Ts
             * Format: date-time
             * @description When it was made: ISO 8601 with a time zone.
             */
            ts: string;
            /**
             * User Id
             * @description A server key names the user; a user's token is its own.
             * @default null
             */
            user_id: string | null;
        };
        UserMonth: {
            readonly id: number;
            month: string;
            readonly overage: number;
            /** Format: int64 */
            quota: number;
            /** Format: int64 */
            reserved?: number;
            /** Format: int64 */
            used?: number;
            /** Format: uuid */
            user_id: string;
        };
        /**
         * @description * `waiting` - Waiting
         *     * `held` - Held
         *     * `running` - Running
         *     * `succeeded` - Succeeded
         *     * `succeeded_with_failures` - succeeded with failures
         *     * `failed` - Failed
         *     * `cancelled` - Cancelled
         * @enum {string}
         */
        VerdictEnum: "waiting" | "held" | "running" | "succeeded" | "succeeded_with_failures" | "failed" | "cancelled";
        /** @enum {string} */
        ViaEnum: "live" | "batch";
        /** @description The reasons why a job waits, and when it should go. */
        Waiting: {
            /** @description How many of those go first, by the class that they have reached. */
            ahead: {
                [key: string]: number;
            } | null;
            /** @description What the forecast was computed from. */
            forecast: string | null;
            /** @description Among the waiting calls it shares every limit with: 1 is next. Null: in no lane. */
            position: number | null;
            /** @description False: it stands further back; more than 10,000 are not counted. */
            position_is_exact: boolean | null;
            /**
             * Format: date-time
             * @description A forecast from rates and queues as they are, never a promise. Null: none.
             */
            predicted_start_at: string | null;
            /** @description In the order in which they must end; none: it is next. */
            reasons: components["schemas"]["Reason"][];
        };
        /** @description The price of the work by each way, in millionths of the currency; null: a price is missing. */
        WayPrices: {
            batch: number | null;
            /** @description By what its last call used, at the prices of then; else by what calls like it have had, at today's. */
            is_used: boolean;
            live: number | null;
        };
        Webhook: {
            batches: boolean;
            /** Format: date-time */
            readonly created_at: string;
            readonly enabled: boolean;
            /**
             * Format: date-time
             * @description Since when it has accepted nothing. Null: it took its last message.
             */
            readonly failing_since: string | null;
            /** Format: uuid */
            readonly id: string;
            /** @description Which ended jobs it is told of. Null: of none. */
            readonly jobs: components["schemas"]["HeardJobs"] | null;
            /**
             * Jobs of a message
             * @description At most so many ended jobs are told of in one POST.
             */
            readonly most_jobs: number;
            /** Format: date-time */
            readonly paused_at: string | null;
            /** @description `silent`: it accepted nothing for three days. `gone`: it answered 410, and was switched off. */
            paused_because: string;
            /**
             * Format: date-time
             * @description Until then the secret before the last change signs, too. Null: it was never changed.
             */
            two_signatures_until: string | null;
            /** Format: uri */
            readonly url: string;
        };
        WebhookDelivery: {
            /**
             * Format: uuid
             * @description That ended.
             */
            batch_id: string | null;
            /** Format: date-time */
            readonly created_at: string;
            /** @description Of its last failed attempt. */
            error_code: string;
            event: components["schemas"]["EventEnum"];
            /** Format: uuid */
            readonly id: string;
            /**
             * Format: uuid
             * @description That carries the message out.
             */
            job_id: string;
            /** @description Ended jobs that it tells of. */
            readonly jobs_told: number;
            /**
             * @description Of that job.
             *
             *     * `queued` - Queued
             *     * `rate_limited` - Rate Limited
             *     * `dispatched` - Dispatched
             *     * `in_progress` - In Progress
             *     * `retried` - Retried
             *     * `completed` - Completed
             *     * `failed` - Failed
             *     * `cancelled` - Cancelled
             */
            state: components["schemas"]["JobState"];
        };
        WebhookJob: {
            /** Format: date-time */
            readonly created_at: string;
            /** Format: uuid */
            readonly delivery_id: string | null;
            readonly id: number;
            /** Format: uuid */
            readonly job_id: string;
        };
        WebhookWithSecret: {
            batches: boolean;
            /** Format: date-time */
            readonly created_at: string;
            readonly enabled: boolean;
            /**
             * Format: date-time
             * @description Since when it has accepted nothing. Null: it took its last message.
             */
            readonly failing_since: string | null;
            /** Format: uuid */
            readonly id: string;
            /** @description Which ended jobs it is told of. Null: of none. */
            readonly jobs: components["schemas"]["HeardJobs"] | null;
            /**
             * Jobs of a message
             * @description At most so many ended jobs are told of in one POST.
             */
            readonly most_jobs: number;
            /** Format: date-time */
            readonly paused_at: string | null;
            /** @description `silent`: it accepted nothing for three days. `gone`: it answered 410, and was switched off. */
            paused_because: string;
            /** @description With which messages are signed, as Standard Webhooks want it. Shown now or never. */
            secret: string | null;
            /**
             * Format: date-time
             * @description Until then the secret before the last change signs, too. Null: it was never changed.
             */
            two_signatures_until: string | null;
            /** Format: uri */
            readonly url: string;
        };
        Window: {
            /**
             * Format: date-time
             * @description Once: from then.
             */
            readonly begins_at: string | null;
            /** Format: date-time */
            readonly created_at: string;
            /**
             * Format: date-time
             * @description Once: until then.
             */
            readonly ends_at: string | null;
            /** Format: uuid */
            readonly id: string;
            /** @description Whether it holds its work now. */
            readonly is_open: boolean;
            /** @description The project's id, the service or the kind. Empty for everything. */
            readonly key: string;
            /** @description The next five, one that is open first. */
            readonly next_times: components["schemas"]["Span"][];
            /** @description Shown wherever its work waits. */
            readonly reason: string;
            readonly scope: components["schemas"]["WindowScopeEnum"];
            /**
             * From
             * Format: time
             * @description Weekly: what the clock shows, such as 22:00.
             */
            readonly since: string | null;
            /** @description Weekly: whose clock it goes by, such as Europe/Berlin. */
            readonly time_zone: string;
            /**
             * Format: time
             * @description Weekly: the next such time after it began. The same: a whole day.
             */
            readonly until: string | null;
            /** @description Weekly: the days on which it begins. */
            readonly weekdays: number[];
        };
        /**
         * @description * `global` - everything
         *     * `project` - Project
         *     * `service` - Service
         *     * `kind` - Kind
         * @enum {string}
         */
        WindowScopeEnum: "global" | "project" | "service" | "kind";
        /** WithReason */
        WithReason: {
            /**
             * Reason
             * @default
             */
            reason: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
