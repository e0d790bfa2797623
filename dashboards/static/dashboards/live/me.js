// A producer's own page.

import * as blocks from "./blocks.js";
import { fill, h } from "./dom.js";
import { moment, number, setServerTime } from "./format.js";
import { empty, showState } from "./frame.js";
import { Link } from "./link.js";

const DRAW_MILLISECONDS = 250;

const byId = (id) => document.getElementById(id);
const root = byId("page")?.dataset;
let data = null;
let drawing = null;

function draw() {
    drawing = null;
    const states = data.counts ? blocks.counted(data) : null;
    const open = states?.reduce((sum, one) => sum + (one.group === "ended" ? 0 : one.count), 0);
    fill(byId("summary"), !states ? "The newest jobs of this user." : open ? `${number(open)} ${open === 1 ? "job has" : "jobs have"} not ended.` : "Everything has ended.");
    fill(byId("tiles"), states && states.map(({ state, words, sign, count }) => h("div", { class: `card tile ${state === "failed" && count ? "tile-bad" : ""}`, "data-key": state },
        h("span", { class: "tile-label" }, h("span", { class: "icon", "aria-hidden": "true" }, sign), words[0].toUpperCase() + words.slice(1)),
        h("span", { class: "tile-value" }, number(count)),
        state === "scheduled" ? h("span", { class: "muted small" }, "the last ", moment(data.scheduled_until)) : null)));
    fill(byId("batches"), blocks.batches(data.batches, {}));
    fill(byId("jobs"), jobs(data.jobs));
    fill(byId("letters"), letters(data.dead_letters));
}

function jobs(rows) {
    if (!rows.length) return empty("inbox", "No jobs yet.", "Submit some; the API's page shows how.", "/api/v1/docs/", "API");
    return table(["Job", "Kind", "State", "Progress", "Submitted", "Last change"], rows.map((row) => h("tr", { "data-key": row.id },
        h("th", { scope: "row" }, open(row.id)),
        h("td", {}, row.kind),
        h("td", {}, blocks.state(row.shown_state), row.error ? h("div", { class: "muted small" }, row.error) : null),
        h("td", { class: "number" }, row.state === "completed" ? "100 %" : row.progress ? `${row.progress} %` : "–", row.progress_message ? h("div", { class: "muted small" }, row.progress_message) : null),
        h("td", {}, moment(row.created_at)),
        h("td", {}, moment(row.updated_at)))), "Newest jobs");
}

function letters(rows) {
    if (!rows.length) return empty("mark_email_read", "No dead letters.", "Jobs that fail for good are listed here with what to do.");
    return table(["Job", "Kind", "Why", "What to do", "When"], rows.map((row) => h("tr", { "data-key": row.id },
        h("th", { scope: "row" }, open(row.job)),
        h("td", {}, row.kind),
        h("td", {}, h("strong", {}, row.error_code), h("div", { class: "small" }, row.error), row.resolution ? h("div", { class: "muted small" }, row.resolution) : null),
        h("td", {}, row.remediation),
        h("td", {}, moment(row.created_at)))), "Dead letters");
}

function open(id) {
    return h("a", { href: `/me/jobs/${id}/${root.query}`, title: id }, h("code", {}, `…${id.slice(-8)}`));
}

function table(names, rows, label) {
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {},
        h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)));
}

if (byId("page")) {
    new Link({
        socket: root.socket,
        pull: root.pull,
        staleSeconds: 25,
        onData(given, at) {
            setServerTime(at);
            const isFirst = data === null;
            data = given;
            if (isFirst) draw();
            else drawing ??= setTimeout(draw, DRAW_MILLISECONDS);
        },
        onState: showState,
    }).start();
}
