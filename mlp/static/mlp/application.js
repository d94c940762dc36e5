// An application's page: a live log while it is running or starting, and test requests without leaving the page.

import { Log } from "./log.js";
import { watch } from "./refresh.js";

const log = new Log(document.querySelector("[data-log]"));

watch({ then: () => log.following(Boolean(document.querySelector("[data-follow-log]"))) });

const form = document.querySelector("[data-try]");
let asking = null;

// Sends the form and takes only the output from the page in the response.
async function ask() {
  asking?.abort();
  asking = new AbortController();
  const button = form.querySelector("button");
  button.disabled = true;
  const old = document.querySelector("[data-answer]");
  try {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form), credentials: "same-origin", signal: asking.signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-answer]");
    if (!fresh) { location.reload(); return; } // the session has ended
    const wrong = page.querySelector("#input-error");
    if (wrong) fresh.replaceChildren(document.adoptNode(wrong));
    old.replaceWith(document.adoptNode(fresh));
    form.querySelector("#input-error")?.remove();
    form.querySelector("#input").toggleAttribute("aria-invalid", Boolean(wrong));
    if (wrong) form.querySelector("#input").setAttribute("aria-invalid", "true");
  } catch {
    old.textContent = form.dataset.wordLost;
  } finally {
    button.disabled = false;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
form.querySelector("#input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); }
});
