// The five charts. They are fetched apart from the other data: they change every ten seconds, the others every second.

import { h } from "./dom.js";
import { STATES, UNITS } from "./blocks.js";
import { Chart } from "./chart.js";
import { short } from "./format.js";

const PULL_SECONDS = 10;
const STATED = STATES.filter((one) => one.group === "waiting" || one.group === "running").map((one) => [one.state, one.words, one.colour]);
const OUTCOMES = [["completed", "completed", 2], ["retried", "retried", 5], ["deferred", "deferred", 3], ["failed", "failed", 6], ["cancelled", "cancelled", 0]];
const ANSWERS = [["2xx", "2xx", 2], ["3xx", "3xx", 4], ["4xx", "4xx", 5], ["429", "429", 3], ["5xx", "5xx", 6], ["none", "no answer", 0]];
const PERCENTILES = [["p50", "p50", 1], ["p95", "p95", 3]];

export class Charts {
    constructor(holder, buttons, address) {
        this.holder = holder;
        this.buttons = buttons;
        this.address = address;
        this.span = "15m";
        this.charts = {
            outcomes: new Chart({ title: "Jobs by outcome", series: OUTCOMES, words: UNITS.perSecond, stacked: true }),
            backlog: new Chart({ title: "Backlog by state", series: STATED, words: short, stacked: true }),
            latency: new Chart({ title: "Handlers' latency", series: PERCENTILES, words: UNITS.milliseconds, stacked: false }),
            answers: new Chart({ title: "Providers' answers", series: ANSWERS, words: UNITS.perSecond, stacked: true }),
            sizes: new Chart({ title: "Size of answers", series: PERCENTILES, words: UNITS.bytes, stacked: false }),
        };
        buttons.addEventListener("click", ({ target }) => target.dataset.span && this.choose(target.dataset.span));
    }

    start() {
        this.pull();
        setInterval(() => document.hidden || this.pull(), PULL_SECONDS * 1000);
    }

    choose(span) {
        this.span = span;
        for (const button of this.buttons.children) button.setAttribute("aria-pressed", String(button.dataset.span === span));
        this.pull();
    }

    async pull() {
        const span = this.span;
        try {
            const answer = await fetch(`${this.address}?span=${encodeURIComponent(span)}`);
            if (!answer.ok || span !== this.span) return;
            const read = await answer.json();
            if (!this.holder.querySelector(".chart")) this.holder.replaceChildren(...Object.values(this.charts).map((chart) => chart.element));
            for (const [name, chart] of Object.entries(this.charts)) chart.show(read.at, read[name]);
        } catch {
            if (!this.holder.querySelector(".chart")) this.holder.replaceChildren(h("p", { class: "muted" }, "The charts could not be read. They are tried again in ten seconds."));
        }
    }
}
