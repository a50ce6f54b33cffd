// Package hostile is a corpus of programs that try to do harm, each with what must
// happen to it. The programs are plain files below programs/, grouped in folders
// by theme; corpus_test.go runs them through the real broker over REST, on every
// runtime, among canaries on the host that prove that nothing outside changed. The
// table in docs/security.md is made from them.
//
// # A program
//
// A file NAME.py, NAME.js or NAME.sh begins with a header of comments:
//
//	# must: a hard link to a system file is refused
//	# status: succeeded
//	# stdout: link (EXDEV|EPERM|EROFS)
//
// Then comes the code. What a program prints is what proves that the attack was
// tried and how it ended; so stdout is required, and it is a regular expression for
// the whole of it, less the last line end. In front of the code stands the prelude
// of its language, from programs/prelude.*: attempt prints what came of an attempt.
//
//	must       what must happen, for people; once, in the first header
//	status     succeeded, failed, timeout or out_of_memory; required
//	exit       the exit code; required with failed, otherwise 0 if it succeeded
//	stdout     required
//	stderr     the same for stderr; required with failed, otherwise nothing if it
//	           succeeded
//	result     the JSON of the result; without it, there must be none
//	arguments  JSON, for main
//	artifacts  an expression for all artifacts, one a line: the kind, then the name,
//	           the type and why it was refused, as far as there are any; without it,
//	           they do not matter
//	env        NAME=value, as often as needed
//	timeout    in seconds, otherwise 60; a program that was stopped at it before it
//	           printed what it must is tried again with twice the time
//	bytes      how long stdout must be, where the expression cannot count it
//	truncated  yes, if output must have been cut
//	instance   may end, if the host may be quicker than the guest; otherwise the
//	           instance must serve on
//
// The code of an error follows from the status: SB005 for a timeout, SB006 for out
// of memory, and none for anything else.
//
// # Steps
//
// A program may have several steps, each with a header of its own. The line before
// it says where it runs:
//
//	# --- next execution         in the instance of the first step, after it
//	# --- another session        of the same tenant, in an instance of its own
//	# --- another tenant         in a session of the same name
//	# --- after delete           in the same session, whose instance was deleted
//	# --- meanwhile              in the instance of the first step, while that runs
//	# --- meanwhile, elsewhere   in another session, while the first step runs
//	# --- next one-shot          after the first step, as which it is in no session
//	# --- one-shot of another tenant
//	# --- in a copy              of the instance, by a snapshot after the first step
//	# --- in a copy, meanwhile   by a snapshot that was taken while that runs
//
// What runs meanwhile needs a first step that calls hold, which returns when the
// others are done. PLANTED in the environment of a later step is what the first one
// has printed, unless that still runs.
//
// Programs of one-shots run one at a time, so that the sandbox of the first step is
// offered to the next. Whether that has it is known by its hash seed: the first step
// prints seed() of the prelude, and the next sandbox(), which is "handed over" or
// "fresh".
//
// Each step in a copy has one of its own, and all of a program are of one snapshot. Such
// programs are in the theme snapshots, which the tests of the provider self_managed run
// with its runtime that has snapshots.
//
// Programs of the theme ways_out run in an instance with a network, by the tests of self_managed
// too. HERE in their environment is the host and port that rules allow, for GET and paths below
// /open/; SHUT is what no rule names; SECURE is the port of read.example.com, which gets a secret,
// and of other.example.com. What is shut counts who asks it, which must be nobody.
//
// A step that finds nothing might be blind. If all that it prints is clean, it needs
// a control, which is a further run that must print found: "control: together" runs
// the first step and this one as one piece of code, "control: session" runs this one
// in the instance of the first. A first step cannot have one, and prints something
// that shows that it looked.
package hostile
