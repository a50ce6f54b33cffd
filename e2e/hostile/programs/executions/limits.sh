# must: limits that an execution lowered are as before
# status: succeeded
# stdout: planted
ulimit -n 50
ulimit -f 1
echo planted
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found $([ "$(ulimit -n)" = 1024 ] || ulimit -n)
