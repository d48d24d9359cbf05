"""The loop around the core: committer, workers, timers, chores."""
