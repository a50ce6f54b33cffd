package instance

import (
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxArguments and maxArgv bound the arguments of a command, in number and in
// bytes together. Linux takes at most 128 KiB in one.
const (
	maxArguments = 1024
	maxArgv      = 128 << 10
)

// BoundCommand checks a request for a command in the leased instance and fills in
// its limits. One that somebody waits for has the time limit of an execution;
// others have none unless they ask.
func (l *Lease) BoundCommand(req *sdk.CommandRequest, waitedFor bool) error {
	req.InstanceID, req.KeepOutput = l.InstanceID, l.service.limits().Output
	size := 0
	for _, argument := range req.Argv {
		if size += len(argument) + 1; strings.ContainsRune(argument, 0) {
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "holds a NUL character, which no argument can")
		}
	}
	limits := l.service.limits()
	switch {
	case len(req.Argv) == 0 || req.Argv[0] == "":
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "must name a program")
	case len(req.Argv) > maxArguments || size > maxArgv:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "has more than %d arguments or %d bytes; put them into a file", maxArguments, maxArgv)
	case strings.ContainsRune(req.Cwd, 0):
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "cwd", "holds a NUL character, which no path can")
	case req.Timeout < 0, waitedFor && req.Timeout > limits.MaxTimeout:
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "timeout", "must be more than 0 and at most %s, unless the command runs in the background", seconds(limits.MaxTimeout))
	case req.Timeout == 0 && waitedFor:
		req.Timeout = limits.DefaultTimeout
	}
	return checkEnv(req.Env)
}

// AnswerGrace is how much longer than its timeout something may take before the
// provider counts as not answering.
func (l *Lease) AnswerGrace() time.Duration { return answerGrace }

// OutputLimit is how many bytes of each output stream an answer may hold.
func (l *Lease) OutputLimit() int64 { return l.service.limits().Output }
