/** Ctrl+K or ⌘K goes to the search, from anywhere on a page. */
addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    const dialog = document.getElementById("find-anywhere"); // of the admin, whose side bar may be hidden
    const box = (dialog ?? document).querySelector("[role=search] input[name=q]");
    if (!box) return;
    event.preventDefault();
    if (dialog && !dialog.open) dialog.showModal();
    box.focus();
    box.select();
});
