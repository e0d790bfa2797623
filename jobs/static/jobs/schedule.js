// When a schedule fires next, by the viewer's clock.

const yours = new Intl.DateTimeFormat(undefined, {
    weekday: "short", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
});
for (const time of document.querySelectorAll("#next-fires tbody time")) time.textContent = yours.format(new Date(time.dateTime));
