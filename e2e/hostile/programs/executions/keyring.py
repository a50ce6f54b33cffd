# must: a key in a keyring is not there for the next
# status: succeeded
# stdout: planted [A-Z]+
attempt("planted", syscall, "add_key", b"user", b"planted", b"secret", 6, -3)
# --- next execution
# status: succeeded
# stdout: search (ENOSYS|ENOKEY|EACCES|EPERM|EINVAL)
attempt("search", syscall, "keyctl", 10, -3, b"user", b"planted", 0)
