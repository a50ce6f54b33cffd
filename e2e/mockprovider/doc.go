// Command mockprovider is a provider plugin for tests: a real separate process
// on serve.Serve whose every call can be told to go wrong. It runs no code.
//
// # Steering an execution
//
// The language "mock" takes an action (see below) as its code, a JSON object. So
// do python, javascript and bash when the code begins with "mock:":
//
//	mock: {"stdout": "hi\n", "exit_code": 3}
//
// Any other code in those three languages is "run" by printing it to stdout and
// exiting with 0.
//
// # Actions
//
// An action says what one call does. All fields are optional, and unknown ones
// are refused with SB010. Durations are strings such as "250ms".
//
//	delay        wait first; ends with the call's context, with the execution's
//	             timeout (status "timeout"), or when it is interrupted
//	await_lease  wait until the lease of the broker holds
//	hang         true: never return, whatever happens to the context
//	hang_after   true: the same once the call took effect
//	fail         an error code, "SB000" to "SB015": return it
//	message      of that error
//	field        of that error
//	retry_after  of that error
//	panic        true: panic in the call (the SDK makes SB000 of it)
//	crash        "before" or "after" the call took effect: end the process
//	crash_with   "exit:N" (default exit:7), "kill" (SIGKILL) or "panic" (a panic
//	             outside of any call, with its stack on stderr)
//	log          one line to the plugin's logger, at level info
//	log_lines    that many lines to the logger, as fast as they go
//	log_raw      text to the real standard error, as it is
//	print        text to os.Stdout and os.Stderr, as a careless author would
//	grandchild   start a "sleep" that holds stdout and stderr, for that long; its
//	             process number goes to the file grandchild.pid in the state
//	             directory
//	escape       true: the grandchild leaves the process group
//
// For executions only:
//
//	stdout, stderr              text to write
//	stdout_bytes, stderr_bytes  so many "x" to write after the text
//	lines, lines_per_second     so many lines to write after that, at this pace:
//	                            a number from 0 on, and when it was written, in
//	                            nanoseconds of CLOCK_MONOTONIC
//	exit_code                   of the result; other than 0 means "failed"
//	status                      of the result, any word
//	detail                      of the result
//	result                      of the result, any JSON
//	remember                    text that the instance keeps from then on, and that
//	                            copies made from its snapshots begin with
//	echo                        true: the result tells what the call received:
//	                            instance_id, execution_id, language, arguments,
//	                            env, instance_env, labels, template, timeout
//	                            (seconds), output_limit, pid, broker_id, label,
//	                            mark, logins, environment (of the process),
//	                            memory (what the instance remembers)
//	lie                         "bad_json" (a result that is not JSON), and with
//	                            the start mode liar also "no_result" and
//	                            "too_much" (output above the limit)
//
// For create only:
//
//	lie          "bad_id" (an ID that no broker should accept), "same_id" (that
//	             of an instance that lives already)
//
// # Settings
//
//	persist      boolean: keep the instances in the file instances.json in the
//	             state directory, so that the next process lists them; or in the
//	             directory that the environment variable MOCK_ACCOUNT names, as
//	             processes do that share an account in a cloud
//	bad_starts   integer: the first so many processes on this state directory
//	             exit with 7 in Configure
//	mark         string: what an echo tells
//	secret       string, secret; "log" actions may name it
//	tokens, headers, names, labels
//	             lists and maps, the first two secret
//	login        repeated blocks: password and, in the block inner, key are secret;
//	             the list notes, name and, in the block limit, rate are not; helper is
//	             changed in the file alone
//	parrot       list: repeat all settings, and the variables PARROT_... of the
//	             environment, in many forms and wherever a provider may say
//	             something. A call named in it fails with them: "configure",
//	             "create", "execute", "health_call", "validate"; with _panic behind it, it
//	             panics with them; with _crash the process does. "health" makes it
//	             unhealthy, any other word none of this
//	on_validate  string: an action; of its fields hang, fail, field and message
//	on_configure, on_health, on_create, on_execute, on_interrupt, on_destroy,
//	on_list, on_snapshot, on_delete_snapshot, on_list_snapshots
//	             strings: an action as JSON, for every call of that name
//	room         integer: how many instances there is room for; a creation above
//	             waits for that 30 s, or as long as the broker says; 0 for no end
//	warm         integer: how many instances of the template python it says that it has
//	             ready, less those that there are
//	unhealthy    string: what Health gives as the reason for not being healthy
//
// The file actions.json in the state directory, if there is one, overrides the
// on_... settings while the process runs: {"health": {"hang": true}, "create":
// {"fail": "SB004"}}. An execution's own action comes after that of on_execute.
//
// # Start modes
//
// What happens before Configure is chosen by the executable's name, mock_MODE, or
// by the environment variable MOCK_START:
//
//	cloud        serves, and says that its instances outlive it; for persist
//	garbage      prints two lines to stdout before serving
//	flood        prints 1 MiB without a line end to stdout, then waits
//	exit         complains on stderr and exits with 3
//	silent       never says anything
//	mute         shakes hands, accepts the connection, and never answers
//	oldprotocol  shakes hands with protocol version 7
//	oldcore      shakes hands with version 9 of the go-plugin handshake
//	netrpc       shakes hands for net/rpc
//	tcp          names a TCP address
//	elsewhere    names a socket outside its directory
//	nosocket     names a socket that does not exist
//	badschema    describes a schema that is not acceptable
//	badname      describes itself with a name that is not acceptable
//	dies         exits with 5 when it is asked to describe itself
//	panics       panics when it is asked to describe itself
//	badlog       writes log lines with fields of wrong types, then serves
//	deaf         serves, but does not end with its standard input
//	liar         serves, and can lie about an execution as no SDK would let it
package main
