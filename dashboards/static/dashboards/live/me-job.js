// One job, as its producer sees it.

import { post } from "./actions.js";
import * as blocks from "./blocks.js";
import { fill, h, icon } from "./dom.js";
import { moment, number, setServerTime } from "./format.js";
import { empty, showState, tell } from "./frame.js";
import { Link } from "./link.js";

const AGAIN_MILLISECONDS = 300;
const ENDED = new Set(blocks.STATES.filter((one) => one.group === "ended").map((one) => one.state));

const byId = (id) => document.getElementById(id);
const root = byId("page").dataset;
let asking = null;

// The socket only says that something happened; all data of the page comes from one address.
function readAgain() {
    asking ??= setTimeout(async () => {
        asking = null;
        const answer = await fetch(root.pull, { headers: { Accept: "application/json" } }).catch(() => null);
        if (answer?.ok) draw(await answer.json());
    }, AGAIN_MILLISECONDS);
}

function draw({ data, at }) {
    setServerTime(at);
    const { job, letter, events } = data;
    fill(byId("verdict"), blocks.state(data.shown_state), ` ${job.kind}`, h("code", { class: "muted", title: job.id }, ` …${job.id.slice(-8)}`));
    fill(byId("summary"), summary(job));
    show("waiting", job.waiting?.reasons.length ? waiting(job.waiting) : null);
    show("letter", letter ? deadLetter(letter, data.requeued_as) : null);
    fill(byId("facts"), facts(job));
    fill(byId("result"), job.stored_result ? h("p", { class: "muted" }, `It has ${job.stored_result.bytes.toLocaleString()} bytes, too many to be shown here.`) : job.result === null ? h("p", { class: "muted" }, ENDED.has(job.state) ? "It returned nothing." : "There is none until it has completed.") : json(job.result));
    fill(byId("payload"), json(job.payload));
    fill(byId("events"), happened(events));
}

function show(id, children) {
    byId(id).hidden = !children;
    fill(byId(id), children);
}

function summary(job) {
    if (ENDED.has(job.state)) return ["It ended ", moment(job.finished_at), "."];
    const progress = job.progress ? `${number(job.progress)} %${job.progress_message ? `, ${job.progress_message}` : ""}. ` : "";
    if (job.eta) return [progress, "Should end ", moment(job.eta), "."];
    if (job.waiting?.predicted_start_at) return [progress, "Should start ", moment(job.waiting.predicted_start_at), "."];
    return progress || job.waiting_for || "It is under way.";
}

function waiting({ reasons, position, position_is_exact: isExact, forecast }) {
    return [h("header", { class: "card-head" }, h("h2", {}, "What it waits for")),
        h("ul", { class: "rows" }, reasons.map((one) => h("li", { "data-key": `${one.code}${one.limit}${one.key}` }, one.text,
            one.free_at ? h("span", { class: "muted" }, " · ends ", moment(one.free_at, "ahead")) : null))),
        position ? h("p", { class: "muted small" }, `${isExact ? "" : "More than "}${number(position - 1)} calls go before it.`, forecast ? ` Reckoned from ${forecast}.` : null) : null];
}

function deadLetter(letter, requeuedAs) {
    return [h("header", { class: "card-head" }, h("h2", {}, "Why it failed")),
        h("p", {}, h("strong", {}, letter.error_code), " ", letter.error),
        h("p", {}, letter.remediation),
        letter.resolution ? h("p", { class: "muted" }, `It was ${letter.resolution}.`, requeuedAs.map((id) => [" ", h("a", { href: `/me/jobs/${id}/${root.query}` }, "The new job")])) : null,
        !letter.resolution && root.requeue ? h("div", { class: "buttons" },
            h("button", { type: "button", "data-action": "requeue" }, icon("replay"), "Requeue"),
            h("span", { class: "muted small" }, "A new job does the same work, with all of its attempts.")) : null,
        !letter.resolution && !root.requeue ? h("p", { class: "muted small" }, "Your key may not requeue it: that needs the scope operate.") : null];
}

function facts(job) {
    const rows = [["Id", h("code", {}, job.id)], ["State", job.state], ["Priority", job.priority], ["Service", `${job.service}, ${job.call_type}`],
        ["User", job.user_id], ["Tags", job.tags.join(", ")], ["Idempotency key", job.idempotency_key], ["Batch", job.batch ? h("code", {}, job.batch) : null],
        ["Requeued from", job.origin ? h("a", { href: `/me/jobs/${job.origin}/${root.query}` }, `…${job.origin.slice(-8)}`) : null],
        ["Attempts", job.attempts], ["Deferrals", job.deferral_count], ["Submitted", moment(job.created_at)],
        ["Started", job.started_at && moment(job.started_at)], ["Ended", job.finished_at && moment(job.finished_at)], ["Expires", job.expires_at && moment(job.expires_at)]];
    return h("table", {}, h("tbody", {}, rows.filter(([, value]) => value !== null && value !== "" && value !== undefined)
        .map(([name, value]) => h("tr", { "data-key": name }, h("th", { scope: "row" }, name), h("td", {}, value)))));
}

function json(value) {
    return h("pre", { class: "scroll", tabindex: "0" }, JSON.stringify(value, null, 2));
}

function happened(rows) {
    if (!rows.length) return empty("history", "Nothing is known.", "What happened long ago is deleted.");
    return h("ol", { class: "feed" }, rows.map((row) => h("li", { "data-key": String(row.id) }, moment(row.at),
        h("span", { class: "feed-what" }, row.to ? [row.from ? [blocks.state(row.from), icon("arrow_forward")] : null, blocks.state(row.to)]
            : h("span", { class: "state" }, row.type.replace("_", " "), row.percent === null ? null : ` ${row.percent} %`)),
        h("span", { class: "feed-message" }, row.message))));
}

byId("letter").addEventListener("click", async ({ target }) => {
    const button = target.closest("button[data-action=requeue]");
    if (!button) return;
    button.disabled = true;
    try {
        location.href = `/me/jobs/${(await post(root.requeue, {})).id}/${root.query}`;
    } catch (error) {
        tell(error.message, "bad");
        button.disabled = false;
    }
});

new Link({
    socket: root.socket,
    pull: root.pull,
    staleSeconds: 25,
    onData: (data, at) => (data.job ? draw({ data, at }) : readAgain()),
    onEvent: readAgain,
    onState: showState,
}).start();
