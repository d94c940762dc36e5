// The strip beside a log: where in the whole log the search hits, the anomalies and the runs are. A click goes there.

const MARK = 2; // pixels

export class Ruler {
  // `marks()`: {hits, anomalies, runs, chosen} as lines.
  constructor(canvas, view, marks, go) {
    this.canvas = canvas;
    this.view = view;
    this.marks = marks;
    canvas.addEventListener("click", (event) => {
      const frame = canvas.getBoundingClientRect();
      go(Math.round(((event.clientY - frame.top) / frame.height) * view.total) || 1);
    });
    new ResizeObserver(() => this.later()).observe(view.element);
  }

  later() {
    this.waiting ||= setTimeout(() => { this.waiting = 0; this.draw(); }, 100);
  }

  draw() {
    const { canvas, view } = this;
    canvas.height = view.element.clientHeight;
    const brush = canvas.getContext("2d");
    const colours = getComputedStyle(canvas);
    const { hits, anomalies, runs, chosen } = this.marks();
    const total = Math.max(1, view.total, canvas.height / 20);
    const put = (lines, name, from, width) => {
      brush.fillStyle = colours.getPropertyValue(name);
      let last = -1;
      for (const line of lines) {
        const at = Math.floor(((line - 1) / total) * canvas.height);
        if (at !== last) brush.fillRect(from, at, width, MARK);
        last = at;
      }
    };
    brush.clearRect(0, 0, canvas.width, canvas.height);
    put(runs, "--ruler-run", 0, canvas.width);
    put(hits, "--ruler-hit", 2, 5);
    put(anomalies, "--ruler-odd", 7, 5);
    if (chosen) put([chosen[0]], "--ruler-chosen", 0, canvas.width);
  }
}
