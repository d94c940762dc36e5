// The script editor: Tab indents by four spaces; after Escape the next Tab moves the focus as usual. `#L12` selects a line.

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

// `#L12` in the address selects that line: links from a failed job lead to where the exception came from.
const line = Number(/^#L(\d{1,7})$/.exec(location.hash)?.[1] ?? 0);
if (area && line > 0) {
  const before = area.value.split("\n").slice(0, line - 1);
  const start = before.reduce((sum, text) => sum + text.length + 1, 0);
  const end = area.value.indexOf("\n", start);
  area.focus({ preventScroll: true });
  area.setSelectionRange(start, end < 0 ? area.value.length : end);
  const height = parseFloat(getComputedStyle(area).lineHeight) || 20;
  area.scrollTop = Math.max(0, (line - 5) * height);
}
