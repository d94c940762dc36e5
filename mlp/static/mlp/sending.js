// Sends files to the data service, for the forms of datasets, scripts and models.

const TRIES = 6;
const PART = 16 * 1024 * 1024;
const NOTE = "mlp-upload:"; // localStorage: the modification time of a file whose upload has begun

export class Refusal extends Error {}

// Resolves to the request, or to null for a part that is not the next one.
function send(address, token, body, moved, failed, headers, range = "") {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not report upload progress
    request.open("PUT", address);
    request.setRequestHeader("Authorization", `Bearer ${token}`);
    request.setRequestHeader("X-Page-Language", document.documentElement.lang);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    if (range) request.setRequestHeader("Content-Range", `bytes ${range}`);
    request.upload.addEventListener("progress", (event) => moved(event.loaded));
    request.addEventListener("load", () => {
      if (request.status < 300) { resolve(request); return; }
      let message = `HTTP ${request.status}`;
      try { message = JSON.parse(request.responseText).msg ?? message; } catch { /* not JSON: the status only */ }
      if (range && message.startsWith("Content-Range")) resolve(null);
      else reject(request.status < 500 || request.status === 507 ? new Refusal(message) : new Error(message));
    });
    request.addEventListener("error", () => reject(new Error(failed)));
    request.send(body);
  });
}

// Returns the number of bytes of a partial upload that have arrived.
async function arrived(address, token, file, failed) {
  const answer = await stubbornly(() => send(address, token, null, () => {}, failed, {}, `*/${file.size}`));
  return Number(answer?.getResponseHeader("Upload-Offset") ?? 0);
}

// Returns the files that the data service has: path -> { size, time }.
export async function listing(address, token, depth) {
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

// Stores a file at its address; a large one in parts, so that it goes on where it was interrupted. `moved` is called with
// the bytes that have been sent; `failed` is the message of a broken connection; `headers` go with each request.
export async function sendFile(address, token, file, moved, failed, headers = {}) {
  if (file.size <= PART) { await stubbornly(() => send(address, token, file, moved, failed, headers)); return; }
  const note = NOTE + address;
  let at = localStorage.getItem(note) === String(file.lastModified) ? await arrived(address, token, file, failed) : 0;
  localStorage.setItem(note, file.lastModified);
  while (at < file.size) {
    const [first, end] = [at, Math.min(at + PART, file.size)];
    const range = `${first}-${end - 1}/${file.size}`;
    const taken = await stubbornly(() => send(address, token, file.slice(first, end), (loaded) => moved(first + loaded), failed, headers, range));
    at = taken ? end : await arrived(address, token, file, failed);
    if (!taken && end === file.size && !at && [...(await listing(address, token, "0")).values()][0]?.size === file.size) break; // it has arrived, only the response was lost
  }
  localStorage.removeItem(note);
}

// Repeats what fails, after growing pauses; a refusal is final.
export async function stubbornly(action) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await action();
    } catch (problem) {
      if (problem instanceof Refusal || attempt === TRIES) throw problem;
      await new Promise((resolve) => setTimeout(resolve, 400 * 2 ** attempt));
    }
  }
}
