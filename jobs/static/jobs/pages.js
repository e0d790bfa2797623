// What the admin's own pages lack: where the content is, the names of select2's fields, and times in the viewer's zone.

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
