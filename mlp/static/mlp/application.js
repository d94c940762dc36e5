// An application's page: a live log while it is running or starting, and test requests without leaving the page.

import * as chat from "./chat.js";
import { Log } from "./log.js";
import { watch } from "./refresh.js";

const log = new Log(document.querySelector("[data-log]"));

watch({ then: () => log.following(Boolean(document.querySelector("[data-follow-log]"))) });

const form = document.querySelector("[data-try]");
const stop = form.querySelector("[data-stop]");
let asking = null;
stop?.addEventListener("click", () => asking?.abort());

// Sends the form and takes only the output from the page in the response.
async function ask() {
  const button = form.querySelector("button");
  if (button.disabled) return;
  asking = new AbortController();
  button.disabled = true;
  if (stop) stop.hidden = false;
  const old = document.querySelector("[data-answer]");
  try {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form), credentials: "same-origin", headers: chat.headers(form), signal: asking.signal });
    if (chat.isOurs(form, answer)) {
      form.querySelector("#input-error")?.remove();
      form.querySelector("#input").removeAttribute("aria-invalid");
      return await chat.show(form, old, answer);
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-answer]");
    if (!fresh) { location.reload(); return; } // the session has ended
    const wrong = page.querySelector("#input-error");
    if (wrong) fresh.replaceChildren(document.adoptNode(wrong));
    old.replaceWith(document.adoptNode(fresh));
    form.querySelector("#input-error")?.remove();
    form.querySelector("#input").toggleAttribute("aria-invalid", Boolean(wrong));
    if (wrong) form.querySelector("#input").setAttribute("aria-invalid", "true");
  } catch (problem) {
    old.textContent = problem.name === "AbortError" ? form.dataset.wordStopped : form.dataset.wordLost;
  } finally {
    button.disabled = false;
    if (stop) stop.hidden = true;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
form.querySelector("#input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); }
});
