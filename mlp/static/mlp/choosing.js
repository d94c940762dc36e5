// Files and folders that are chosen or dropped, for the forms of datasets and scripts.

// What desktops and version control leave in folders, which is no data; datasets/data_client/scan.py has the same.
const LITTER = new Set([".DS_Store", ".Spotlight-V100", ".Trashes", ".fseventsd", "__MACOSX", "Thumbs.db", "ehthumbs.db",
  "desktop.ini", "$RECYCLE.BIN", "System Volume Information", ".git", ".hg", ".svn"]);

export const isLitter = (path) => path.split("/").some((name) => LITTER.has(name) || name.startsWith("._"));

async function entriesOf(entry, base = "") {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ path: base + entry.name, file }];
  }
  const reader = entry.createReader();
  const entries = [];
  for (;;) { // readEntries returns at most a hundred at a time
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) break;
    for (const one of some) entries.push(...(await entriesOf(one, `${base}${entry.name}/`)));
  }
  return entries;
}

// Shows the form's drop area. `choose` is called with [{ path, file }] of what is chosen or dropped there.
export function chooser(form, choose) {
  const drop = form.querySelector("[data-drop]");
  drop.hidden = false;
  for (const input of form.querySelectorAll("[data-files]")) {
    input.addEventListener("change", () => {
      choose([...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
    });
  }
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("is-over", kind === "dragover");
    });
  }
  drop.addEventListener("drop", async (event) => {
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    choose((await Promise.all(entries.map((entry) => entriesOf(entry)))).flat());
  });
}

const unit = new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: 1 });

export const numbered = (value) => unit.format(value);

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (value >= 1024 && step < units.length - 1) { value /= 1024; step += 1; }
  return `${unit.format(value)} ${units[step]}`;
}

// Escapes a path as the data service does, so that addresses can be compared.
export function escaped(path) {
  const one = (part) => encodeURIComponent(part).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
  return path.split("/").map(one).join("/");
}
