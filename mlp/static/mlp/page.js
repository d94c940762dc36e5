// On every page: light or dark, copy buttons, confirmations, local times. The pages work without it.

const root = document.documentElement;
const themeSwitch = document.querySelector("[data-theme-switch]");

if (themeSwitch) {
  themeSwitch.hidden = false;
  themeSwitch.addEventListener("click", () => {
    const systemDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const dark = root.dataset.theme === "dark" || (root.dataset.theme !== "light" && systemDark);
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
  });
}

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue; // only there on secure origins
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent.trim());
    const words = button.textContent;
    button.textContent = "✓";
    setTimeout(() => { button.textContent = words; }, 1200);
  });
}

for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => {
    if (!confirm(form.dataset.confirm)) event.preventDefault();
  });
}

for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault(); // a double click sends once
    else if (!event.defaultPrevented) form.dataset.sent = "1";
  });
}
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent; // back again
});

const format = new Intl.DateTimeFormat(root.lang, { dateStyle: "medium", timeStyle: "medium" });
for (const time of document.querySelectorAll("time[data-time]")) {
  const date = new Date(time.dateTime);
  if (!Number.isNaN(date.valueOf())) time.textContent = format.format(date);
}
