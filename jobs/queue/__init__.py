"""The queue of jobs: the order of admission, and why a queued job waits and when it will start."""
