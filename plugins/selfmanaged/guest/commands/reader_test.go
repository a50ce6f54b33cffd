package commands

import (
	"bytes"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands/ring"
)

// readAll follows a command to its end.
func readAll(c *command) (stdout []byte, lost int64) {
	r := c.reader(0, 0, true)
	next := int64(0)
	for {
		pieces, changed, _ := r.next()
		for _, p := range pieces {
			if p.GetStream() == "stdout" {
				lost += p.GetOffset() - next
				next = p.GetOffset() + int64(len(p.GetData()))
				stdout = append(stdout, p.GetData()...)
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

func TestReadersOfOneCommandSeeTheSame(t *testing.T) {
	c := &command{state: stateRunning}
	c.output[stdout], c.output[stderr] = ring.New(1<<20), ring.New(1<<20)
	var readers sync.WaitGroup
	var outputs [4][]byte
	for i := range outputs {
		readers.Go(func() { outputs[i], _ = readAll(c) })
	}
	var want []byte
	for i := range 1000 {
		piece := bytes.Repeat([]byte{byte(i)}, i%300)
		want = append(want, piece...)
		c.print(&c.output[stdout], piece)
		c.print(&c.output[stderr], piece)
	}
	c.end(isolation.Exit{}, true, false)
	readers.Wait()
	for _, got := range outputs {
		assert.Check(t, bytes.Equal(got, want))
	}
}

func TestAReaderThatComesTooLateIsToldWhatIsLost(t *testing.T) {
	c := &command{state: stateRunning}
	c.output[stdout], c.output[stderr] = ring.New(100), ring.New(100)
	c.print(&c.output[stdout], bytes.Repeat([]byte("x"), 150))
	c.end(isolation.Exit{}, true, false)
	got, lost := readAll(c)
	assert.Equal(t, len(got), 100)
	assert.Equal(t, lost, int64(50))
}

func TestWithoutFollowAReaderEndsWhereItBegan(t *testing.T) {
	c := &command{state: stateRunning}
	c.output[stdout], c.output[stderr] = ring.New(100), ring.New(100)
	c.print(&c.output[stdout], []byte("before"))
	r := c.reader(2, 0, false)
	c.print(&c.output[stdout], []byte("after"))
	pieces, _, _ := r.next()
	assert.Assert(t, is.Len(pieces, 1))
	assert.Equal(t, string(pieces[0].GetData()), "fore")
	pieces, changed, told := r.next()
	assert.Assert(t, is.Len(pieces, 0))
	assert.Assert(t, changed == nil)
	assert.Equal(t, told.GetState(), stateRunning)
}

// Whoever asks again and again stops at the answer that says that the command ended.
func TestACommandThatEndsUnderAReaderIsToldWithAllOfItsOutput(t *testing.T) {
	c := &command{state: stateRunning}
	c.output[stdout], c.output[stderr] = ring.New(100), ring.New(100)
	c.print(&c.output[stdout], []byte("before"))
	r := c.reader(0, 0, false)
	pieces, _, _ := r.next()
	assert.Equal(t, string(pieces[0].GetData()), "before")
	c.print(&c.output[stdout], []byte("after"))
	c.end(isolation.Exit{}, true, false)
	pieces, _, told := r.next()
	assert.Assert(t, is.Len(pieces, 1))
	assert.Equal(t, string(pieces[0].GetData()), "after")
	assert.Assert(t, told == nil)
	pieces, changed, told := r.next()
	assert.Assert(t, is.Len(pieces, 0))
	assert.Assert(t, changed == nil)
	assert.Equal(t, told.GetState(), stateSucceeded)
}

func TestWhatBecameOfACommand(t *testing.T) {
	for name, c := range map[string]struct {
		exit                  isolation.Exit
		killed, memory, timed bool
		sent                  string
		state                 string
		code                  int
	}{
		"success":                             {state: stateSucceeded},
		"success after a signal":              {sent: "SIGTERM", state: stateSucceeded},
		"failure":                             {exit: isolation.Exit{Code: 3}, state: stateFailed, code: 3},
		"its own signal":                      {exit: isolation.Exit{Code: 143, Signal: 15}, state: stateFailed, code: 143},
		"a signal that was sent":              {exit: isolation.Exit{Code: 143, Signal: 15}, sent: "SIGTERM", state: stateCancelled, code: 143},
		"another signal than was sent":        {exit: isolation.Exit{Code: 139, Signal: 11}, sent: "SIGTERM", state: stateFailed, code: 139},
		"killed":                              {killed: true, sent: "SIGKILL", state: stateCancelled, code: 137},
		"killed for its time":                 {killed: true, timed: true, state: stateTimeout, code: 137},
		"killed for its memory":               {killed: true, memory: true, state: stateOutOfMemory, code: 137},
		"ended at the last moment":            {timed: true, state: stateSucceeded},
		"killed by the kernel of the sandbox": {killed: true, state: stateFailed, code: 137},
	} {
		t.Run(name, func(t *testing.T) {
			command := &command{state: stateRunning, timedOut: c.timed}
			if c.sent != "" {
				command.remember(unix.SignalNum(c.sent))
			}
			command.end(c.exit, !c.killed, c.memory)
			got := command.toWire()
			assert.Check(t, is.Equal(got.GetState(), c.state))
			assert.Check(t, is.Equal(int(got.GetExitCode()), c.code))
			assert.Check(t, got.GetEndedAt() != nil)
		})
	}
}
