package provider

import (
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// started says when a program prints its first line, and keeps the rest.
type started struct {
	recorder
	once    sync.Once
	printed chan struct{}
}

func (s *started) Stdout(p []byte) error {
	err := s.recorder.Stdout(p)
	s.once.Do(func() { close(s.printed) })
	return err
}

func TestAnInterruptIsThatOfATerminal(t *testing.T) {
	inTheGuest(t, testAnInterruptIsThatOfATerminal)
}

func testAnInterruptIsThatOfATerminal(t *testing.T, newProvider makeProvider) {
	p := newProvider(t, nil)
	id := create(t, p, templatePython)
	for name, test := range map[string]struct {
		language sdk.Language
		code     string
		exitCode int
		stdout   string
		stderr   string
	}{
		"python sees a KeyboardInterrupt": {
			sdk.Python, "import time\nprint('on')\ntime.sleep(600)", 130, "on\n", "KeyboardInterrupt",
		},
		"python handles it and ends well": {
			sdk.Python, "import time\ntry:\n    print('on')\n    while True: pass\nexcept KeyboardInterrupt:\n    print('off')", 0, "on\noff\n", "",
		},
		"python in asyncio": {
			sdk.Python, "import asyncio\nasync def main():\n    print('on')\n    try:\n        await asyncio.sleep(600)\n    finally:\n        print('off')", 130, "on\noff\n", "KeyboardInterrupt",
		},
		"python with a child in the foreground": {
			sdk.Python, "import subprocess\nsubprocess.run(['bash', '-c', 'trap \"echo off; exit 0\" INT; echo on; sleep 600 & wait'])", 130, "on\noff\n", "KeyboardInterrupt",
		},
		"python that ignores it is killed": {
			sdk.Python, "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on')\nwhile True: time.sleep(1)", 137, "on\n", "",
		},
		"bash": {
			// The child prints: before it runs, a signal would be lost between bash and it.
			sdk.Bash, "bash -c 'echo on; exec sleep 600'", 130, "on\n", "",
		},
		"bash with a trap": {
			sdk.Bash, "trap 'echo off; exit 7' INT; echo on; while :; do :; done", 7, "on\noff\n", "",
		},
		"node": {
			sdk.JavaScript, "console.log('on'); setInterval(() => {}, 1000)", 130, "on\n", "",
		},
		"node with a listener": {
			sdk.JavaScript, "process.on('SIGINT', () => { console.log('off'); process.exit(9) }); console.log('on'); setInterval(() => {}, 1000)", 9, "on\noff\n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.interruptGrace = sdk.InterruptGrace
			if test.exitCode != 137 {
				p.interruptGrace = 2 * time.Minute // it ends by itself
			}
			out := &started{printed: make(chan struct{})}
			var result sdk.ExecuteResult
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				result, err = p.Execute(t.Context(), sdk.ExecuteRequest{
					InstanceID: id, ExecutionID: "x-1", Language: test.language, Code: test.code,
					Timeout: 4 * time.Minute, OutputLimit: 1 << 20,
				}, out)
			}()
			<-out.printed
			assert.NilError(t, p.Interrupt(t.Context(), id, "x-1"))
			<-done
			assert.NilError(t, err)
			assert.Check(t, is.Equal(result.Status, sdk.StatusCancelled))
			assert.Check(t, is.Equal(result.ExitCode, test.exitCode), out.err.String())
			assert.Check(t, is.Equal(out.out.String(), test.stdout))
			assert.Check(t, strings.Contains(out.err.String(), test.stderr), out.err.String())
			assert.Check(t, !strings.Contains(out.err.String(), "runner.py"), out.err.String())
			// The second comes too late.
			assert.ErrorIs(t, p.Interrupt(t.Context(), id, "x-1"), &sdk.Error{Code: sdk.CodeNotFound})
		})
	}
	assert.ErrorIs(t, p.Interrupt(t.Context(), "nowhere", "x-1"), &sdk.Error{Code: sdk.CodeNotFound})
	// The instance is as good as ever, and an interrupt touches only its own.
	after, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: "echo next"})
	assert.NilError(t, err)
	assert.Equal(t, after.stdout, "next\n")
}
