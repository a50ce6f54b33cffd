# must: a signal that ends the code is told by its number: SIGTERM
# status: failed
# exit: 143
# stdout: ()
# stderr: ()
kill -TERM $$
