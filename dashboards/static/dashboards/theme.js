// Light or dark, before anything is drawn. The admin keeps the choice under the same name: one choice for both.
(() => {
    const KEY = "adminTheme";
    const ORDER = ["auto", "light", "dark"];
    const SIGNS = { auto: "brightness_auto", light: "light_mode", dark: "dark_mode" };
    const WORDS = { auto: "As the system", light: "Light", dark: "Dark" };
    const system = window.matchMedia("(prefers-color-scheme: dark)");

    function chosen() {
        try {
            const kept = JSON.parse(localStorage.getItem(KEY) ?? '"auto"');
            return ORDER.includes(kept) ? kept : "auto";
        } catch {
            return "auto";
        }
    }

    function apply() {
        const dark = chosen() === "dark" || (chosen() === "auto" && system.matches);
        document.documentElement.classList.toggle("dark", dark);
        const button = document.getElementById("theme");
        if (!button) return;
        button.hidden = false;
        button.firstElementChild.textContent = SIGNS[chosen()];
        button.lastElementChild.textContent = WORDS[chosen()];
        button.setAttribute("aria-label", `Colours: ${WORDS[chosen()]}. Change.`);
        button.title = `Colours: ${WORDS[chosen()]}`;
    }

    apply();
    system.addEventListener("change", apply);
    window.addEventListener("storage", apply);
    document.addEventListener("DOMContentLoaded", () => {
        apply();
        document.getElementById("theme")?.addEventListener("click", () => {
            const next = ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length];
            try {
                localStorage.setItem(KEY, JSON.stringify(next));
            } catch {
                return; // storage is forbidden here: the system's choice stays
            }
            apply();
        });
    });
})();
