// Reads the page again every `data-look-again` seconds while the page asks for that, and puts the new figures in place.

const shown = () => document.querySelector("[data-look-again]");

async function look() {
    try {
        const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
        if (!answer.ok || answer.redirected) return location.reload();
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const now = page.querySelector("[data-look-again]");
        if (!now) return location.reload(); // the operation has ended: the page offers other buttons
        shown().replaceChildren(...now.childNodes);
    } catch {
        // Go on: the server may just be starting again.
    }
    soon();
}

function soon() {
    setTimeout(look, 1000 * Number(shown().dataset.lookAgain));
}

if (shown()) soon();
