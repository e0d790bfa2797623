// Numbers with their units, and times that go on counting.

import { h } from "./dom.js";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const local = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const utc = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "medium", timeZone: "UTC" });
const exact = (time) => `${local.format(time)} (${utc.format(time)} UTC)`;
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
let ahead = 0; // milliseconds by which the server's clock is before ours

/** Count from the server's clock: a wrong clock here would make every age wrong. */
export function setServerTime(at) {
    const theirs = Date.parse(at);
    if (!Number.isNaN(theirs)) ahead = theirs - Date.now();
}

function serverNow() {
    return Date.now() + ahead;
}

export function number(value, digits = 0) {
    if (value === null || value === undefined) return "–";
    return value.toLocaleString("en-GB", { maximumFractionDigits: digits });
}

/** A number rounded to about three figures: 0.42, 4.2, 42, 4,200. */
export function figure(value) {
    if (value === null || value === undefined) return "–";
    return number(value, Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
}

export function short(value) {
    if (value >= 1e6) return `${figure(value / 1e6)} M`;
    return value >= 10_000 ? `${figure(value / 1000)} k` : figure(value);
}

export function milliseconds(value) {
    if (value === null || value === undefined) return "–";
    return value >= 1000 ? duration(value / 1000) : `${figure(value)} ms`;
}

export function bytes(value) {
    if (value === null || value === undefined) return "–";
    if (value >= 1e6) return `${figure(value / 1e6)} MB`;
    return value >= 1000 ? `${figure(value / 1000)} kB` : `${figure(value)} B`;
}

/** At most two units: `3 min 5 s`. */
export function duration(seconds) {
    if (seconds < 10) return `${number(seconds, 1)} s`;
    const parts = [];
    let left = Math.floor(seconds);
    for (const [size, unit] of UNITS) {
        if (left >= size) {
            parts.push(`${Math.floor(left / size)} ${unit}`);
            left %= size;
        } else if (parts.length) {
            break;
        }
        if (parts.length === 2) break;
    }
    return parts.join(" ") || "0 s";
}

/** A moment as people say it, exact on hover; `how`: "ago" (also ahead), "age", or "clock". */
export function moment(at, how = "ago") {
    if (!at) return h("span", { class: "muted" }, "–");
    const time = new Date(at);
    return h("time", { datetime: at, title: exact(time), "data-how": how }, words(time, how));
}

function words(time, how) {
    if (how === "clock") return clock.format(time);
    const seconds = (serverNow() - time.getTime()) / 1000;
    if (how === "age") return duration(Math.max(0, Math.floor(seconds)));
    if (Math.abs(seconds) < 1.5 || (how === "ahead" && seconds > 0)) return "now"; // a forecast is never in the past
    return seconds > 0 ? `${duration(Math.floor(seconds))} ago` : `in ${duration(Math.ceil(-seconds))}`;
}

export function clockOf(milliseconds) {
    return clock.format(new Date(milliseconds));
}

setInterval(() => {
    for (const shown of document.querySelectorAll("time[data-how]")) {
        if (shown.closest(".is-stale")) continue;
        const now = words(new Date(shown.dateTime), shown.dataset.how);
        if (shown.textContent !== now) shown.textContent = now;
    }
}, 1000);
