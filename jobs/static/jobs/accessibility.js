// What a screen reader misses in the admin's own pages: where the content is, and the names of select2's fields.

function complete() {
    document.getElementById("main")?.setAttribute("role", "main");
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
