// Passkeys: a form with `data-passkey="create"` adds one, with "get" it logs in with one. The form's address gives the
// challenge, and takes the browser's answer to it. What goes wrong is shown in the form's `[data-passkey-error]`.

const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

function decoded(options) {
  const known = { ...options.publicKey, challenge: bytes(options.publicKey.challenge) };
  if (known.user) known.user = { ...known.user, id: bytes(known.user.id) };
  for (const list of ["excludeCredentials", "allowCredentials"]) {
    if (known[list]) known[list] = known[list].map((one) => ({ ...one, id: bytes(one.id) }));
  }
  return { publicKey: known };
}

function encoded(credential) {
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (credential.response[name]) response[name] = text(credential.response[name]);
  }
  const { id, type, authenticatorAttachment } = credential;
  return { id, type, authenticatorAttachment, rawId: text(credential.rawId), response, clientExtensionResults: {} };
}

async function ask(form, body) {
  const headers = { "Content-Type": "application/json", "X-CSRFToken": form.querySelector("[name=csrfmiddlewaretoken]").value };
  const answer = await fetch(form.action, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).msg ?? form.dataset.wordFailed);
  return answer;
}

async function run(form) {
  const options = decoded(await (await ask(form, {})).json());
  const credential = await navigator.credentials[form.dataset.passkey](options);
  const answer = await ask(form, {
    credential: encoded(credential), name: form.elements.name?.value ?? "", next: form.elements.next?.value ?? "",
  });
  if (answer.headers.get("Content-Type").startsWith("application/json")) {
    location.assign((await answer.json()).next);
  } else if (answer.redirected) {
    location.assign(answer.url);
  } else { // the page with the recovery codes, which is shown once
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceWith(page.querySelector("main"));
    document.querySelector("h1").tabIndex = -1;
    document.querySelector("h1").focus();
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-passkey]");
  if (!form) return;
  event.preventDefault();
  const [button, error] = [form.querySelector("button"), form.querySelector("[data-passkey-error]")];
  error.hidden = button.disabled = true;
  run(form).catch((problem) => {
    // the browser says only that it was cancelled or took too long, in English
    error.textContent = problem instanceof DOMException ? form.dataset.wordCancelled : problem.message;
    error.hidden = false;
  }).finally(() => { button.disabled = false; });
});

for (const form of document.querySelectorAll("form[data-passkey]")) form.hidden = !window.PublicKeyCredential;
