"""What every app stands on: errors, names, locks, history, the bus, storage. Imports no app."""
