// The operators' actions. The page only offers them; the server checks the permission at every request.

import { tell } from "./frame.js";
import { number } from "./format.js";

const byId = (id) => document.getElementById(id);

const ASKED = {
    pause: { title: (name) => `Pause ${name}`, explains: (left) => `None of its ${number(Number(left))} open items starts until it is resumed. Running ones go on.`, yes: "Pause", needsReason: false },
    resume: { title: (name) => `Resume ${name}`, explains: (left) => `Its ${number(Number(left))} open items may start again, unless another pause covers them.`, yes: "Resume", needsReason: false },
    pauseEverything: { title: () => "Pause everything?", explains: () => "Nothing new starts, in any project, until it is resumed. Running jobs go on.", yes: "Pause everything", needsReason: false, address: () => "/live/pauses/everything" },
    resumePause: { title: (name) => `Resume ${name}`, explains: (left) => `${left === "" ? "Its" : number(Number(left))} waiting jobs may start again, unless another pause covers them.`, yes: "Resume", needsReason: false, address: ({ pause }) => `/live/pauses/${encodeURIComponent(pause)}/resume` },
    holdRamp: { title: () => "Hold the ramp?", explains: () => "Every limit stays at the share that it has reached, until somebody continues or ends the ramp.", yes: "Hold", needsReason: false, address: () => "/live/ramp/hold" },
    continueRamp: { title: () => "Continue the ramp?", explains: () => "The share grows on from where it stands, at the pace it had.", yes: "Continue", needsReason: false, address: () => "/live/ramp/continue" },
    endRamp: { title: () => "End the ramp?", explains: () => "Every limit is open at once; services without a limit use all slots.", yes: "End now", needsReason: false, address: () => "/live/ramp/end" },
    cancel: { title: (name) => `Cancel ${name}?`, explains: (left) => `${number(Number(left))} items have not ended and will be cancelled, running ones too. This cannot be taken back.`, yes: "Yes, cancel", needsReason: true },
};

export async function post(address, values) {
    const body = new URLSearchParams(values);
    const token = byId("csrf").elements.csrfmiddlewaretoken.value;
    const answer = await fetch(address, { method: "POST", body, headers: { "X-CSRFToken": token, Accept: "application/json" } });
    const isJson = (answer.headers.get("Content-Type") ?? "").includes("json");
    const said = isJson ? await answer.json() : {};
    if (answer.ok) return said;
    const faults = Object.values(said.error?.fields ?? {}).flat().join(" ");
    throw new Error(faults || said.error?.message || "It was refused. Load the page again.");
}

function ask(verb, { name, left, everything }) {
    const { title, explains, yes, needsReason } = ASKED[verb];
    const dialog = byId("dialog");
    const fault = byId("dialog-fault");
    const reason = byId("dialog-reason");
    byId("dialog-title").textContent = title(name);
    byId("dialog-explains").textContent = explains(left);
    byId("dialog-reason-label").textContent = needsReason ? "Reason (needed, kept in the audit trail)" : "Reason (kept in the audit trail)";
    byId("dialog-yes").textContent = yes;
    byId("dialog-yes").className = needsReason ? "danger" : "";
    reason.value = "";
    byId("dialog-over").hidden = !everything;
    byId("dialog-over-minutes").value = everything ? 10 : "";
    fault.hidden = true;
    dialog.showModal();
    reason.focus();
    return { dialog, fault, reason };
}

function act(verb, about) {
    const { dialog, fault, reason } = ask(verb, about);
    const address = ASKED[verb].address?.(about) ?? `/live/batches/${encodeURIComponent(about.batch)}/${verb}`;
    byId("dialog-no").onclick = () => dialog.close();
    byId("dialog-form").onsubmit = async (event) => {
        event.preventDefault();
        byId("dialog-yes").disabled = true;
        try {
            const over = byId("dialog-over-minutes").value;
            const done = await post(address, { reason: reason.value, ...(about.everything ? { over_minutes: over } : {}) });
            dialog.close();
            tell(done.report, "good");
        } catch (error) {
            fault.textContent = error.message;
            fault.hidden = false;
        } finally {
            byId("dialog-yes").disabled = false;
        }
    };
}

async function acknowledge(button) {
    button.disabled = true;
    try {
        tell((await post(`/live/alerts/${encodeURIComponent(button.dataset.alert)}/acknowledge`, {})).report, "good");
    } catch (error) {
        tell(error.message, "bad");
        button.disabled = false;
    }
}

export function offerActions(holder) {
    holder.addEventListener("click", ({ target }) => {
        const button = target.closest("button[data-action]");
        if (!button) return;
        if (button.dataset.action in ASKED) act(button.dataset.action, button.dataset);
        if (button.dataset.action === "acknowledge") acknowledge(button);
    });
}
