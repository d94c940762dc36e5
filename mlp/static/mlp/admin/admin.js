// The admin's own scripts: copying a token, and cards whose request fails or whose session has ended.
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
    // the Clipboard API needs a secure origin: select the text and copy the selection
    const range = document.createRange();
    range.selectNodeContents(source);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  button.lastElementChild.textContent = button.dataset.copied;
});

document.addEventListener("htmx:beforeSwap", (event) => {
  // the session has ended: show the log-in page in the window, not in the card
  if (new URL(event.detail.xhr.responseURL, location.href).pathname.endsWith("/login/")) {
    event.detail.shouldSwap = false;
    location.reload();
  }
});

for (const cutOff of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
  document.addEventListener(cutOff, (event) => event.detail.target?.classList.add("mlp-stale"));
}
document.addEventListener("htmx:afterSwap", (event) => event.detail.target?.classList.remove("mlp-stale"));
