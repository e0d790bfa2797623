/** Ids in pages that came by plain http, where browsers have no `crypto.randomUUID`. */

import assert from "node:assert/strict";
import { it } from "node:test";
import { QueueOps } from "queueops-client";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

it("makes keys of requests without crypto.randomUUID", async () => {
  const keys = [];
  const fetch = async (address, { headers }) => {
    keys.push(new Headers(headers).get("idempotency-key"));
    return new Response('{"id":"x","created":true,"outcome":"created","url":""}', {
      status: 201,
      headers: { "content-type": "application/json" },
    });
  };
  const queue = new QueueOps("https://queue.example.org", "key", { fetch });
  const known = Object.getOwnPropertyDescriptor(Crypto.prototype, "randomUUID");
  Object.defineProperty(Crypto.prototype, "randomUUID", { value: undefined, configurable: true });
  try {
    for (let call = 0; call < 100; call += 1) await queue.submit("http.request", {});
  } finally {
    Object.defineProperty(Crypto.prototype, "randomUUID", known);
  }
  assert.equal(new Set(keys).size, 100);
  for (const key of keys) assert.match(key, UUID);
});
