package supervise_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/supervise"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAReportSaysWhatBecameOfTheProgram(t *testing.T) {
	for name, c := range map[string]struct {
		done    supervise.Done
		signals []int
		command sdk.CommandState
		exit    int
		code    sdk.Status // where the exit code says succeeded or failed
	}{
		"it succeeded":              {command: sdk.CommandSucceeded, code: sdk.StatusSucceeded},
		"it failed":                 {done: supervise.Done{Exit: 3}, command: sdk.CommandFailed, exit: 3, code: sdk.StatusFailed},
		"its time was over":         {done: supervise.Done{Exit: 137, Reason: supervise.Timeout, Memory: true}, command: sdk.CommandTimeout, exit: 137, code: sdk.StatusTimeout},
		"it was stopped":            {done: supervise.Done{Exit: 137, Reason: supervise.Cancelled}, command: sdk.CommandCancelled, exit: 137, code: sdk.StatusCancelled},
		"it died of a signal":       {done: supervise.Done{Exit: 143}, signals: []int{2, 15}, command: sdk.CommandCancelled, exit: 143, code: sdk.StatusFailed},
		"of one that nobody sent":   {done: supervise.Done{Exit: 139}, signals: []int{15}, command: sdk.CommandFailed, exit: 139, code: sdk.StatusFailed},
		"it was killed for memory":  {done: supervise.Done{Exit: 137, Memory: true}, command: sdk.CommandOutOfMemory, exit: 137, code: sdk.StatusOutOfMemory},
		"another one was":           {done: supervise.Done{Memory: true}, command: sdk.CommandSucceeded, code: sdk.StatusSucceeded},
		"an exit code that is none": {done: supervise.Done{Exit: 256 + 4}, command: sdk.CommandFailed, exit: 4, code: sdk.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			command, exit := c.done.Command(c.signals)
			assert.Equal(t, command, c.command)
			assert.Equal(t, exit, c.exit)
			result := sdk.ExecuteResult{Status: sdk.StatusSucceeded, ExitCode: c.done.Exit}
			if c.done.Exit != 0 {
				result.Status = sdk.StatusFailed
			}
			c.done.Settle(&result)
			assert.Equal(t, result.Status, c.code)
		})
	}
}

func TestARefusalNamesTheFieldAtFault(t *testing.T) {
	assert.NilError(t, supervise.Done{}.Refusal())
	assert.Error(t, supervise.Done{Error: "cwd No such file or directory"}.Refusal(), "SB010: cwd: the program cannot be started: no such file or directory")
}
