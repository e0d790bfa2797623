// Elements are made here and nowhere else. Text goes in by textContent alone, so that what producers, providers and
// operators wrote is shown and never run.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "line", "text", "g", "rect", "circle"]);
const ADDRESS = /^(\/(?!\/)|#|\?)/; // links stay on this site

/** Make an element. `given`: attributes, with `vars` for CSS variables; children: nodes, text, or nothing. */
export function h(tag, given = {}, ...children) {
    const made = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(given)) {
        if (value === null || value === undefined || value === false) continue;
        if (name === "vars") {
            for (const [variable, set] of Object.entries(value)) made.style.setProperty(variable, set);
        } else if (name === "href" && !ADDRESS.test(value)) {
            continue;
        } else {
            made.setAttribute(name, value === true ? "" : String(value));
        }
    }
    add(made, children);
    return made;
}

function add(parent, children) {
    for (const child of children.flat(Infinity)) {
        if (child === null || child === undefined || child === false || child === "") continue;
        parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
}

/** Give `holder` these children. Elements that it has already are kept and changed, so that focus and hover stay. */
export function fill(holder, ...children) {
    const fresh = document.createDocumentFragment();
    add(fresh, children);
    match(holder, fresh);
}

export function icon(name) {
    return h("span", { class: "icon", "aria-hidden": "true" }, name);
}

const KEPT = new Set(["style", "open"]); // not replaced: `open` is a person's choice, `style` is changed below

function match(old, fresh) {
    const known = new Map();
    for (const child of old.children) if (child.dataset.key) known.set(child.dataset.key, child);
    let place = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
        const key = wanted.dataset?.key;
        const found = key ? known.get(key) : place;
        if (found && isAlike(found, wanted)) {
            if (found !== place) old.insertBefore(found, place);
            else place = place.nextSibling;
            become(found, wanted);
        } else {
            old.insertBefore(wanted, place);
        }
    }
    while (place) {
        const next = place.nextSibling;
        place.remove();
        place = next;
    }
}

function isAlike(old, fresh) {
    return old.nodeName === fresh.nodeName && old.dataset?.key === fresh.dataset?.key;
}

function become(old, fresh) {
    if (old.nodeType === Node.TEXT_NODE) {
        if (old.data !== fresh.data) old.data = fresh.data;
        return;
    }
    for (const { name } of [...old.attributes]) {
        if (!KEPT.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
        if (!KEPT.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const variable of fresh.style ?? []) {
        const value = fresh.style.getPropertyValue(variable);
        if (old.style.getPropertyValue(variable) !== value) old.style.setProperty(variable, value);
    }
    match(old, fresh);
}
