// The chart of lines over time: drag over bars, or hold Shift with the arrow keys, to choose a time range. The fields
// "from" and "to" are in the reader's time zone; the address has milliseconds.

const SHAPE = "http://www.w3.org/2000/svg";

function bars() {
  return [...document.querySelectorAll("svg.spans a[data-since]")];
}

function go(since, until) {
  const address = new URL(location.href);
  address.searchParams.set("since", since);
  address.searchParams.set("until", until);
  address.searchParams.delete("after");
  address.searchParams.delete("hours");
  location.assign(address);
}

function mark(first, last) {
  const all = bars();
  const [low, high] = first <= last ? [first, last] : [last, first];
  all.forEach((bar, place) => bar.classList.toggle("chosen", place >= low && place <= high));
  return [all[low], all[high]];
}

function clear() {
  for (const bar of bars()) bar.classList.remove("chosen");
}

function placeOf(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const share = Math.min(0.9999, Math.max(0, (event.clientX - box.left) / box.width));
  return Math.floor(share * bars().length);
}

let from = null; // the bar where a drag or a choice with keys began
let to = null;
let dragged = false;

function down(event) {
  if (event.button !== 0) return;
  [from, to, dragged] = [placeOf(event), null, false];
}

function move(event) {
  if (from === null || !(event.buttons & 1)) return;
  to = placeOf(event);
  if (to !== from) dragged = true;
  if (dragged) mark(from, to);
}

function up() {
  if (from !== null && dragged && to !== null) {
    const [first, last] = mark(from, to);
    go(first.dataset.since, last.dataset.until);
  }
  from = to = null;
}

function key(event) {
  const all = bars();
  const here = all.indexOf(event.target.closest("a[data-since]"));
  if (here < 0) return;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) {
    event.preventDefault();
    const next = Math.min(all.length - 1, Math.max(0, here + step));
    if (event.shiftKey) { from ??= here; to = next; mark(from, to); } else { from = to = null; clear(); }
    all[next].focus();
  } else if (event.key === "Enter" && from !== null && to !== null) {
    event.preventDefault();
    const [first, last] = mark(from, to);
    go(first.dataset.since, last.dataset.until);
  } else if (event.key === "Escape") {
    from = to = null;
    clear();
  }
}

export function zoomable() {
  const chart = document.querySelector("svg.spans");
  if (!chart || chart.namespaceURI !== SHAPE) return;
  chart.addEventListener("pointerdown", down);
  chart.addEventListener("pointermove", move);
  addEventListener("pointerup", up);
  chart.addEventListener("click", (event) => { if (dragged) { event.preventDefault(); dragged = false; } }, true);
  chart.addEventListener("dragstart", (event) => event.preventDefault());
  chart.addEventListener("keydown", key);
}

function local(ms) {
  const at = new Date(Number(ms));
  return new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

export function timeFields() {
  for (const field of document.querySelectorAll("input[data-ms]")) {
    const hidden = field.form.elements[field.dataset.ms];
    if (hidden.value) field.value = local(hidden.value);
    field.closest("[hidden]")?.removeAttribute("hidden");
    field.addEventListener("change", () => {
      hidden.value = field.value ? String(new Date(field.value).getTime()) : "";
      hidden.disabled = !hidden.value;
    });
    hidden.disabled = !hidden.value;
  }
}
