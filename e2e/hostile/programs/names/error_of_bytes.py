# must: an error that speaks of a name that is no text is told
# status: failed
# exit: 1
# stdout: before
# stderr: (?s)Traceback.*FileNotFoundError.*udcb1.*
print("before", flush=True)
open(b"/workspace/\xb1\xa8".decode(errors="surrogateescape"))
