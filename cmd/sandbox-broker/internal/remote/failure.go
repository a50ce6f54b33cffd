package remote

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// Exit codes beside that of the program that ran. Those of programs are the ones of
// timeout(1), env(1) and of a process that was killed; 3 is our own.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNoAnswer    = 3
	exitTimeout     = 124
	exitBlocked     = 126
	exitNotFound    = 127
	exitCancelled   = 130
	exitOutOfMemory = 137
)

// ExitCode ends the program without a message: the command said it all.
type ExitCode int

// Error implements error.
func (e ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a command line that makes no sense, which the parser cannot see.
type usageError struct{ error }

func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Unwrap returns the error itself.
func (e usageError) Unwrap() error { return e.error }

// unreadable is an answer that no broker gives, or that broke off.
type unreadable struct{ error }

// Unwrap returns the error itself.
func (e unreadable) Unwrap() error { return e.error }

// ExitCodeOf is the exit code for an error that a command has returned: ExitUsage,
// ExitNoAnswer where the broker refused or did not answer, else ExitFailed.
func ExitCodeOf(err error) int {
	if _, usage := errors.AsType[usageError](err); usage {
		return ExitUsage
	}
	if _, refused := errors.AsType[*client.Problem](err); refused {
		return ExitNoAnswer
	}
	if _, unanswered := errors.AsType[*client.Unanswered](err); unanswered {
		return ExitNoAnswer
	}
	if _, strange := errors.AsType[unreadable](err); strange {
		return ExitNoAnswer
	}
	return ExitFailed
}

// Tell writes an error for people. Behind a refusal it says what to do.
func Tell(w io.Writer, err error) {
	for n, line := range strings.Split(err.Error(), "\n") {
		// What it quotes may be anybody's, and steers no terminal.
		line = table.Printable(line)
		if n == 0 {
			line = "sandbox-broker: " + line
		}
		fmt.Fprintln(w, line)
	}
	problem, refused := errors.AsType[*client.Problem](err)
	if !refused {
		return
	}
	for _, field := range problem.Errors[min(len(problem.Errors), 1):] {
		fmt.Fprintf(w, "  %s\n", table.Printable(field.Field+": "+field.Detail))
	}
	for _, d := range problem.Diagnostics {
		fmt.Fprintf(w, "  %s\n", diagnostic(d))
	}
	if advice := adviceFor(problem); advice != "" {
		fmt.Fprintf(w, "  %s\n", advice)
	}
}

// diagnostic is a mistake in a configuration, in a line.
func diagnostic(d client.AdminDiagnostic) string {
	return table.Printable(strings.TrimSpace(fmt.Sprintf("%s:%d: %s: %s %s", d.File, d.Line, d.Severity, d.Summary, d.Detail)))
}

// adviceFor says what a person at a command line can do about a refusal.
func adviceFor(p *client.Problem) string {
	switch code := sdk.Code(p.Code); code {
	case sdk.CodeNotAuthenticated:
		return "Give a valid token: SANDBOX_BROKER_TOKEN, --token-file, or a context (sandbox-broker config context)."
	case sdk.CodeNotAllowed:
		return "This token may not do that. What administrators may do takes an administrator's token."
	case sdk.CodeNotFound:
		return "It never existed, has ended, or is not yours: sandbox-broker ps lists the instances."
	case sdk.CodeQuotaExceeded:
		return "Wait, or wait for a turn with --wait: sandbox-broker usage shows what is taken."
	case sdk.CodeNotSupported:
		return "Use a provider that lists the capability: sandbox-broker providers --output wide."
	case sdk.CodeInvalidRequest:
		return "" // the detail names the field
	default:
		if !code.Known() {
			return ""
		}
		return code.Info().Advice
	}
}
