/** Numbers that JavaScript's do not hold arrive, and leave, as they are. */

import assert from "node:assert/strict";
import { it } from "node:test";
import { QueueOps } from "queueops-client";

const WRITTEN = '{"id":9007199254740993,"list":[-9007199254740993,7,1e300],"text":"9007199254740993 \\"9007199254740993","price":1234567890123456.78}';
const READ = {
  id: 9007199254740993n,
  list: [-9007199254740993n, 7, 1e300],
  text: '9007199254740993 "9007199254740993',
  price: 1234567890123456.78,
};

function answering(text) {
  const sent = [];
  const fetch = async (address, request) => {
    sent.push(String(request.body ?? ""));
    return new Response(text, { status: 200, headers: { "content-type": "application/json" } });
  };
  return { queue: new QueueOps("https://queue.example.org", "key", { fetch }), sent };
}

it("reads ids beyond 2^53 as they are, and other numbers as ever", async () => {
  const { queue } = answering(WRITTEN);
  assert.deepEqual(await queue.result("01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e11"), READ);
});

it("reads a long text beside such an id", async () => {
  const long = '12345678901234567 " \\ \n'.repeat(1_500_000);
  const { queue } = answering(`{"data":${JSON.stringify(long)},"id":9007199254740993}`);
  const { data, id } = await queue.result("01938a3c-7d2e-7b1a-9c55-0a4a1f0d2e11");
  assert.equal(data === long, true);
  assert.equal(id, 9007199254740993n);
});

it("writes what it has read", async () => {
  const { queue, sent } = answering('{"id":"x","created":true,"outcome":"created","url":""}');
  await queue.submit("http.request", { json: READ, none: undefined });
  assert.equal(sent[0].includes('"json":{"id":9007199254740993,"list":[-9007199254740993,7,1e+300],'), true, sent[0]);
  await assert.rejects(queue.submit("http.request", { json: Number.NaN }));
});
