// A line of the last 15 minutes, without axes: the tile says the figure, the line whether it rises.

import { h } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;
const EDGE = 2;

export function spark(values) {
    const known = values.filter((value) => value !== null);
    const svg = h("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    if (known.length < 2) return svg;
    const high = Math.max(...known) || 1;
    const step = WIDTH / Math.max(1, values.length - 1);
    let line = "";
    let pen = "M";
    let first = null;
    let last = 0;
    values.forEach((value, place) => {
        if (value === null) {
            pen = line ? "L" : "M"; // a gap is bridged: a missed sample is no news
            return;
        }
        const x = (place * step).toFixed(1);
        line += `${pen}${x} ${(HEIGHT - EDGE - (value / high) * (HEIGHT - 2 * EDGE)).toFixed(1)}`;
        pen = "L";
        first ??= x;
        last = x;
    });
    svg.append(h("path", { class: "spark-area", d: `${line}L${last} ${HEIGHT}L${first} ${HEIGHT}Z` }), h("path", { class: "spark-line", d: line }));
    return svg;
}
