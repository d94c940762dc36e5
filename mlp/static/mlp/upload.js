// Uploads in the browser: creates the dataset, sends its files to the data service three at a time, reports progress, and
// reports "ready" when all bytes have arrived. Large files are sent in parts. When the files are selected again after an
// interruption, files and parts that have arrived are skipped. Without files, the form is submitted as usual.

import { bytes, chooser, escaped, isLitter, numbered } from "./choosing.js";
import { Refusal, listing, sendFile, stubbornly } from "./sending.js";

const PARALLEL = 3;
const REPORT_EVERY_MS = 5000;

const form = document.querySelector("form[data-upload]");
const part = (name) => form.querySelector(`[data-${name}]`);
let chosen = [];
let folder = "";
let working = false;
let lastReport = null; // the latest progress report, which may be under way

// Selects the files. A single folder is the dataset itself: its name is cut off the paths.
function choose(all) {
  const entries = all.filter(({ path }) => all.length === 1 || !isLitter(path));
  const tops = new Set(entries.map(({ path }) => (path.includes("/") ? path.slice(0, path.indexOf("/")) : "")));
  folder = tops.size === 1 ? [...tops][0] : "";
  chosen = entries.map(({ path, file }) => ({ path: folder ? path.slice(folder.length + 1) : path, file }));
  const total = chosen.reduce((sum, { file }) => sum + file.size, 0);
  const left = all.length > entries.length ? ` · ${form.dataset.wordSkipped} ${numbered(all.length - entries.length)}` : "";
  part("picked").textContent = chosen.length ? `${form.dataset.wordFiles} ${numbered(chosen.length)} · ${bytes(total)}${left}` : "";
  const [name, size] = [form.querySelector("#name"), form.querySelector("#size")];
  if (size) {
    size.value = chosen.length ? total : "";
    size.readOnly = chosen.length > 0;
    const proposal = (folder || chosen[0]?.path || "").toLowerCase().replace(/[^a-z.]/g, "").replace(/^\.+/, "").slice(0, 50);
    if (!name.value && !form.querySelector("#title").value) name.value = proposal;
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

function show(message, percent, detail = "") {
  part("upload-state").hidden = false;
  part("upload-words").textContent = message;
  part("upload-file").textContent = detail;
  part("upload-progress").value = percent;
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
    entry.address = `/data/${form.dataset.user}/${name}/${escaped(entry.path)}`;
    const same = there.get(entry.address);
    if (same?.size === entry.file.size && same.time + 1000 > entry.file.lastModified) moved(entry, entry.file.size);
    else waiting.push(entry);
  }
  const lane = async () => {
    for (let entry = waiting.shift(); entry; entry = waiting.shift()) {
      await sendFile(entry.address, token, entry.file, (loaded) => moved(entry, loaded), form.dataset.wordFailed);
      moved(entry, entry.file.size);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, lane));
}

// Returns the first free one of the names that the server makes, too: stem, stemb, stemc, …
async function freeName(stem, token) {
  const taken = new Set((await stubbornly(() => call("GET", "/datasets?limit=1000", token))).map((row) => row.name));
  return ["", ..."bcdefghijklmnopqrstuvwxyz"].map((letter) => stem + letter).find((name) => !taken.has(name)) ?? stem;
}

async function upload() {
  const token = await stubbornly(() => call("GET", "/token"));
  let name = form.dataset.into;
  if (!name) {
    const field = form.querySelector("#name");
    field.value = name = field.value.trim() || (await freeName(field.placeholder || "dataset", token));
    const title = form.querySelector("#title").value;
    const row = await stubbornly(() => call("POST", "/datasets", token, { name, title, size: Number(form.querySelector("#size").value), tenant: form.querySelector("#tenant")?.value }));
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
  chooser(form, choose);
  form.addEventListener("submit", begin);
  addEventListener("beforeunload", (event) => { if (working) event.preventDefault(); });
}
