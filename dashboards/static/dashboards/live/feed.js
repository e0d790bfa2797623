// The newest events. They come one by one from the socket, and with every snapshot; an id is shown once.

const MAX_KEPT = 200;
const MAX_SHOWN = 60;

export class Feed {
    constructor(form, address, { onChange, onFilter }) {
        this.known = new Map();
        this.wanted = { project: "", service: "", state: "" };
        this.address = address;
        this.isHeld = false;
        this.skipped = 0;
        this.onChange = onChange;
        form.addEventListener("submit", (event) => event.preventDefault());
        form.addEventListener("input", () => {
            clearTimeout(this.waits);
            this.waits = setTimeout(() => this.choose(form, onFilter), 300);
        });
        const hold = form.querySelector("#feed-pause");
        hold.addEventListener("click", () => {
            this.isHeld = !this.isHeld;
            hold.setAttribute("aria-pressed", String(this.isHeld));
            hold.lastElementChild.textContent = this.isHeld ? "Go on" : "Hold";
            hold.firstElementChild.textContent = this.isHeld ? "play_arrow" : "pause";
            this.onChange();
        });
    }

    async choose(form, onFilter) {
        const given = new FormData(form);
        this.wanted = { project: given.get("project").trim(), service: given.get("service").trim(), state: given.get("state") };
        this.forget();
        onFilter(Object.fromEntries(Object.entries(this.wanted).filter(([, value]) => value)));
        this.onChange();
        try {
            const answer = await fetch(`${this.address}?${new URLSearchParams(this.wanted)}`);
            if (answer.ok) this.add((await answer.json()).feed);
        } catch {
            return; // the banner says that the server does not answer
        }
    }

    forget() {
        this.known.clear();
        this.skipped = 0;
    }

    add(events, skipped = 0) {
        this.skipped += skipped;
        for (const event of events) {
            if (this.fits(event)) this.known.set(event.id, { ...this.known.get(event.id), ...event });
        }
        if (this.known.size > MAX_KEPT) {
            for (const id of [...this.known.keys()].sort((a, b) => a - b).slice(0, this.known.size - MAX_KEPT)) this.known.delete(id);
        }
        if (!this.isHeld) this.onChange();
    }

    /** An event of the socket does not name its service: the server has filtered it. */
    fits(event) {
        const { project, service, state } = this.wanted;
        return (!project || event.project === project) && (!state || event.to === state)
            && (!service || event.service === undefined || event.service === service);
    }

    rows() {
        return [...this.known.values()].sort((a, b) => b.id - a.id).slice(0, MAX_SHOWN);
    }
}
