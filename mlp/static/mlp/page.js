// On every page: theme, copy buttons, confirmation dialogs, local times, and forms that are submitted once and survive an
// expired session. The pages work without it.

const root = document.documentElement;
const words = (document.querySelector("[data-word-lost]") ?? document.body).dataset;

// --- theme: the system's by default -----------------------------------------------------------------------------------
const THEMES = ["auto", "light", "dark"];
const themeSwitch = document.querySelector("[data-theme-switch]");

function showTheme() {
  const theme = root.dataset.theme;
  themeSwitch.querySelector("[data-theme-word]").textContent = themeSwitch.dataset[theme];
}

if (themeSwitch) {
  themeSwitch.hidden = false;
  showTheme();
  themeSwitch.addEventListener("click", () => {
    root.dataset.theme = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
    showTheme();
  });
}

// --- copying ----------------------------------------------------------------------------------------------------------
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // the Clipboard API needs a secure origin
  area.value = text;
  area.className = "sr";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  await copy(document.querySelector(button.dataset.copy).textContent.trim());
  const use = button.querySelector("use");
  const label = button.querySelector("[data-copy-word]");
  const before = [use?.getAttribute("href"), label?.textContent];
  if (button.dataset.busy) return;
  button.dataset.busy = "1";
  use?.setAttribute("href", before[0].replace(/#.*/, "#done"));
  if (label) label.textContent = words.wordCopied;
  button.setAttribute("aria-description", words.wordCopied);
  setTimeout(() => {
    use?.setAttribute("href", before[0]);
    if (label) label.textContent = before[1];
    button.removeAttribute("aria-description");
    delete button.dataset.busy;
  }, 1400);
});

// --- forms: confirmed, submitted once, restored -----------------------------------------------------------------------
const dialog = document.querySelector("#confirm");

const goBack = dialog?.querySelector("button[value=no]");
const goBackWord = goBack?.textContent;

function ask(form) {
  dialog.querySelector("#confirm-title").textContent = form.dataset.confirmTitle;
  dialog.querySelector("#confirm-words").textContent = form.dataset.confirm;
  dialog.querySelector("#confirm-yes").textContent = form.dataset.confirmButton;
  goBack.textContent = form.dataset.confirmBack ?? goBackWord;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (form.dataset.sent) { event.preventDefault(); return; } // a double click submits once
  if (form.dataset.confirm && !form.dataset.agreed) {
    event.preventDefault();
    if (await ask(form)) {
      form.dataset.agreed = "1";
      form.requestSubmit(event.submitter);
    }
    return;
  }
  form.dataset.sent = "1";
  if (form.dataset.draft) keep(form);
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) { delete form.dataset.sent; delete form.dataset.agreed; } // returned to by the back button
});

// Keeps form input when the session has expired: submitting leads to the log-in page, and from there back to the form.
// Also after an error or when there is no response: the input is restored when the form is opened again.
const DRAFT = "mlp-draft:";
const HIDDEN = new Set(["csrfmiddlewaretoken", "mark", "was"]);

function keep(form) {
  const values = [...new FormData(form)].filter(([name, value]) => !HIDDEN.has(name) && typeof value === "string");
  sessionStorage.setItem(DRAFT + form.dataset.draft, JSON.stringify(values));
}

function restore(form) {
  const values = JSON.parse(sessionStorage.getItem(DRAFT + form.dataset.draft) ?? "null");
  if (!values || form.querySelector("[aria-invalid]")) return;
  for (const [name, value] of values) {
    for (const field of form.querySelectorAll(`[name="${CSS.escape(name)}"]`)) {
      if (field.type === "checkbox") field.checked ||= field.value === value;
      else field.value = value;
    }
  }
  for (let box = form.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
}

if (!document.querySelector("#regist_login, .wrong")) {
  for (const form of document.querySelectorAll("form[data-draft]")) restore(form);
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(DRAFT)) sessionStorage.removeItem(key);
}

// --- names: the server makes one from the title where none is entered; this one is shown, as far as it is free --------
for (const name of document.querySelectorAll("[data-named-by]")) {
  const title = document.getElementById(name.dataset.namedBy);
  const show = () => {
    name.placeholder = title.value.toLowerCase().normalize("NFKD").replace(/[^a-z]/g, "").slice(0, 48);
  };
  title.addEventListener("input", show);
  show();
}

// --- times: in the browser's time zone; recent ones as "3 minutes ago" ------------------------------------------------
const whole = new Intl.DateTimeFormat(root.lang, { dateStyle: "medium", timeStyle: "medium" });
const near = new Intl.RelativeTimeFormat(root.lang, { numeric: "auto" });
const STEPS = [["second", 60], ["minute", 60], ["hour", 24], ["day", 7]];

function ago(date) {
  let amount = (date - Date.now()) / 1000;
  for (const [unit, next] of STEPS) {
    if (Math.abs(amount) < next) return near.format(Math.trunc(amount), unit).replace(/(\d)(?=\p{Script=Han})/u, "$1 ");
    amount /= next;
  }
  return whole.format(date);
}

// Prepares a part of the page: times and copy buttons. Called again for regions that a refresh has replaced.
export function hydrate(part) {
  for (const time of part.querySelectorAll("time[data-time]")) {
    const date = new Date(time.dateTime);
    if (Number.isNaN(date.valueOf())) continue;
    const text = time.dataset.time === "near" ? ago(date) : whole.format(date);
    if (time.textContent !== text) time.textContent = text;
    time.title = whole.format(date);
  }
  for (const button of part.querySelectorAll("[data-copy]")) button.hidden = false;
}

hydrate(document);
setInterval(() => { if (!document.hidden) hydrate(document); }, 20000);

// --- durations of what is running: counted on, from what the server has said of them -----------------------------------
const FORMS = JSON.parse(root.dataset.durations ?? "[]"); // the administration's pages have none, and nothing that ticks

function duration(seconds) {
  const units = { d: Math.floor(seconds / 86400), h: Math.floor(seconds / 3600), m: Math.floor(seconds / 60), s: seconds };
  const form = FORMS[seconds < 60 ? 0 : seconds < 3600 ? 1 : seconds < 172800 ? 2 : 3];
  if (seconds >= 172800) units.h %= 24;
  units.m %= 60;
  units.s %= 60;
  return form.replace(/%\((\w)\)d/g, (_, unit) => units[unit]);
}

function tick() {
  if (document.hidden) return;
  for (const element of document.querySelectorAll("[data-ticking]")) {
    const { ticking, step, words } = element.dataset;
    if (element.counted !== ticking) Object.assign(element, { counted: ticking, began: performance.now() }); // a new word of the server
    const seconds = Number(ticking) + Number(step) * Math.floor((performance.now() - element.began) / 1000);
    const text = words.replace("{}", duration(Math.max(0, seconds)));
    if (element.textContent !== text) element.textContent = text;
  }
}

setInterval(tick, 1000);
tick();

// On a phone the navigation is a row that may be wider than the screen.
document.querySelector(".main-nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// Opens a collapsed form when a link leads to it.
function unfold() {
  const target = location.hash.length > 1 && document.querySelector(`details[id="${CSS.escape(location.hash.slice(1))}"]`);
  if (target) {
    target.open = true;
    target.querySelector("input:not([type=hidden]):not([type=file])")?.focus({ preventScroll: true });
  }
}
addEventListener("hashchange", unfold);
unfold();

// --- keyboard shortcut: / focuses the search --------------------------------------------------------------------------
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable]")) return;
  const field = document.querySelector("[data-search]");
  if (field) { event.preventDefault(); field.focus(); }
});

// --- buttons that need a choice: offered once a box of the name in `data-needs` is ticked -----------------------------
function offer(form) {
  for (const part of form.querySelectorAll("[data-needs]")) {
    const boxes = [...form.querySelectorAll(`[name="${part.dataset.needs}"]`)];
    const chosen = boxes.some((box) => box.type === "hidden" || box.checked);
    if (part.tagName === "BUTTON") part.disabled = !chosen;
    else part.hidden = chosen;
  }
}
const needing = new Set([...document.querySelectorAll("[data-needs]")].map((part) => part.closest("form")));
for (const form of needing) {
  offer(form);
  form.addEventListener("change", () => offer(form));
}

// --- connection: a status line at the bottom of the page, shown only when needed --------------------------------------
const line = document.querySelector("[data-link-state]");
const troubled = new Set();
let hiding = 0;

// Reports that a connection was lost or restored; `who` is any object that identifies it.
export function connection(who, good) {
  const before = troubled.size;
  if (good) troubled.delete(who);
  else troubled.add(who);
  if (line.dataset.ended) return;
  if (troubled.size) {
    clearTimeout(hiding);
    line.textContent = words.wordLost;
    line.hidden = false;
  } else if (before) {
    clearTimeout(hiding);
    line.textContent = words.wordBack;
    hiding = setTimeout(() => { line.hidden = true; }, 1800);
  }
}

// Shows that the session has ended, with a link to log in.
export function sessionEnded() {
  if (location.pathname.startsWith("/u/") && document.querySelector(".frame.bare")) { // opened by a link that has ended
    location.replace("/shared/link");
    return;
  }
  if (line.dataset.ended) return;
  line.dataset.ended = "1";
  const link = document.createElement("a");
  link.href = `/regist_login?next=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = words.wordLogin;
  line.replaceChildren(`${words.wordEnded} `, link);
  line.hidden = false;
}
