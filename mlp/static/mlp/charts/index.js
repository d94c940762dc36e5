// The charts of a page: one board for each element with `data-charts` (see board.js).

import { Board } from "./board.js";

const boardByBox = new WeakMap();

// Returns the board of an element, made when it is asked for first.
export function boardOf(box, sharedBy) {
  if (!boardByBox.has(box)) boardByBox.set(box, new Board(box, sharedBy));
  return boardByBox.get(box);
}

// Loads all boards below an element that are not there yet; returns all of them. Panels are loaded by panels.js.
export function boards(part = document) {
  return [...part.querySelectorAll("[data-charts]:not([data-panel])")].map((box) => {
    const isNew = !boardByBox.has(box);
    const board = boardOf(box);
    if (isNew) board.load();
    return board;
  });
}
