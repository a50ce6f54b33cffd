# must: a trap at the end has its say on the exit code
# status: failed
# exit: 7
# stdout: body\ntrap
# stderr: ()
trap 'echo trap; exit 7' EXIT
echo body
