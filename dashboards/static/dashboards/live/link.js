// The connection to the server: a websocket, and requests every two seconds while sockets fail.

const RETRY_SECONDS = [1, 2, 4, 8, 15];
const PULL_SECONDS = 2;
const PULL_TIMEOUT_SECONDS = 8;
const SILENT_SECONDS = 45; // the server pings every 20
const ACK_SECONDS = 1;
const ACK_MESSAGES = 100;
const NOT_SIGNED_IN = 4401;
const FORBIDDEN = 4403;

/**
 * States: `loading` (nothing yet), `live` (socket), `pulling` (data comes, the socket does not), `down` (neither),
 * `refused` (signed out, or not allowed any more).
 */
export class Link {
    constructor({ socket, pull, staleSeconds, onData, onEvent = () => {}, onAnew = () => {}, onState }) {
        this.staleSeconds = staleSeconds; // if a socket sends no figures for so long, a request looks for newer ones
        this.socketAddress = socket;
        this.pullAddress = pull;
        this.onData = onData;
        this.onEvent = onEvent;
        this.onAnew = onAnew;
        this.onState = onState;
        this.state = "loading";
        this.cursor = null;
        this.epoch = null; // of the cursor: a restored database begins a new epoch
        this.fails = 0;
        this.lastDataAt = null;
        this.nextTryAt = null;
        this.filter = null;
        this.unacked = 0;
    }

    start() {
        this.pull();
        this.connect();
        setInterval(() => this.acknowledge(), ACK_SECONDS * 1000);
        setInterval(() => this.watch(), 1000);
        window.addEventListener("online", () => this.tryNow());
    }

    /** Set the filter of the feed's events. The server is told the filter again after each reconnect. */
    setFilter(filter) {
        this.filter = filter;
        this.send({ filter });
    }

    tryNow() {
        if (this.state === "live" || this.state === "refused") return;
        clearTimeout(this.retry);
        this.connect();
        this.pull();
    }

    connect() {
        this.nextTryAt = null;
        this.drop();
        const address = new URL(this.socketAddress, location.href);
        address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
        let socket;
        try {
            socket = new WebSocket(address, ["queueops.v1"]);
        } catch {
            this.failed();
            return;
        }
        this.socket = socket;
        this.heardAt = Date.now();
        this.unacked = 0; // a new socket knows nothing of the old socket's messages
        socket.addEventListener("open", () => {
            if (this.filter) this.send({ filter: this.filter }); // first: otherwise the resume ignores the filter
            if (this.cursor !== null) this.send({ resume: this.cursor, epoch: this.epoch });
        });
        socket.addEventListener("message", ({ data }) => socket === this.socket && this.hear(JSON.parse(data)));
        socket.addEventListener("close", ({ code }) => socket === this.socket && this.failed(code));
    }

    hear(message) {
        this.heardAt = Date.now();
        if (typeof message.cursor === "number") {
            if (this.epoch !== null && this.epoch !== message.epoch) this.onAnew(); // a new epoch uses ids again
            this.cursor = message.cursor;
            this.epoch = message.epoch;
            this.unacked += 1;
            if (this.unacked >= ACK_MESSAGES) this.acknowledge();
        }
        switch (message.type) {
            case "snapshot":
            case "stats":
            case "state":
                this.fails = 0;
                this.got(message, "live");
                break;
            case "event":
                this.onEvent(message.event, message.skipped ?? 0);
                break;
            case "ping":
                this.send({ pong: true });
                break;
        }
    }

    acknowledge() {
        if (!this.unacked) return;
        this.unacked = 0;
        this.send({ ack: this.cursor, epoch: this.epoch });
    }

    send(message) {
        if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
    }

    failed(code) {
        this.drop();
        if (code === NOT_SIGNED_IN || code === FORBIDDEN) {
            this.pull(); // the answer's status confirms it
        }
        const seconds = RETRY_SECONDS[Math.min(this.fails, RETRY_SECONDS.length - 1)];
        this.fails += 1;
        const wait = seconds * 1000 * (0.8 + 0.4 * Math.random());
        this.nextTryAt = Date.now() + wait;
        this.retry = setTimeout(() => this.connect(), wait);
        if (this.state === "live") this.change("pulling");
        this.pull();
    }

    drop() {
        const socket = this.socket;
        this.socket = null;
        if (socket && socket.readyState <= WebSocket.OPEN) socket.close();
    }

    watch() {
        if (this.socket && Date.now() - this.heardAt > SILENT_SECONDS * 1000) this.failed();
        if (this.state === "live" && Date.now() - this.lastDataAt > this.staleSeconds * 1000) this.change("pulling");
        if (this.state !== "live") {
            this.onState(this);
            if (!this.pulling && Date.now() - (this.pulledAt ?? 0) >= PULL_SECONDS * 1000) this.pull();
        }
    }

    async pull() {
        if (this.pulling || this.state === "live" || this.state === "refused") return;
        this.pulling = true;
        this.pulledAt = Date.now();
        const stop = new AbortController();
        const timer = setTimeout(() => stop.abort(), PULL_TIMEOUT_SECONDS * 1000);
        try {
            const answer = await fetch(this.pullAddress, { signal: stop.signal, headers: { Accept: "application/json" } });
            if (answer.status === 401 || answer.status === 403) {
                clearTimeout(this.retry);
                this.drop();
                this.change("refused");
            } else if (answer.ok) {
                const message = await answer.json();
                if (this.state !== "live") this.got(message, "pulling");
            } else {
                this.missed();
            }
        } catch {
            this.missed();
        } finally {
            clearTimeout(timer);
            this.pulling = false;
        }
    }

    missed() {
        if (this.state !== "live") this.change("down");
    }

    got(message, state) {
        this.lastDataAt = Date.now();
        this.onData(message.data, message.at);
        this.change(state);
    }

    change(state) {
        if (state === this.state) return;
        const before = this.state;
        this.state = state;
        this.onState(this, before);
    }
}
