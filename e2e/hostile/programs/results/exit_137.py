# must: exit code 137 is not out of memory
# status: failed
# exit: 137
# stdout: ()
# stderr: ()
sys.exit(137)
