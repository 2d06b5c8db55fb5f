"""One file per outside system. Each implements a port of `router.ports` and translates its system's errors."""
