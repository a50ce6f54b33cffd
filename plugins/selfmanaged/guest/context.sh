# Makes a context of the shell that reads this: it runs what comes on standard input, a
# line for each execution, and reports on descriptor 4, as the guest's package frames
# describes it. The shell is an interactive one, because no other goes on after an
# interrupt or after an error like that of ${name:?}. Before it reads a line it runs
# PROMPT_COMMAND: that is the end of an execution. Code shares the shell with this: what
# it does to it, it does to itself alone.
PS1= PS2=
set +H +m +o history
unset HISTFILE
__context_execution=0 __context_exit='' __context_refused=''
declare -A __context_before=() __context_set=()

# __context_enter changes to a directory, or keeps why it cannot.
__context_enter() {
	local why
	why=$(cd -- "$1" 2>&1) && cd -- "$1" || __context_refused=${why##*: }
}

# __context_env sets a variable for this execution.
__context_env() {
	if [ -n "${!1+set}" ]; then __context_before[$1]=${!1}; fi
	__context_set[$1]=$2
	export "$1=$2"
}

# __context_done ends an execution. Variables are as before, unless the code has changed
# them itself.
__context_done() {
	local status=${__context_exit:-$1} name
	for name in "${!__context_set[@]}"; do
		if [ "${!name-}" != "${__context_set[$name]}" ]; then continue; fi
		if [ -n "${__context_before[$name]+set}" ]; then
			export "$name=${__context_before[$name]}"
		else
			unset -v "$name"
		fi
	done
	__context_before=() __context_set=()
	builtin printf '{"kind":"done","length":0,"execution":%d,"exit_code":%d,"refused":"%s"}\n' "$__context_execution" "$status" "$__context_refused" >&4
	__context_exit='' __context_refused=''
}

# exit ends the execution and not the shell, as sys.exit does in a context of Python.
exit() {
	local status=$?
	if [ "$BASHPID" != "$$" ]; then builtin exit "${@-$status}"; fi
	__context_exit=$((${1-status} & 255))
	{ : "${__context_none:?}"; } 2>/dev/null
}

# Nothing of this shows where the code has said set -x.
PROMPT_COMMAND='{ __context_done "$?"; } 2>/dev/null'
