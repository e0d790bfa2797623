// Adds to the admin's pages: the role of the content, names for select2's fields, times in the viewer's zone, and forms
// that are sent once.

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const utc = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium", timeZone: "UTC" });

function complete() {
    document.getElementById("main")?.setAttribute("role", "main");
    for (const time of document.querySelectorAll("time.qo-time[datetime]:not([data-zone])")) {
        const moment = new Date(time.dateTime);
        time.dataset.zone = "viewer";
        time.title = `${local.format(moment)} (${utc.format(moment)} UTC)`;
    }
    for (const field of document.querySelectorAll(".select2-search__field:not([aria-label])")) {
        const select = field.closest(".select2-container")?.previousElementSibling;
        const label = select?.id && document.querySelector(`label[for="${CSS.escape(select.id)}"]`);
        field.setAttribute("aria-label", label?.textContent.trim() || "Search");
    }
}

addEventListener("DOMContentLoaded", () => {
    complete();
    new MutationObserver(complete).observe(document.body, { childList: true, subtree: true }); // select2 draws late
});

// A form that is sent twice at once, as by a double click, would do its work twice.
const SENT_AGAIN_MS = 5000; // a form whose answer is a file stays, and may be sent again
const sent = new WeakMap();

addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.method !== "post") return;
    if (event.timeStamp - (sent.get(event.target) ?? -Infinity) < SENT_AGAIN_MS) event.preventDefault();
    else sent.set(event.target, event.timeStamp);
});
