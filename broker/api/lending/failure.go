package lending

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// FailureOf finds an exception in what an interpreter has printed: its name and text are
// in the last line of that kind.
func FailureOf(e instance.Execution, printed string) (name, value string, traceback []string) {
	traceback = strings.Split(strings.TrimRight(printed, "\n"), "\n")
	switch e.Result.Status {
	case sdk.StatusTimeout:
		return "TimeoutError", "The code was ended at its time limit.", traceback
	case sdk.StatusOutOfMemory:
		return "MemoryError", "The code was ended at its memory limit.", traceback
	case sdk.StatusCancelled:
		return "KeyboardInterrupt", "", traceback
	}
	for _, line := range slices.Backward(traceback) {
		before, after, found := strings.Cut(strings.TrimPrefix(line, "Uncaught "), ":")
		if isExceptionName(before) && (found || len(traceback) > 1) {
			return before, strings.TrimSpace(after), traceback
		}
	}
	if e.Result.Detail != "" {
		return "ExecutionError", e.Result.Detail, traceback
	}
	return "ExecutionError", "exit status " + strconv.Itoa(e.Result.ExitCode), traceback
}

// isExceptionName reports whether a word can be the name of a class: NameError,
// json.decoder.JSONDecodeError.
func isExceptionName(word string) bool {
	if word == "" || strings.ContainsFunc(word, func(r rune) bool {
		return r != '.' && r != '_' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
	}) {
		return false
	}
	last := word[strings.LastIndexByte(word, '.')+1:]
	return last != "" && last[0] >= 'A' && last[0] <= 'Z'
}
