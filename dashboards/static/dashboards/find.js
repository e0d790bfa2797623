/** Ctrl+K or ⌘K goes to the search, from anywhere on a page. */
document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    const box = document.getElementById("find");
    if (!box) return;
    event.preventDefault();
    box.focus();
    box.select();
});
