// A chart over time in SVG: stacked areas or lines, with a reading line for the mouse, the finger and the arrow keys.

import { fill, h } from "./dom.js";
import { clockOf } from "./format.js";

const HEIGHT = 150;
const LEFT = 46;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const DASHES = ["", "6 3", "2 3"];
const TICKS = 3;
const LABEL_WIDTH = 90;

const hours = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

export class Chart {
    /** `series`: [name, label, colour's number]; `stacked`: areas on top of each other, else lines. */
    constructor({ title, series, words, stacked }) {
        this.series = series;
        this.words = words;
        this.stacked = stacked;
        this.title = title;
        this.reading = null;
        this.drawing = h("svg", { class: "chart-drawing", "aria-hidden": "true" });
        this.legend = h("ul", { class: "legend" });
        this.element = h("figure", { class: "chart", tabindex: "0", role: "group", "aria-label": title, "aria-roledescription": "chart" },
            h("figcaption", {}, title), this.drawing, this.legend);
        this.element.addEventListener("pointermove", (event) => this.read(this.placeAt(event)));
        this.element.addEventListener("pointerleave", () => this.read(null));
        this.element.addEventListener("blur", () => this.read(null));
        this.element.addEventListener("keydown", (event) => this.step(event));
        new ResizeObserver(() => this.draw()).observe(this.element);
    }

    show(at, columns) {
        this.at = at;
        this.columns = this.series.map(([name]) => columns[name] ?? []);
        this.draw();
    }

    step(event) {
        const last = (this.at?.length ?? 0) - 1;
        const from = this.reading ?? last;
        const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, Escape: null }[event.key];
        if (to === undefined || last < 0) return;
        event.preventDefault();
        this.read(to === null ? null : Math.min(last, Math.max(0, to)));
    }

    placeAt(event) {
        const count = this.at?.length ?? 0;
        if (!count) return null;
        const box = this.drawing.getBoundingClientRect();
        const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
        return share < -0.05 || share > 1.05 ? null : Math.min(count - 1, Math.max(0, Math.round(share * (count - 1))));
    }

    read(place) {
        if (place === this.reading) return;
        this.reading = place;
        this.draw();
    }

    draw() {
        if (!this.at || !this.element.clientWidth) return;
        const width = this.element.clientWidth;
        const layers = this.stacked ? stack(this.columns) : this.columns;
        const high = nice(Math.max(0, ...layers.flat().filter((value) => value !== null)));
        const isKnown = this.columns.some((column) => column.some((value) => value !== null));
        const x = (place) => LEFT + (place / Math.max(1, this.at.length - 1)) * (width - LEFT - RIGHT);
        const y = (value) => HEIGHT - BOTTOM - (value / high) * (HEIGHT - TOP - BOTTOM);
        this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
        fill(this.drawing, this.axes(width, high, x, y), isKnown ? this.shapes(layers, x, y) : this.nothing(width), this.line(x));
        this.drawLegend();
    }

    axes(width, high, x, y) {
        const rows = Array.from({ length: TICKS + 1 }, (_, tick) => (high * tick) / TICKS);
        const every = Math.max(1, Math.ceil(this.at.length / Math.max(1, Math.floor((width - LEFT) / LABEL_WIDTH))));
        return h("g", { class: "axes" },
            rows.map((value) => [h("line", { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), h("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, this.words(value))]),
            this.at.map((seconds, place) => place % every === 0 && x(place) < width - 24
                ? h("text", { x: x(place), y: HEIGHT - 5, "text-anchor": place ? "middle" : "start" }, hours.format(new Date(seconds * 1000))) : null));
    }

    shapes(layers, x, y) {
        const drawn = layers.map((layer, number) => {
            const line = path(layer, x, y);
            const colour = this.series[number][2];
            if (!this.stacked) return h("path", { class: `line colour-${colour}`, d: line, "stroke-dasharray": DASHES[number % DASHES.length] || null });
            const below = number ? layers[number - 1] : layer.map(() => 0);
            return h("path", { class: `area colour-${colour}`, d: band(layer, below, x, y) });
        });
        return h("g", {}, this.stacked ? drawn.reverse() : drawn);
    }

    nothing(width) {
        return h("g", {}, h("text", { class: "nothing", x: LEFT + (width - LEFT) / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing in this time"));
    }

    line(x) {
        const place = this.reading;
        return h("g", {}, place === null ? null : h("line", { class: "reading", x1: x(place), x2: x(place), y1: TOP, y2: HEIGHT - BOTTOM }));
    }

    drawLegend() {
        const place = this.reading ?? this.at.length - 1;
        const read = this.series.map(([name, label, colour], number) => {
            const value = this.columns[number][place];
            return h("li", { "data-key": name }, h("span", { class: `swatch colour-${colour} ${this.stacked ? "" : `swatch-line dash-${number % DASHES.length}`}` }), `${label} `,
                h("strong", {}, value === null || value === undefined ? "–" : this.words(value)));
        });
        const when = this.reading === null ? null : h("li", { class: "muted", "data-key": "when" }, clockOf(this.at[place] * 1000));
        fill(this.legend, read, when);
        this.element.setAttribute("aria-label", `${this.title}. ${[...this.legend.children].map((one) => one.textContent).join(", ")}. Left and right arrows read other times.`);
    }
}

function stack(columns) {
    const sums = [];
    return columns.map((column) => column.map((value, place) => {
        sums[place] = (sums[place] ?? 0) + (value ?? 0);
        return sums[place];
    }));
}

function path(values, x, y) {
    let drawn = "";
    let pen = "M";
    values.forEach((value, place) => {
        if (value === null) {
            pen = "M";
            return;
        }
        drawn += `${pen}${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
        if (pen === "M" && (values[place + 1] ?? null) === null) drawn += "h1"; // a point between two gaps: draw a dot
        pen = "L";
    });
    return drawn;
}

function band(above, below, x, y) {
    const forth = above.map((value, place) => `${x(place).toFixed(1)} ${y(value).toFixed(1)}`);
    const back = below.map((value, place) => `${x(place).toFixed(1)} ${y(value).toFixed(1)}`).reverse();
    return forth.length ? `M${forth.join("L")}L${back.join("L")}Z` : "";
}

function nice(high) {
    if (high <= 0) return 1;
    const size = 10 ** Math.floor(Math.log10(high));
    return [1, 1.5, 2, 3, 4.5, 6, 9, 10].map((step) => step * size).find((step) => step >= high * 0.999) ?? high;
}
