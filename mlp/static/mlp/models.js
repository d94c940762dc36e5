// The form that creates a model: a selected file is uploaded to the data service first, a large one in parts, so that an
// interrupted upload goes on when the file is selected again; then the form is submitted with its path as the source.

import { sendFile } from "./sending.js";

const form = document.querySelector("[data-model-form]");
const file = form.querySelector("#file");
const name = form.querySelector("#name");
const part = (what) => form.querySelector(`[data-upload-${what}]`);
const words = form.dataset;

file.addEventListener("change", () => {
  const chosen = file.files[0];
  if (chosen && !name.value && !form.querySelector("#title").value) name.value = chosen.name.split(".")[0].toLowerCase().replace(/[^a-z]/g, "").slice(0, 50);
});

async function token() {
  const headers = { "X-Page-Language": document.documentElement.lang };
  const answer = await fetch(`/api/v1/users/${words.user}/token`, { headers, credentials: "same-origin" });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).msg ?? `HTTP ${answer.status}`);
  return answer.json();
}

function show(percent) {
  part("progress").value = percent;
  part("words").textContent = `${words.wordUploading} ${percent} %`;
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
    const path = `models/${name.value.trim() || name.placeholder || "model"}/${chosen.name.replace(/[^A-Za-z0-9._-]/g, "-").slice(-100)}`;
    const moved = (loaded) => show(Math.floor((100 * Math.min(loaded, chosen.size)) / (chosen.size || 1)));
    moved(0);
    await sendFile(`/data/${words.user}/.home/${path}`, await token(), chosen, moved, words.wordFailed);
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
