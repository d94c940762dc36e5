// The next three runs of the cron expression in a form, in the time zone of the form, while they are typed.

const SHOWN = 3;
const PAUSE_MS = 250; // after a key

for (const box of document.querySelectorAll("[data-next-times]")) follow(box);

function follow(box) {
  const form = box.closest("form");
  const { cron, time_zone: zone } = form.elements;
  let timer = 0;
  let asked = 0;

  async function ask() {
    const mine = ++asked;
    const given = { cron: cron.value.trim(), time_zone: zone.value.trim() || "UTC" };
    box.hidden = !given.cron;
    if (!given.cron) return;
    const answer = await fetch(box.dataset.address, {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value },
      body: JSON.stringify(given),
    }).catch(() => null);
    const result = await answer?.json().catch(() => null);
    if (mine !== asked) return; // another key was pressed meanwhile
    box.hidden = !result;
    if (result) show(answer.ok ? result.times.slice(0, SHOWN) : [], given.time_zone, result.msg ?? "");
  }

  function show(times, zoneName, problem) {
    box.querySelector("[data-problem]").textContent = problem;
    box.querySelector("[data-problem]").hidden = !problem;
    box.querySelector("[data-found]").hidden = Boolean(problem);
    box.querySelector("[data-zone]").textContent = `(${zoneName})`;
    box.querySelector("ol").replaceChildren(...times.map((text) => line(new Date(text), zoneName)));
  }

  for (const field of [cron, zone]) {
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(ask, PAUSE_MS);
    });
  }
  ask();
}

function line(date, timeZone) {
  const form = { weekday: "short", year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
  const time = document.createElement("time");
  time.dateTime = date.toISOString();
  time.textContent = new Intl.DateTimeFormat(document.documentElement.lang, { ...form, timeZone }).format(date);
  const item = document.createElement("li");
  item.append(time);
  return item;
}
