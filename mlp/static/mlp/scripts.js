// Uploads of scripts: files and folders that are chosen or dropped go to the data service, three at a time. A file that is
// there is kept unless it may be overwritten. What fails is listed, the others are stored; another try sends only what
// failed.

import { bytes, chooser, escaped, isLitter, numbered } from "./choosing.js";
import { Refusal, sendFile, stubbornly } from "./sending.js";

const PARALLEL = 3;
const LISTED = 5; // failures that are shown
const MADE = new Set(["__pycache__", ".ipynb_checkpoints", ".venv", "node_modules"]); // folders that tools can make again

const form = document.querySelector("form[data-scripts]");
const part = (name) => form.querySelector(`[data-${name}]`);
const sent = new Set(); // the addresses of what has been stored
let chosen = [];
let working = false;

function choose(all) {
  const isGenerated = ({ path }) => path.split("/").slice(0, -1).some((name) => MADE.has(name));
  chosen = all.length === 1 ? all : all.filter((entry) => !isLitter(entry.path) && !isGenerated(entry));
  sent.clear();
  const total = chosen.reduce((sum, { file }) => sum + file.size, 0);
  const left = all.length > chosen.length ? ` · ${form.dataset.wordSkipped} ${numbered(all.length - chosen.length)}` : "";
  part("picked").textContent = all.length ? `${form.dataset.wordFiles} ${numbered(chosen.length)} · ${bytes(total)}${left}` : "";
  const several = chosen.length !== 1 || chosen[0].path.includes("/");
  part("path-label").textContent = several ? form.dataset.wordFolder : form.dataset.wordPath;
  form.querySelector("#path").placeholder = several ? form.dataset.wordHome : form.dataset.wordSame;
  part("upload-error").hidden = true;
}

function show(message, percent, detail = "") {
  part("upload-state").hidden = false;
  part("upload-words").textContent = message;
  part("upload-file").textContent = detail;
  part("upload-progress").value = percent;
}

// Returns the paths to store the chosen files at: a single file as the form says, several below the folder that it says.
function places() {
  const given = form.querySelector("#path").value.trim().replace(/\/+$/, "");
  if (chosen.length === 1 && !chosen[0].path.includes("/")) return [given || chosen[0].path];
  return chosen.map(({ path }) => (given ? `${given}/${path}` : path));
}

async function token() {
  const answer = await fetch(`${form.dataset.api}/token`, { credentials: "same-origin" });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.msg ?? `HTTP ${answer.status}`);
  return value;
}

// Sends what has not been stored yet. Returns the failures as [path, message].
async function sendAll() {
  const bearer = await stubbornly(token);
  const headers = form.elements.replace.checked ? {} : { "If-None-Match": "*" };
  const paths = places();
  const waiting = chosen.map(({ file }, place) => ({ file, path: paths[place], address: `/data/${form.dataset.user}/.home/${escaped(paths[place])}` }));
  const total = chosen.reduce((sum, { file }) => sum + file.size, 0);
  const loaded = new Map();
  const failures = [];
  const moved = (entry, count) => {
    loaded.set(entry, Math.min(count, entry.file.size));
    const sum = [...loaded.values()].reduce((all, one) => all + one, 0);
    const percent = total ? Math.floor((100 * sum) / total) : 100;
    show(`${form.dataset.wordUploading} ${numbered(percent)} %`, percent, `${bytes(sum)} / ${bytes(total)} · ${entry.path}`);
  };
  const lane = async () => {
    for (let entry = waiting.shift(); entry; entry = waiting.shift()) {
      const one = entry;
      try {
        if (!sent.has(one.address)) await sendFile(one.address, bearer, one.file, (count) => moved(one, count), form.dataset.wordFailed, headers);
        sent.add(one.address);
        moved(one, one.file.size);
      } catch (problem) {
        failures.push([one.path, problem.message.replace(/^path: /, "")]);
        if (!(problem instanceof Refusal)) return; // the connection is broken, for the others too
      }
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, lane));
  failures.push(...waiting.map(({ path }) => [path, form.dataset.wordFailed]));
  return failures;
}

function list(failures) {
  const error = part("upload-error");
  const lines = failures.slice(0, LISTED).map(([path, message]) => `${path}: ${message}`);
  if (failures.length > LISTED) lines.push(`… +${numbered(failures.length - LISTED)}`);
  error.replaceChildren(...lines.flatMap((line) => [line, document.createElement("br")]));
  error.hidden = false;
}

async function begin(event) {
  if (!chosen.length) return; // submit the form as usual
  event.preventDefault();
  if (working) return;
  working = true;
  const button = part("upload-button");
  button.disabled = true;
  part("upload-error").hidden = true;
  try {
    const failures = await sendAll();
    if (failures.length) {
      show(`${form.dataset.wordStored} ${numbered(sent.size)} / ${numbered(chosen.length)}`, Math.floor((100 * sent.size) / chosen.length));
      list(failures);
      return;
    }
    working = false;
    form.elements.stored.value = sent.size;
    form.submit();
  } catch (problem) {
    show(form.dataset.wordFailed, part("upload-progress").value);
    list([[form.dataset.wordFailed, problem.message]]);
  } finally {
    working = false;
    button.disabled = false;
  }
}

if (form) {
  part("plain").remove(); // the input for browsers without scripts
  chooser(form, choose);
  form.addEventListener("submit", begin);
  addEventListener("beforeunload", (event) => { if (working) event.preventDefault(); });
}
