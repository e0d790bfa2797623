/**
 * An app that counts what it uses and is killed by tests: ADDRESS KEY USER OUTBOX RECORD WORKERS CALL_SECONDS.
 *
 * The provider's own record of a call is one line of RECORD, written at once; `done` is printed when the use has
 * returned. Without workers it only sends what others left.
 */

import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { ClientError, UsageTracker } from "queueops-client";

const [address, key, userId, path, record, workers, callSeconds] = process.argv.slice(2);
const provider = openSync(record, "a");
const tracker = new UsageTracker(address, key, { userId, path, credit: "100%", gatherSeconds: 0.1 });

const charged = new Map(readFileSync(record, "utf8").trim().split("\n").map((line) => line.split(" ")));
for (const { eventId } of (await tracker.report()).intents) {
  const tokens = charged.get(eventId);
  await tracker.resolve(eventId, { tokens: tokens === undefined ? null : Number(tokens) });
}

for (;;) {
  try {
    await tracker.standing();
    break;
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    await sleep(50); // the server is not up yet
  }
}

async function work() {
  for (;;) {
    let done;
    await tracker.use({ estimate: 100, service: "gemini" }, async (usage) => {
      if (Number(callSeconds)) await sleep(Number(callSeconds) * 1000);
      const tokens = 1 + Math.floor(Math.random() * 100);
      writeSync(provider, `${usage.eventId} ${tokens}\n`);
      usage.tokens = tokens;
      done = usage.eventId;
    });
    writeSync(1, `done ${done}\n`);
  }
}

if (Number(workers)) {
  await Promise.all(Array.from({ length: Number(workers) }, work));
} else {
  await tracker.flush({ timeout: 30 });
  await tracker.close();
  closeSync(provider);
  console.log("flushed");
}
