# must: exit code 126 is not a refusal of the code policy
# status: failed
# exit: 126
# stdout: ()
# stderr: ()
exit 126
