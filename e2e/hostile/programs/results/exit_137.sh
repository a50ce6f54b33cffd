# must: exit code 137 of bash is not out of memory
# status: failed
# exit: 137
# stdout: ()
# stderr: ()
exit 137
