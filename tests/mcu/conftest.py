"""Programs of other tools lie in tools/: they are run, not collected."""

collect_ignore = ["tools"]
