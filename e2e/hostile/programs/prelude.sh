# attempt prints what comes of a command: the end of its complaint, or SUCCEEDED.
attempt() {
	local name=$1 said
	shift
	if said=$("$@" 2>&1); then echo "$name SUCCEEDED"; else said=${said%%$'\n'*}; said=${said%.}; echo "$name ${said##*: }"; fi
}

# found is what a probe reports.
found() {
	if [ -n "$*" ]; then echo "found $*"; else echo clean; fi
}

# hold tells that what is planted is there, and waits until the others are done.
hold() {
	[ -n "${TOGETHER:-}" ] && return
	touch /workspace/.holding
	until [ -e /workspace/.release ]; do sleep 0.02; done
}

