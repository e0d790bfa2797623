// The dashboard's blocks, each drawn from its part of the snapshot.

import { h, icon } from "./dom.js";
import { bytes, duration, figure, milliseconds, moment, number } from "./format.js";
import { empty } from "./frame.js";
import { spark } from "./spark.js";

const TONES = { good: "check_circle", held: "hourglass_top", warn: "warning", bad: "error" };
const SEVERITIES = { notice: "info", warning: "warning", critical: "error" };
const CHANGES = { ends: "Ends", clears: "Clears", asks: "A probe asks" };
const HEALTHS = { alive: "check_circle", draining: "hourglass_bottom", silent: "error" };
const TYPES = { state_change: "arrow_forward", progress: "percent", error: "error", scheduling: "schedule", audit: "person" };

// How the server shows states: shown_states() of dashboards/services/shared/wire.py.
export const STATES = JSON.parse(document.getElementById("states").textContent);

// Counts jobs by the states that people see. Jobs held by an outage are apart from jobs that wait for quota, scheduled
// jobs from queued jobs; all running jobs are one state. A state that is apart is left out if it has no jobs.
export function counted({ counts, held_by_outage: held, scheduled: later }) {
    const outage = Math.min(held ?? 0, counts.rate_limited);
    const scheduled = Math.min(later ?? 0, counts.queued);
    const running = STATES.filter((one) => one.group === "running").reduce((sum, one) => sum + counts[one.state], 0);
    const apart = { ...counts, queued: counts.queued - scheduled, scheduled, rate_limited: counts.rate_limited - outage, outage, in_progress: running };
    return STATES.filter((one) => one.group !== "running" || one.state === "in_progress").map((one) => ({ ...one, count: apart[one.state] }))
        .filter((one) => one.group !== "apart" || one.count);
}

export function state(name) {
    const { words, tone, sign } = STATES.find((one) => one.state === name);
    return h("span", { class: `state tone-${tone}` }, icon(sign), words);
}

export function verdict(health) {
    return [
        h("span", { class: `tone tone-${health.tone}` }, icon(TONES[health.tone] ?? "info")),
        h("a", { href: health.href, class: "verdict-link" }, health.text),
    ];
}

export function cause(health) {
    const until = health.until ? [h("span", { class: "muted" }, CHANGES[health.change], " "), moment(health.until, "ahead")] : null;
    return [health.cause ? h("span", {}, health.cause) : null, until];
}

export function also(others) {
    return others.map((one) =>
        h("li", { class: `tone-${one.tone}`, title: one.cause || null }, icon(TONES[one.tone] ?? "info"),
            h("a", { href: one.href }, one.text),
            one.begins_at ? h("span", { class: "muted" }, " It begins ", moment(one.begins_at), ", and ends ", moment(one.until), ".")
                : one.until ? h("span", { class: "muted" }, " ", CHANGES[one.change], " ", moment(one.until, "ahead"), ".") : null));
}

export function steering(pauses, ramp, page) {
    if (!page.mayPause) return [];
    const steer = (verb, sign, words) => h("button", { type: "button", class: "quiet small", "data-action": `${verb}Ramp`, "data-name": "the ramp" }, icon(sign), h("span", {}, words));
    const ramps = !ramp ? [] : [
        ramp.is_held ? steer("continue", "trending_up", "Continue the ramp") : steer("hold", "pause", "Hold the ramp"),
        steer("end", "double_arrow", "End the ramp"),
    ];
    const ends = pauses.filter((one) => one.may_end).map((one) =>
        h("button", { type: "button", class: "quiet small", "data-action": "resumePause", "data-pause": one.id, "data-name": one.name, "data-left": one.waiting ?? "", "data-everything": one.is_everything ? "yes" : "" }, icon("play_arrow"), h("span", {}, `Resume ${one.name}`)));
    const all = pauses.some((one) => one.is_everything) ? null
        : h("button", { type: "button", class: "quiet small", "data-action": "pauseEverything", "data-name": "everything" }, icon("pause"), h("span", {}, "Pause everything"));
    return [...ends, ...ramps, all];
}

export function tile(one) {
    const value = one.since !== undefined
        ? (one.since ? moment(one.since, "age") : h("span", {}, "none"))
        : one.id === "pickup" ? milliseconds(one.value) : [one.more ? "> " : "", figure(one.value)];
    const unit = one.id === "pickup" || one.since !== undefined || one.value === null ? "" : one.unit;
    return h("a", { class: `card tile ${one.tone ? `tile-${one.tone}` : ""}`, href: one.href, "data-key": one.id, title: one.hint },
        h("span", { class: "tile-label" }, one.tone ? icon(one.tone === "bad" ? "error" : "warning") : null, one.label),
        h("span", { class: "tile-value" }, value, unit ? h("span", { class: "unit" }, ` ${unit}`) : null),
        one.until ? h("span", { class: "muted small" }, "the last ", moment(one.until)) : null,
        one.spark ? spark(one.spark) : h("span", { class: "spark" }),
        h("span", { class: "sr-only" }, one.hint));
}

export function limits(rows, users, page, hasLimits) {
    if (!rows.length) {
        return hasLimits
            ? empty("speed", "No limit has been used yet.", "Gauges appear with the first call that a limit counts.")
            : empty("speed", "No limits are set.", "Calls leave as fast as the executors can.", page.limits, "Set one");
    }
    return h("ul", { class: "rows" }, rows.map((row) => limit(row, users[String(row.limit_id)], page)));
}

function limit(row, used, page) {
    const watches = row.shadow && !row.cooled_until;
    const fullness = watches ? "low" : row.cooled_until || row.percent >= 100 ? "full" : row.percent >= row.warning_percent ? "high"
        : row.percent >= row.notice_percent ? "mid" : "low";
    const marks = [
        row.binds ? mark("warn", "hourglass_top", row.paced ? `binds, paced: ${figure(row.per_second)} a second` : "binds") : null,
        row.cooled_until ? mark("warn", "ac_unit", ["cooled down, ends ", moment(row.cooled_until)], row.cooled_because) : null,
        row.factor < 1 ? mark("warn", "compress", `slowed to ${number(row.factor * 100)} %`, "The provider pushed back; the cap recovers step by step.") : null,
        row.share < 1 ? mark("warn", "trending_up", `paced by the ramp: ${number(row.share * 100)} %`) : null,
        row.shadow ? mark("", "visibility", `shadow: would have held ${number(row.would_have_held)}`, "It blocks nothing.") : null,
    ];
    const queue = row.waiting
        ? h("p", {}, h("strong", {}, row.waiting_words), row.waiting === 1 ? " job waits" : " jobs wait",
            row.clears_at ? [", clears ", moment(row.clears_at, "ahead")] : ", clears as running calls end",
            row.lanes.length ? h("span", { class: "muted" }, `: ${row.lanes.map(lane).join(", ")}`) : null)
        : h("p", { class: "muted" }, "Nothing waits behind it.");
    const top = used?.users.length
        ? h("p", { class: "muted small" }, `Top users in 1 h${used.partial ? " (newest part)" : ""}: `,
            used.users.map((one) => `${one.name} ${number(one.amount)}`).join(", "))
        : null;
    return h("li", { class: "limit", "data-key": row.id },
        h("div", { class: "row-head" },
            h("a", { href: row.href, class: "row-name" }, row.limit, h("span", { class: "muted" }, ` ${keyWords(row.key)}`)),
            h("span", { class: "marks" }, marks),
            page.mayTune ? h("a", { class: "quiet button small", href: row.tune_href }, icon("tune"), "Tune", h("span", { class: "sr-only" }, ` ${row.limit}`)) : null),
        h("div", { class: `gauge gauge-${fullness}`, role: "meter", "aria-label": `${row.limit} ${row.key}`, "aria-valuemin": "0",
            "aria-valuemax": row.capacity, "aria-valuenow": Math.min(row.used, row.capacity), "aria-valuetext": `${figure(row.used)} of ${figure(row.capacity)} ${row.unit}`,
            vars: { "--value": `${Math.min(100, row.percent)}%`, "--notice": `${row.notice_percent}%`, "--warning": `${row.warning_percent}%` } },
            h("span", { class: "gauge-used" })),
        h("p", { class: "figures" }, h("strong", {}, figure(row.used)), ` of ${figure(row.capacity)} ${row.unit}, ${number(row.percent)} %`,
            row.per_second ? h("span", { class: "muted" }, `; drains at ${figure(row.per_second)}/s`) : null),
        queue, top);
}

function lane(one) {
    const who = [one.project, one.user].filter(Boolean).join(" / ");
    return `${who || "nobody named"} ${one.more ? "> " : ""}${number(one.waiting)}`;
}

function keyWords(key) {
    return key === "*" ? "everyone" : key.split("/").map((part) => part.replace(":", " ")).join(", ");
}

function mark(tone, sign, words, hint = null) {
    return h("span", { class: `mark mark-${tone}`, title: hint || null }, icon(sign), h("span", {}, words));
}

export function batches(rows, page) {
    if (!rows.length) {
        return empty("stacks", "No batch is open.", "Jobs that are submitted together appear here with their progress.", page.batches, page.batches ? "Older batches" : "");
    }
    return h("ul", { class: "rows" }, rows.map((row) => batch(row, page)));
}

function batch(row, page) {
    const name = row.name || `…${row.id.slice(-8)}`;
    const ended = row.finished_at !== null;
    const left = row.total - row.finished;
    const states = counted(row).filter((one) => one.count);
    const drawn = [...states.filter((one) => one.group === "ended"), ...states.filter((one) => one.group === "running")];
    const parts = drawn.map((one) =>
        h("span", { class: `part part-${one.tone}`, "data-key": one.state, vars: { "--share": `${(100 * one.count) / row.total}%` } }));
    const shown = states.map((one) => h("span", { class: `count count-${one.tone}`, "data-key": one.state }, icon(one.sign), `${number(one.count)} ${one.words}`));
    const end = ended ? [["ended ", moment(row.finished_at)]]
        : [row.held_by ? `held: ${row.held_by}` : null, row.rate && row.verdict === "running" ? `${figure(row.rate)} jobs/s` : null, row.eta ? [row.rate ? ", ends " : "ends ", moment(row.eta)] : null,
            row.eta_earliest ? ["; at its speed so far ", moment(row.eta_earliest)] : null,
            row.scheduled_until ? [row.held_by || row.rate || row.eta ? ", " : "", "the last scheduled one may begin ", moment(row.scheduled_until)] : null];
    const about = { "data-batch": row.id, "data-name": name, "data-left": left };
    return h("li", { class: "batch", "data-key": row.id },
        h("div", { class: "row-head" },
            row.href ? h("a", { href: row.href, class: "row-name" }, name, h("span", { class: "muted" }, ` ${row.project}`)) : h("span", { class: "row-name" }, name),
            h("span", { class: `state tone-${row.tone}` }, icon(row.sign), row.words),
            h("span", { class: "buttons" },
                !ended && page.mayPause && !row.paused ? button("pause", "pause", "Pause", name, about) : null,
                !ended && page.mayPause && row.paused ? button("resume", "play_arrow", "Resume", name, about) : null,
                !ended && page.mayCancel ? button("cancel", "block", "Cancel", name, about) : null)),
        h("div", { class: "progress", role: "progressbar", "aria-label": `${name}: ended items`, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": row.percent }, parts),
        h("p", { class: "figures" }, h("strong", {}, `${number(row.percent, 1)} %`), ` ${number(row.finished)} of ${number(row.total)}`,
            end.flat().some(Boolean) ? h("span", { class: "muted" }, " · ", end) : null),
        h("p", { class: "counts small" }, shown));
}

function button(action, sign, words, name, about) {
    return h("button", { type: "button", class: "quiet small", "data-action": action, ...about }, icon(sign), h("span", {}, words), h("span", { class: "sr-only" }, ` ${name}`));
}

export function alerts(rows, page) {
    if (!rows.length) return h("p", { class: "muted" }, "No alert is open.");
    return h("ul", { class: "rows" }, rows.map((row) => h("li", { class: `alert alert-${row.severity} ${row.acknowledged_at || row.silenced_until ? "is-seen" : ""}`, "data-key": String(row.id) },
        h("div", { class: "row-head" },
            h("span", { class: `mark mark-${row.severity === "critical" ? "bad" : row.severity === "warning" ? "warn" : ""}` }, icon(SEVERITIES[row.severity]), row.severity),
            h("span", { class: "muted small" }, moment(row.opened_at)),
            h("span", { class: "buttons" },
                !row.acknowledged_at && page.mayAcknowledge ? h("button", { type: "button", class: "quiet small", "data-action": "acknowledge", "data-alert": row.id }, icon("visibility"), h("span", {}, "Acknowledge"), h("span", { class: "sr-only" }, ` ${row.message}`)) : null,
                h("a", { class: "quiet button small", href: row.href }, icon("menu_book"), "Runbook", h("span", { class: "sr-only" }, ` for ${row.message}`)))),
        h("p", {}, row.message),
        row.acknowledged_at ? h("p", { class: "muted small" }, `Looked after by ${row.acknowledged_by} since `, moment(row.acknowledged_at)) : null,
        row.silenced_until ? h("p", { class: "muted small" }, icon("notifications_off"), " Silenced, ends ", moment(row.silenced_until)) : null)));
}

export function objectives(rows, more) {
    return [h("ul", { class: "rows" }, rows.map(objective)), more ? h("p", { class: "muted small" }, `${number(more)} more, with more of their budget left.`) : null];
}

function objective(row) {
    const isKnown = row.attained_percent !== null;
    const left = row.budget_left_percent ?? 100;
    const [tone, sign, words] = !isKnown ? ["", "hourglass_empty", "no jobs yet"] : row.is_broken ? ["bad", "error", "broken"]
        : row.burn > 1 ? ["warn", "local_fire_department", `burns ${number(row.burn, 1)} times too fast`] : ["good", "check_circle", "kept"];
    return h("li", { class: "limit", "data-key": String(row.id) },
        h("div", { class: "row-head" },
            h("a", { href: row.href, class: "row-name" }, row.name),
            h("span", { class: "marks" }, mark(tone, sign, words))),
        h("div", { class: `gauge gauge-${row.is_broken ? "full" : left < 20 ? "high" : left < 40 ? "mid" : "low"}`, role: "meter", "aria-label": `${row.name}: budget used`, "aria-valuemin": "0",
            "aria-valuemax": "100", "aria-valuenow": Math.min(100, Math.max(0, 100 - left)), "aria-valuetext": `${number(left)} % of the budget is left`,
            vars: { "--value": `${Math.min(100, Math.max(0, 100 - left))}%`, "--notice": "60%", "--warning": "80%" } },
            h("span", { class: "gauge-used" })),
        h("p", { class: "figures" }, isKnown ? [h("strong", {}, `${number(row.attained_percent, 2)} %`), ` of ${number(row.jobs)} jobs in ${row.window}; budget left `, h("strong", {}, `${number(left)} %`)] : "Nothing has come due.",
            h("span", { class: "muted" }, ` · ${row.words}`)));
}

export function executors(rows) {
    if (!rows.length) return empty("memory", "No executor runs.", "Nothing is carried out until one does: manage.py qcluster.");
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Executors" }, h("table", {},
        h("thead", {}, h("tr", {}, ["Process", "Health", "In flight", "Heartbeat", "Loop lag"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rows.map((row) => h("tr", { "data-key": row.id },
            h("th", { scope: "row" }, row.name, row.role === "quarantine" ? h("span", { class: "muted small" }, " quarantine") : null),
            h("td", {}, h("span", { class: `mark mark-${row.health === "alive" ? "good" : row.health === "silent" ? "bad" : "warn"}` }, icon(HEALTHS[row.health]), row.health)),
            h("td", { class: "number" }, `${number(row.in_flight)} of ${number(row.slots)}`),
            h("td", {}, moment(row.heartbeat_at)),
            h("td", { class: "number" }, milliseconds(row.loop_lag_ms)))))));
}

export function feed(rows, page, skipped) {
    if (!rows.length) return empty("inbox", "No events.", "Nothing has happened yet, or nothing that the filter lets through.");
    return [
        skipped ? h("p", { class: "muted small", "data-key": "skipped" }, `${number(skipped)} events left out: they came faster than people read.`) : null,
        h("ol", { class: "feed", "data-key": "list" }, rows.map((row) => h("li", { "data-key": String(row.id) },
            moment(row.at, "clock"),
            h("span", { class: "feed-what" }, row.to ? [row.from ? [state(row.from), icon("arrow_forward")] : null, state(row.to)]
                : h("span", { class: "state" }, icon(TYPES[row.type] ?? "circle"), row.type.replace("_", " "), row.percent !== null && row.type === "progress" ? ` ${row.percent} %` : null)),
            h("span", { class: "feed-message" }, row.message),
            h("span", { class: "feed-about muted" }, row.project, row.kind ? ` · ${row.kind}` : null, " · ",
                page.jobs ? h("a", { href: `${page.jobs}${encodeURIComponent(row.job)}/change/`, title: row.job }, `…${row.job.slice(-8)}`) : `…${row.job.slice(-8)}`)))),
    ];
}

export const UNITS = { perSecond: (value) => `${figure(value)}/s`, jobs: (value) => number(value), milliseconds, bytes, duration };
