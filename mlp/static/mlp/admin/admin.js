// The admin's few own scripts: copying a token, and what a card that is fetched does when it is logged out or cut off.
"use strict";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) {
    return;
  }
  const source = document.querySelector(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    // without TLS browsers keep the clipboard to themselves: select it, so that one keystroke copies it
    const range = document.createRange();
    range.selectNodeContents(source);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  button.lastElementChild.textContent = button.dataset.copied;
});

document.addEventListener("htmx:beforeSwap", (event) => {
  // the session has ended: the answer is the login page, which belongs into the window, not into a card
  if (new URL(event.detail.xhr.responseURL, location.href).pathname.endsWith("/login/")) {
    event.detail.shouldSwap = false;
    location.reload();
  }
});

for (const cutOff of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
  document.addEventListener(cutOff, (event) => event.detail.target?.classList.add("mlp-stale"));
}
document.addEventListener("htmx:afterSwap", (event) => event.detail.target?.classList.remove("mlp-stale"));
