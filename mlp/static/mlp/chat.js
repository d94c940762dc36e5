// The chat form of a language model's page: shows the answer as it is made, and stops it.

const MEDIA = "application/x-ndjson";

// Returns the headers by which the form asks for the answer as it is made.
export const headers = (form) => (form.hasAttribute("data-streams") ? { Accept: MEDIA } : {});

// Returns whether the response is for `show`, not a page.
export const isOurs = (form, response) =>
  form.hasAttribute("data-streams") && !(response.headers.get("Content-Type") ?? "").startsWith("text/html");

// Shows a response in the element of the page's answer; the promise ends with it. Aborting the request keeps what is
// there.
export async function show(form, place, response) {
  if (!response.ok) return refuse(form, place, await response.json());
  const state = element("b", "state", form.dataset.wordAnswering);
  const words = element("span", "hint", "");
  const row = element("p", "row", "");
  const text = element("pre", "preview", "");
  text.tabIndex = 0;
  text.setAttribute("aria-label", form.dataset.wordAnswer);
  row.append(state, " ", words);
  place.replaceChildren(row, text);
  place.setAttribute("aria-busy", "true");
  let good = null;
  try {
    for await (const line of lines(response)) {
      if (line.text) text.append(line.text);
      if (!("status" in line)) continue;
      good = line.good;
      state.textContent = line.status || "";
      words.textContent = line.words;
      if (line.error) text.append(text.textContent ? `\n${line.error}` : line.error);
    }
    if (good === null) throw new Error("the answer has no end");
    state.classList.add(good ? "state-ready" : "state-error");
  } catch (problem) {
    state.textContent = problem.name === "AbortError" ? form.dataset.wordStopped : form.dataset.wordLost;
  } finally {
    place.removeAttribute("aria-busy");
  }
}

function refuse(form, place, { error, field }) {
  const wrong = element("p", "field-error", error);
  if (field) {
    wrong.id = "input-error";
    form.querySelector("#input").setAttribute("aria-invalid", "true");
  }
  place.replaceChildren(wrong);
}

// Yields the objects of a response, one a line; a line is empty while there is nothing new.
async function* lines(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let rest = "";
  for (let part; !(part = await reader.read()).done;) {
    const whole = (rest + decoder.decode(part.value, { stream: true })).split("\n");
    rest = whole.pop();
    for (const line of whole) if (line) yield JSON.parse(line);
  }
}

function element(name, classes, text) {
  const made = document.createElement(name);
  made.className = classes;
  made.textContent = text;
  return made;
}
