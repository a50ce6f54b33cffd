# must: exit code 124 is not a timeout
# status: failed
# exit: 124
# stdout: ()
# stderr: ()
exit 124
