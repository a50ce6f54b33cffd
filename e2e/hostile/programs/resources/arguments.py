# must: an argument list beyond all bounds is refused
# status: succeeded
# stdout: one (E2BIG|ENAMETOOLONG)\nmany (E2BIG|ENAMETOOLONG)
attempt("one", os.posix_spawn, "/bin/true", ["true", "x" * (1 << 20)], {})
attempt("many", os.posix_spawn, "/bin/true", ["true"] + ["x" * 1000] * 10000, {})
