"""Pages that belong to no single app: index, reference, search, first steps, and the live websocket."""
