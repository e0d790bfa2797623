// The operators' dashboard.

import { offerActions } from "./actions.js";
import * as blocks from "./blocks.js";
import { Charts } from "./charts.js";
import { fill } from "./dom.js";
import { Feed } from "./feed.js";
import { setServerTime } from "./format.js";
import { showState } from "./frame.js";
import { Link } from "./link.js";

const USERS_SECONDS = 30;
const DRAW_MILLISECONDS = 250;

const byId = (id) => document.getElementById(id);
const root = byId("page").dataset;
const page = {
    mayPause: "mayPause" in root,
    mayCancel: "mayCancel" in root,
    mayAcknowledge: "mayAcknowledge" in root,
    mayTune: "mayTune" in root,
    jobs: root.jobs,
    batches: root.batches,
    limits: root.limits,
};
let data = null;
let users = {};
let drawing = null;

function soon() {
    drawing ??= setTimeout(() => {
        drawing = null;
        draw();
    }, DRAW_MILLISECONDS);
}

function draw() {
    if (!data) return;
    const { health } = data;
    const verdict = byId("verdict");
    if (verdict.dataset.shown !== `${health.tone} ${health.text}`) {
        verdict.dataset.shown = `${health.tone} ${health.text}`; // otherwise screen readers would say it every second
        fill(verdict, blocks.verdict(health));
        document.title = `${health.text} | QueueOps`;
    }
    byId("health").dataset.tone = health.tone;
    fill(byId("cause"), blocks.cause(health));
    fill(byId("also"), blocks.also(health.also));
    fill(byId("steering"), blocks.steering(data.pauses, data.ramp, page));
    fill(byId("tiles"), data.tiles.map(blocks.tile));
    fill(byId("limits"), blocks.limits(data.limits, users, page, data.has_limits));
    fill(byId("batches"), blocks.batches(data.batches, page));
    fill(byId("alerts"), blocks.alerts(data.alerts, page));
    byId("objectives-card").hidden = !data.objectives.length;
    fill(byId("objectives"), blocks.objectives(data.objectives, data.more_objectives));
    fill(byId("executors"), blocks.executors(data.executors));
    if (!feed.isHeld) drawFeed();
}

function drawFeed() {
    fill(byId("feed"), blocks.feed(feed.rows(), page, feed.skipped));
}

const link = new Link({
    socket: root.socket,
    pull: root.pull,
    staleSeconds: 8,
    onData(given, at) {
        const isFirst = data === null;
        data = given;
        setServerTime(at);
        feed.add(given.feed);
        if (isFirst) draw();
        else soon();
    },
    onEvent(event, skipped) {
        feed.add([event], skipped);
    },
    onAnew() {
        feed.forget();
    },
    onState: showState,
});
const feed = new Feed(byId("feed-filter"), root.feed, {
    onChange: soon,
    onFilter: (filter) => link.setFilter(filter),
});

async function pullUsers() {
    try {
        const answer = await fetch(root.users);
        if (answer.ok) users = (await answer.json()).limits;
        soon();
    } catch {
        return; // the next round asks again; the banner tells if the server does not answer
    }
}

offerActions(byId("live"));
link.start();
new Charts(byId("charts"), byId("spans"), root.charts).start();
pullUsers();
setInterval(() => document.hidden || pullUsers(), USERS_SECONDS * 1000);
