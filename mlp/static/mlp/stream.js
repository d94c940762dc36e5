// A response that goes on for as long as a run is active: one JSON object a line. It is opened again with growing pauses.

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15000;

// Calls `take` with each object; `address()` is asked for each request. Returns {stop, last}: `last()` reads what is
// there to its end and does not open it again.
export function lines(address, take) {
  let pause = FIRST_PAUSE_MS;
  let timer = 0;
  let ends = false;
  let answer = null;

  async function read() {
    answer = new AbortController();
    const mine = answer;
    try {
      const response = await fetch(address(), { credentials: "same-origin", signal: mine.signal });
      if (!response.ok) throw new Error(response.status);
      const decoder = new TextDecoder();
      let rest = "";
      for (let part, reader = response.body.getReader(); !(part = await reader.read()).done;) {
        const whole = (rest + decoder.decode(part.value, { stream: true })).split("\n");
        rest = whole.pop();
        for (const line of whole) if (line) take(JSON.parse(line));  // empty while there is nothing new
        pause = FIRST_PAUSE_MS;
      }
    } catch {
      if (mine.signal.aborted) return;
    }
    if (ends || mine.signal.aborted) return;
    timer = setTimeout(read, pause);
    pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
  }

  function stop() {
    clearTimeout(timer);
    answer?.abort();
  }

  function again(event) {
    if (event.persisted && !ends) read();
  }

  addEventListener("pagehide", stop);
  addEventListener("pageshow", again);
  read();
  return {
    stop() { ends = true; stop(); },
    last() { ends = true; clearTimeout(timer); },
  };
}
