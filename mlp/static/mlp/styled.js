// Draws a line of a log: text with spans of styles and of search hits, as the server gives them (kernel/ansi.py).
//
// The places of spans count characters, of which some take two units of a JavaScript string. Text is always set as
// text, never as HTML.

function paint(span, names) {
  for (const name of names.split(" ")) {
    if (name[1] !== "#") span.classList.add(`t-${name}`);
    else if (name[0] === "f") span.style.color = name.slice(1);
    else span.style.backgroundColor = name.slice(1);
  }
}

// Returns the nodes of the line. `styles`: [[from, to, names], …], `hits`: [[from, to], …], each in order.
export function nodes(text, styles = [], hits = []) {
  if (!styles.length && !hits.length) return [document.createTextNode(text)];
  const letters = /[\ud800-\udfff]/.test(text) ? Array.from(text) : text;
  const part = (from, to) => (typeof letters === "string" ? letters.slice(from, to) : letters.slice(from, to).join(""));
  const cuts = new Set([0, letters.length]);
  for (const [from, to] of [...styles, ...hits]) { cuts.add(from); cuts.add(to); }
  const places = [...cuts].filter((place) => place <= letters.length).sort((one, two) => one - two);
  const drawn = [];
  let [style, hit] = [0, 0];
  for (let index = 0; index + 1 < places.length; index += 1) {
    const [from, to] = [places[index], places[index + 1]];
    while (style < styles.length && styles[style][1] <= from) style += 1;
    while (hit < hits.length && hits[hit][1] <= from) hit += 1;
    const names = style < styles.length && styles[style][0] <= from ? styles[style][2] : "";
    const isHit = hit < hits.length && hits[hit][0] <= from;
    if (!names && !isHit) { drawn.push(document.createTextNode(part(from, to))); continue; }
    const span = document.createElement(isHit ? "mark" : "span");
    span.textContent = part(from, to);
    if (names) paint(span, names);
    drawn.push(span);
  }
  return drawn;
}
