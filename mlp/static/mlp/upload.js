// Uploads in the browser: creates the dataset, sends its files to the data service three at a time, reports progress, and
// reports "ready" when all bytes have arrived. Large files are sent in parts. When the files are selected again after an
// interruption, files and parts that have arrived are skipped. Without files, the form is submitted as usual.

const PARALLEL = 3;
const TRIES = 6;
const REPORT_EVERY_MS = 5000;
const PART = 16 * 1024 * 1024;
const NOTE = "mlp-upload:"; // localStorage: the modification time of a file whose upload has begun

class Refusal extends Error {}

const form = document.querySelector("form[data-upload]");
const part = (name) => form.querySelector(`[data-${name}]`);
const unit = new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: 1 });
let chosen = [];
let folder = "";
let working = false;
let lastReport = null; // the latest progress report, which may be under way

function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let step = 0;
  while (value >= 1024 && step < units.length - 1) { value /= 1024; step += 1; }
  return `${unit.format(value)} ${units[step]}`;
}

// --- choosing -----------------------------------------------------------------------------------------------------------
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

// Selects the files. A single folder is the dataset itself: its name is cut off the paths.
function choose(entries) {
  const tops = new Set(entries.map(({ path }) => (path.includes("/") ? path.slice(0, path.indexOf("/")) : "")));
  folder = tops.size === 1 ? [...tops][0] : "";
  chosen = entries.map(({ path, file }) => ({ path: folder ? path.slice(folder.length + 1) : path, file }));
  const total = chosen.reduce((sum, { file }) => sum + file.size, 0);
  part("picked").textContent = chosen.length ? `${form.dataset.wordFiles} ${unit.format(chosen.length)} · ${bytes(total)}` : "";
  const [name, size] = [form.querySelector("#name"), form.querySelector("#size")];
  if (size) {
    size.value = chosen.length ? total : "";
    size.readOnly = chosen.length > 0;
    const proposal = (folder || chosen[0]?.path || "").toLowerCase().replace(/[^a-z.]/g, "").replace(/^\.+/, "").slice(0, 50);
    if (!name.value) name.value = proposal;
  }
  const submit = part("upload-submit");
  if (submit) submit.hidden = chosen.length === 0;
  if (chosen.length) part("upload-button").textContent = form.dataset.wordCreate;
}

// --- sending --------------------------------------------------------------------------------------------------------------
async function call(method, path, token, body) {
  const headers = { "X-Page-Language": document.documentElement.lang };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(form.dataset.api + path, { method, headers, credentials: "same-origin", body: body && JSON.stringify(body) });
  const value = await answer.json().catch(() => ({}));
  if (answer.status === 403) throw new Refusal(value.msg ?? "HTTP 403");
  if (!answer.ok) throw new Error(value.msg ?? `HTTP ${answer.status}`);
  return value;
}

// Resolves to the request, or to null for a part that is not the next one.
function send(address, token, body, moved, range = "") {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not report upload progress
    request.open("PUT", address);
    request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.setRequestHeader("X-Page-Language", document.documentElement.lang);
    if (range) request.setRequestHeader("Content-Range", `bytes ${range}`);
    request.upload.addEventListener("progress", (event) => moved(event.loaded));
    request.addEventListener("load", () => {
      if (request.status < 300) { resolve(request); return; }
      let message = `HTTP ${request.status}`;
      try { message = JSON.parse(request.responseText).msg ?? message; } catch { /* not JSON: the status only */ }
      if (range && message.startsWith("Content-Range")) resolve(null);
      else reject(request.status < 500 ? new Refusal(message) : new Error(message));
    });
    request.addEventListener("error", () => reject(new Error(form.dataset.wordFailed)));
    request.send(body);
  });
}

// Returns the number of bytes of a partial upload that have arrived.
async function arrived(address, token, file) {
  const answer = await stubbornly(() => send(address, token, null, () => {}, `*/${file.size}`));
  return Number(answer?.getResponseHeader("Upload-Offset") ?? 0);
}

// Returns the files that the data service has: path -> { size, time }.
async function listing(address, token, depth) {
  const answer = await fetch(address, { method: "PROPFIND", headers: { Authorization: `Bearer ${token}`, Depth: depth } });
  const files = new Map();
  if (!answer.ok) return files;
  const page = new DOMParser().parseFromString(await answer.text(), "application/xml");
  for (const response of page.getElementsByTagNameNS("DAV:", "response")) {
    const text = (name) => response.getElementsByTagNameNS("DAV:", name)[0]?.textContent;
    if (text("getcontentlength")) files.set(text("href"), { size: Number(text("getcontentlength")), time: Date.parse(text("getlastmodified")) });
  }
  return files;
}

async function sendFile(address, token, { file }, moved) {
  if (file.size <= PART) { await stubbornly(() => send(address, token, file, moved)); return; }
  const note = NOTE + address;
  let at = localStorage.getItem(note) === String(file.lastModified) ? await arrived(address, token, file) : 0;
  localStorage.setItem(note, file.lastModified);
  while (at < file.size) {
    const [first, end] = [at, Math.min(at + PART, file.size)];
    const range = `${first}-${end - 1}/${file.size}`;
    const taken = await stubbornly(() => send(address, token, file.slice(first, end), (loaded) => moved(first + loaded), range));
    at = taken ? end : await arrived(address, token, file);
    if (!taken && end === file.size && !at && [...(await listing(address, token, "0")).values()][0]?.size === file.size) break; // it has arrived, only the response was lost
  }
  localStorage.removeItem(note);
}

async function stubbornly(action) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await action();
    } catch (problem) {
      if (problem instanceof Refusal || attempt === TRIES) throw problem;
      await new Promise((resolve) => setTimeout(resolve, 400 * 2 ** attempt));
    }
  }
}

function show(message, percent, detail = "") {
  part("upload-state").hidden = false;
  part("upload-words").textContent = message;
  part("upload-file").textContent = detail;
  part("upload-progress").value = percent;
}

// Escapes as the data service does, so that addresses can be compared.
function escaped(part) {
  return encodeURIComponent(part).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
}

async function sendAll(name, token) {
  const total = chosen.reduce((sum, { file }) => sum + file.size, 0);
  const done = new Map();
  const there = await listing(`/data/${form.dataset.user}/${name}/`, token, "infinity");
  const waiting = [];
  let [reported, sum] = [0, 0];
  const moved = (entry, loaded) => {
    const now = Math.min(loaded, entry.file.size);
    sum += now - (done.get(entry) ?? 0);
    done.set(entry, now);
    const percent = total ? Math.floor((100 * sum) / total) : 100;
    show(`${form.dataset.wordUploading} ${percent} %`, percent, `${bytes(sum)} / ${bytes(total)} · ${entry.path}`);
    if (Date.now() - reported > REPORT_EVERY_MS) {
      reported = Date.now();
      lastReport = call("PUT", `/datasets/${name}:heartbeat`, token, { state: "creating", progress: Math.min(percent, 99) }).catch(() => {});
    }
  };
  for (const entry of chosen) {
    const path = entry.path.split("/").map(escaped).join("/");
    entry.address = `/data/${form.dataset.user}/${name}/${path}`;
    const same = there.get(entry.address);
    if (same?.size === entry.file.size && same.time + 1000 > entry.file.lastModified) moved(entry, entry.file.size);
    else waiting.push(entry);
  }
  const lane = async () => {
    for (let entry = waiting.shift(); entry; entry = waiting.shift()) {
      await sendFile(entry.address, token, entry, (loaded) => moved(entry, loaded));
      moved(entry, entry.file.size);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, lane));
}

async function upload() {
  const token = await stubbornly(() => call("GET", "/token"));
  let name = form.dataset.into;
  if (!name) {
    name = form.querySelector("#name").value.trim();
    const row = await stubbornly(() => call("POST", "/datasets", token, { name, size: Number(form.querySelector("#size").value), tenant: form.querySelector("#tenant")?.value }));
    form.dataset.into = row.name; // a further attempt continues this dataset
  }
  await sendAll(name, token);
  await lastReport; // otherwise it might arrive after "ready" and be refused
  show(form.dataset.wordChecking, 100);
  const row = await stubbornly(() => call("GET", `/datasets/${name}`, token));
  if (row.state === "creating" && row.stored === row.size) {
    await stubbornly(() => call("PUT", `/datasets/${name}:heartbeat`, token, { state: "ready", progress: 100 }));
  }
  working = false;
  location.assign(`/datasets/${name}`);
}

async function begin(event) {
  if (!chosen.length && !form.dataset.into) return; // submit the form as usual
  event.preventDefault();
  if (working || !chosen.length) return;
  working = true;
  const button = part("upload-button");
  const error = part("upload-error");
  button.disabled = true;
  error.hidden = true;
  try {
    await upload();
  } catch (problem) {
    show(form.dataset.wordFailed, part("upload-progress").value);
    error.textContent = problem.message;
    error.hidden = false;
    button.textContent = form.dataset.wordAgain;
  } finally {
    working = false;
    button.disabled = false;
  }
}

if (form) {
  const drop = part("drop");
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
  form.addEventListener("submit", begin);
  addEventListener("beforeunload", (event) => { if (working) event.preventDefault(); });
}
