"""The queue of jobs: its order, who steps back for whom, and what a queued job is told."""
