/**
 * The client, asked by lines of JSON: for tests that ask clients in several languages the same.
 *
 *     {"id": 1, "make": "QueueOps", "arguments": [...]}            -> {"id": 1, "value": 7}, a handle
 *     {"id": 2, "on": 7, "call": "watch", "arguments": [...]}      -> {"id": 2, "item": ...}, then {"id": 2, "value": null}
 *     {"id": 2, "stop": true}                                      ends what is iterated over
 *     {"id": 2, "answer": ...}                                     to a use that has begun: what it took
 *
 * A record travels as {"$": "Job", "raw": {...}}; an error as {"id": 1, "error": {...}}.
 */

import { createInterface } from "node:readline";
import * as client from "queueops-client";

const made = new Map();
const open = new Map(); // by request: what `stop` and `answer` reach
const given = new Map(); // by name: what a function of the client's options returns

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

function told(value) {
  if (Array.isArray(value)) return value.map(told);
  if (typeof value !== "object" || value === null) return value;
  const kind = Object.getPrototypeOf(value).constructor?.name ?? "Object";
  if (value instanceof Date) return value.toISOString();
  if (kind !== "Object") return { $: kind, raw: value };
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, told(each)]));
}

function revived(_name, value) {
  switch (value?.$) {
    case undefined:
      return value;
    case "Retry":
      return new client.Retry(value.raw);
    case "Given":
      return () => given.get(value.raw);
    case "Clock":
      return () => Date.now() / 1000 + given.get(value.raw);
    default:
      return new client[value.$](value.raw);
  }
}

function failure(error) {
  if (!(error instanceof client.ClientError)) return { class: error.name, code: "", text: `${error.stack}` };
  return {
    class: error.constructor.name,
    code: error.code,
    text: error.message,
    reason: error.reason ?? error.message,
    status: error.status,
    fields: error.fields,
    details: error.details,
    retry_after: error.retryAfter ?? null,
    may_have_arrived: error.mayHaveArrived,
    idempotency_key: error.idempotencyKey ?? null,
    latest: told(error.latest ?? null),
  };
}

async function iterate(id, items) {
  let stops = false;
  open.set(id, () => {
    stops = true;
    return items.return();
  });
  for await (const item of items) {
    if (stops) break;
    say({ id, item: told(item) });
  }
}

/** One use: what it takes comes with the answer, or why it failed. */
async function use(id, tracker, options) {
  await tracker.use(options, async (usage) => {
    const answered = new Promise((resolve) => open.set(id, resolve));
    say({ id, item: { event_id: usage.eventId, reservation_id: usage.reservationId ?? null } });
    const { tokens, fails } = await answered;
    if (tokens !== null) usage.tokens = tokens;
    if (fails) throw new Error("the call failed");
  });
}

async function carryOut({ id, make, on, call, arguments: options }) {
  if (make) {
    made.set(id, new client[make](...options));
    return id;
  }
  if (call === "errorTypes") return options.map(([code, status]) => client.errorType(code, status).name);
  const one = made.get(on);
  if (call === "methods") return Object.getOwnPropertyNames(Object.getPrototypeOf(one));
  if (call === "use") return await use(id, one, ...options);
  const found = one[call](...options);
  if (typeof found?.[Symbol.asyncIterator] === "function") return await iterate(id, found);
  return told((await found) ?? null);
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line, revived);
  for (const [name, value] of Object.entries(request.given ?? {})) given.set(name, value);
  if ("stop" in request || "answer" in request) {
    open.get(request.id)?.(request.answer);
    continue;
  }
  carryOut(request)
    .then(
      (value) => say({ id: request.id, value: value ?? null }),
      (error) => say({ id: request.id, error: failure(error) }),
    )
    .finally(() => open.delete(request.id));
}
process.exit(0);
