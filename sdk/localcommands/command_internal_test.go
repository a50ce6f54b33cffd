package localcommands

import (
	"bytes"
	"sync"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// readAll follows a command to its end.
func readAll(c *command) (stdout []byte, lost int64) {
	r := c.reader(sdk.ReadCommandRequest{Follow: true})
	next := int64(0)
	for {
		pieces, changed, _ := r.next()
		for _, p := range pieces {
			if p.Stream == sdk.Stdout {
				lost += p.Offset - next
				next = p.Offset + int64(len(p.Data))
				stdout = append(stdout, p.Data...)
			}
		}
		switch {
		case len(pieces) > 0:
		case changed == nil:
			return stdout, lost
		default:
			<-changed
		}
	}
}

// running is a command that keeps so many bytes of each output.
func running(keep int64) *command {
	c := newCommand("c", sdk.CommandRequest{KeepOutput: keep}, 0)
	c.state.State = sdk.CommandRunning
	return c
}

func (c *command) print(output int, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.output[output].Write(p)
	c.wake()
}

func TestReadersOfOneCommandSeeTheSame(t *testing.T) {
	c := running(1 << 20)
	var readers sync.WaitGroup
	var outputs [4][]byte
	for i := range outputs {
		readers.Go(func() { outputs[i], _ = readAll(c) })
	}
	var want []byte
	for i := range 1000 {
		piece := bytes.Repeat([]byte{byte(i)}, i%300)
		want = append(want, piece...)
		c.print(0, piece)
		c.print(1, piece)
	}
	c.end(Exit{}, nil)
	readers.Wait()
	for _, got := range outputs {
		assert.Check(t, bytes.Equal(got, want))
	}
}

func TestAReaderThatComesTooLateIsToldWhatIsLost(t *testing.T) {
	c := running(100)
	c.print(0, bytes.Repeat([]byte("x"), 150))
	c.end(Exit{}, nil)
	got, lost := readAll(c)
	assert.Equal(t, len(got), 100)
	assert.Equal(t, lost, int64(50))
}

func TestWithoutFollowAReaderEndsWhereItBegan(t *testing.T) {
	c := running(100)
	c.print(0, []byte("before"))
	r := c.reader(sdk.ReadCommandRequest{StdoutOffset: 2})
	c.print(0, []byte("after"))
	pieces, _, _ := r.next()
	assert.Assert(t, is.Len(pieces, 1))
	assert.Equal(t, string(pieces[0].Data), "fore")
	pieces, changed, told := r.next()
	assert.Assert(t, is.Len(pieces, 0))
	assert.Assert(t, changed == nil)
	assert.Equal(t, told.State, sdk.CommandRunning)
}

// Whoever asks again and again stops at the answer that says that the command ended, and
// has all of its output then.
func TestACommandThatEndsUnderAReaderIsToldAsItWas(t *testing.T) {
	c := running(100)
	c.print(0, []byte("before"))
	r := c.reader(sdk.ReadCommandRequest{})
	c.print(0, []byte("after"))
	c.end(Exit{}, nil)
	pieces, changed, told := r.next()
	assert.Equal(t, string(pieces[0].Data), "before")
	assert.Assert(t, changed == nil)
	assert.Equal(t, told.State, sdk.CommandRunning)
	pieces, _, told = c.reader(sdk.ReadCommandRequest{StdoutOffset: r.at[0]}).next()
	assert.Equal(t, string(pieces[0].Data), "after")
	assert.Equal(t, told.State, sdk.CommandSucceeded)
}

func TestWhatBecameOfACommand(t *testing.T) {
	for name, c := range map[string]struct {
		exit  Exit
		timed bool
		sent  string
		state sdk.CommandState
	}{
		"success":                      {state: sdk.CommandSucceeded},
		"success after a signal":       {sent: "SIGTERM", state: sdk.CommandSucceeded},
		"failure":                      {exit: Exit{Code: 3}, state: sdk.CommandFailed},
		"its own signal":               {exit: Exit{Code: 143}, state: sdk.CommandFailed},
		"a signal that was sent":       {exit: Exit{Code: 143}, sent: "SIGTERM", state: sdk.CommandCancelled},
		"another signal than was sent": {exit: Exit{Code: 139}, sent: "SIGTERM", state: sdk.CommandFailed},
		"killed":                       {exit: Exit{Code: 137}, sent: "SIGKILL", state: sdk.CommandCancelled},
		"killed for its time":          {exit: Exit{Code: 137}, timed: true, state: sdk.CommandTimeout},
		"killed for its memory":        {exit: Exit{Code: 137, OutOfMemory: true}, state: sdk.CommandOutOfMemory},
		"ended at the last moment":     {timed: true, state: sdk.CommandSucceeded},
		"killed by the kernel":         {exit: Exit{Code: 137}, state: sdk.CommandFailed},
	} {
		t.Run(name, func(t *testing.T) {
			command := running(1)
			command.timedOut = c.timed
			if c.sent != "" {
				command.sent[unix.SignalNum(c.sent)] = true
			}
			command.end(c.exit, nil)
			got := command.describe()
			assert.Check(t, is.Equal(got.State, c.state))
			assert.Check(t, is.Equal(got.ExitCode, c.exit.Code))
			assert.Check(t, !got.EndedAt.IsZero())
		})
	}
}
