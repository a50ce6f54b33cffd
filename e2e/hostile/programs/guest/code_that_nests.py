# must: code that nests beyond all bounds is an error of its own
# status: failed
# exit: 1
# stdout: ()
# stderr: (?s).*(RecursionError|MemoryError|SyntaxError).*
compile("(" * 100000, "x", "exec")
