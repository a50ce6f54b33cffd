# must: variables, functions, aliases, options and traps of bash are gone
# status: succeeded
# stdout: planted
export PLANTED_VARIABLE=1
planted() { :; }
export -f planted
alias planted_alias=true
shopt -s nullglob
trap 'echo trapped' USR1
echo planted
# --- next execution
# status: succeeded
# stdout: clean
# control: together
found $PLANTED_VARIABLE $(declare -F planted) $(alias planted_alias 2>/dev/null) $(shopt -q nullglob && echo nullglob) $(trap -p USR1)
