// A curve of the last 15 minutes, without axes: the tile says the figure, the curve shows whether it rises.

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
    const place = (value, index) => [(index * step).toFixed(1), (HEIGHT - EDGE - (value / high) * (HEIGHT - 2 * EDGE)).toFixed(1)];
    for (const part of parts(values)) {
        const points = part.map(([value, index]) => place(value, index));
        const line = `M${points.map((point) => point.join(" ")).join("L")}`;
        const [first, last] = [points[0][0], points[points.length - 1][0]];
        svg.append(h("path", { class: "spark-area", d: `${line}L${last} ${HEIGHT}L${first} ${HEIGHT}Z` }), h("path", { class: "spark-line", d: points.length > 1 ? line : `${line}h1` }));
    }
    return svg;
}

/** Split the values at gaps: a curve over a gap would show values that nobody measured. */
function parts(values) {
    const found = [];
    values.forEach((value, index) => {
        if (value === null) return;
        const isNew = index === 0 || values[index - 1] === null || !found.length;
        if (isNew) found.push([]);
        found[found.length - 1].push([value, index]);
    });
    return found;
}
