# must: who kills himself is not out of memory
# status: failed
# exit: 137
# stdout: before
# stderr: ()
echo before
kill -KILL $$
