// The script editor: Tab indents by four spaces; after Escape the next Tab moves the focus as usual.

const area = document.querySelector("[data-editor]");
let free = false;

area?.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { free = true; return; }
  if (event.key === "Tab" && !free && !event.shiftKey && !event.ctrlKey && !event.altKey) {
    event.preventDefault();
    document.execCommand("insertText", false, "    "); // the only way that supports undo
    return;
  }
  if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    area.form.requestSubmit();
  }
  free = false;
});

let saved = area?.value;
area?.form.addEventListener("submit", () => { saved = area.value; });
addEventListener("beforeunload", (event) => { if (area && area.value !== saved) event.preventDefault(); });
