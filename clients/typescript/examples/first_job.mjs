/** Submit a job and wait for its end. QUEUEOPS_URL and QUEUEOPS_KEY name the installation and the key. */

import { QueueOps } from "queueops-client";

const queue = new QueueOps(process.env.QUEUEOPS_URL ?? "http://127.0.0.1:8000", process.env.QUEUEOPS_KEY ?? "");
const job = await queue.submit("http.request", { method: "GET", url: "https://example.org/" });
for await (const update of queue.watch(job)) {
  console.log(update.kind, update.event?.to ?? update.subject.state);
}
console.log((await queue.job(job)).result);
