"""Pages that belong to no single app: index, API reference, search, guided tour, and the live websocket."""
