// The frame of every live page: the state of the connection, the banner, and grey for stale data.

import { fill, h, icon } from "./dom.js";
import { clockOf, duration } from "./format.js";

const STATES = {
    loading: ["hourglass_top", "Connecting"],
    live: ["bolt", "Live"],
    pulling: ["sync", "Every 2 s"],
    down: ["cloud_off", "Not connected"],
    refused: ["lock", "Signed out"],
};
const TOLD_SECONDS = 6;

const byId = (id) => document.getElementById(id);
let toldTimer;

/** Tell what was done, in a corner and to screen readers. */
export function tell(words, tone = "") {
    const told = byId("told");
    if (!told) return;
    told.className = `told ${tone}`;
    told.textContent = words;
    told.hidden = false;
    clearTimeout(toldTimer);
    toldTimer = setTimeout(() => (told.hidden = true), TOLD_SECONDS * 1000);
}

export function showState(link, before) {
    const [sign, words] = STATES[link.state];
    const shown = byId("link");
    shown.dataset.state = link.state;
    shown.firstElementChild.textContent = sign;
    if (byId("link-words").textContent !== words) byId("link-words").textContent = words;
    shown.title = link.state === "pulling" ? "The websocket does not open; the page asks for the figures instead." : "";
    byId("live").classList.toggle("is-stale", link.state === "down" || link.state === "refused");
    if (link.state !== "loading") byId("live").classList.remove("is-loading");
    showBanner(link);
    if (before === "down") tell("Connected again. The figures are as they are now.", "good");
}

function showBanner(link) {
    const banner = byId("banner");
    banner.hidden = link.state !== "down" && link.state !== "refused";
    if (banner.hidden) return;
    banner.className = "banner banner-bad";
    if (link.state === "refused") {
        const again = h("a", { href: location.pathname + location.search, class: "button" }, "Sign in again");
        fill(banner, icon("lock"), h("span", {}, "Your session has ended, or you may not see this any more."), again);
        return;
    }
    const since = link.lastDataAt
        ? `No connection since ${clockOf(link.lastDataAt)}. What is greyed is as it was then.`
        : "The server does not answer, so there is nothing to show yet.";
    const seconds = link.nextTryAt ? Math.max(0, Math.ceil((link.nextTryAt - Date.now()) / 1000)) : 0;
    const next = seconds ? `Next try in ${duration(seconds).replace(".0", "")}.` : "Trying…";
    const button = h("button", { type: "button", "data-action": "try-now" }, "Try now");
    fill(banner, icon("cloud_off"), h("span", {}, since), h("span", { class: "muted", "aria-live": "off" }, next), button);
    banner.querySelector("[data-action=try-now]").onclick = () => link.tryNow();
}

export function empty(sign, title, hint, href, linkWords) {
    return h("div", { class: "empty" }, icon(sign), h("p", { class: "empty-title" }, title),
        h("p", { class: "muted" }, hint, href ? [" ", h("a", { href }, linkWords)] : null));
}
