/** A client's signal ends what it does: requests, pauses between repeats, and waiting. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { Job, QueueOps, Retry } from "queueops-client";

const ID = "018f6a52-0000-7000-8000-000000000001";

/** Answers nothing until the test ends, or 503 to each request. */
async function serve(t, answer) {
  const server = createServer(answer).listen(0, "127.0.0.1");
  await new Promise((listening) => server.once("listening", listening));
  t.after(() => (server.closeAllConnections(), server.close()));
  return `http://127.0.0.1:${server.address().port}`;
}

for (const [name, call] of [
  ["a request", (queue) => queue.submitMany([{ kind: "x" }])],
  ["a list", (queue) => queue.jobs().next()],
  ["waiting", (queue) => queue.wait(new Job({ id: ID }))],
]) {
  test(`${name} that is under way is aborted`, async (t) => {
    const abort = new AbortController();
    const url = await serve(t, () => abort.abort(new Error("enough")));
    const queue = new QueueOps(url, "qo_x", { signal: abort.signal, WebSocket: undefined });
    await assert.rejects(call(queue), { message: "enough" });
  });
}

test("a pause before a repeat is aborted", async (t) => {
  const abort = new AbortController();
  const url = await serve(t, (_, response) => response.writeHead(503, { "retry-after": "30" }).end());
  const retry = new Retry({ told: () => abort.abort(new Error("enough")) });
  await assert.rejects(new QueueOps(url, "qo_x", { signal: abort.signal, retry }).project(), { message: "enough" });
});
