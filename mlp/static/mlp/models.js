// The form that creates a model: a selected file is uploaded to the data service first, so that it may be large and
// progress is shown; then the form is submitted with the file's path as the source.

const form = document.querySelector("[data-model-form]");
const file = form.querySelector("#file");
const name = form.querySelector("#name");
const part = (what) => form.querySelector(`[data-upload-${what}]`);
const words = form.dataset;

file.addEventListener("change", () => {
  const chosen = file.files[0];
  if (chosen && !name.value) name.value = chosen.name.split(".")[0].toLowerCase().replace(/[^a-z]/g, "").slice(0, 50);
});

async function token() {
  const headers = { "X-Page-Language": document.documentElement.lang };
  const answer = await fetch(`/api/v1/users/${words.user}/token`, { headers, credentials: "same-origin" });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).msg ?? `HTTP ${answer.status}`);
  return answer.json();
}

function send(address, bearer, body) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not report upload progress
    request.open("PUT", address);
    request.setRequestHeader("Authorization", `Bearer ${bearer}`);
    request.setRequestHeader("X-Page-Language", document.documentElement.lang);
    request.upload.addEventListener("progress", (event) => {
      const percent = Math.floor((100 * event.loaded) / (event.total || 1));
      part("progress").value = percent;
      part("words").textContent = `${words.wordUploading} ${percent} %`;
    });
    request.addEventListener("load", () => {
      if (request.status < 300) { resolve(); return; }
      let reason = `HTTP ${request.status}`;
      try { reason = JSON.parse(request.responseText).msg ?? reason; } catch { /* not JSON: the status only */ }
      reject(new Error(reason));
    });
    request.addEventListener("error", () => reject(new Error(words.wordFailed)));
    request.send(body);
  });
}

form.addEventListener("submit", async (event) => {
  const chosen = file.files[0];
  if (!chosen || !form.reportValidity()) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const button = form.querySelector("button.primary");
  button.disabled = true;
  part("state").hidden = false;
  part("error").hidden = true;
  try {
    const path = `models/${name.value.trim()}/${chosen.name.replace(/[^A-Za-z0-9._-]/g, "-").slice(-100)}`;
    await send(`/data/${words.user}/.home/${path}`, await token(), chosen);
    form.querySelector("#src").value = `home/${path}`;
    file.value = "";
    form.requestSubmit();
  } catch (problem) {
    part("words").textContent = words.wordFailed;
    part("error").textContent = problem.message;
    part("error").hidden = false;
  } finally {
    button.disabled = false;
  }
});
