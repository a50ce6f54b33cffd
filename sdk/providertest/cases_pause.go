package providertest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// pauseLength is how long what must not happen in a pause has to show. It is no limit, so
// patience does not change it.
const pauseLength = 3 * time.Second

// countInterval is the least time between two numbers of counting. It is long beside what a
// loop of sh needs for itself on a busy machine: a command that counts through a pause would
// otherwise be so slow that its count is one of the time before and after the pause.
const countInterval = 500 * time.Millisecond

// counting is a line for sh that counts in a file, and never faster than countInterval.
const counting = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.5; done"

var errNotYet = errors.New("not yet")

// count is how far a command has counted.
func (in commands) count() int {
	_, out := in.follow(in.shell("cat count 2>/dev/null || echo 0"))
	n, err := strconv.Atoi(strings.TrimSpace(out.stdout.String()))
	in.must(err, "read what a command counts")
	return n
}

// "Pause freezes every process" and "lets every process go on where it was" (Pauser):
// those of commands too.
func pauseStopsCommands(c *scene) {
	in := c.instance().commands()
	in.shell(counting)
	c.eventually("a command counts", func(context.Context) error {
		if in.count() == 0 {
			return errNotYet
		}
		return nil
	})
	began := time.Now()
	before := in.count()
	in.pause()
	c.pass(pauseLength)
	in.resume()
	after := in.count()
	ran := time.Since(began) - pauseLength
	// One number may be due at either end of the pause, whatever the time beside it.
	if most := int(ran/countInterval) + 2; after-before > most {
		c.fail("a command counted %d times over a pause of %v, and can have had the time for %d", after-before, pauseLength, most)
	}
	c.eventually("a command goes on after a pause", func(context.Context) error {
		if in.count() <= after {
			return errNotYet
		}
		return nil
	})
}

// "A command that a pause stops is running before, meanwhile and after it." (Pauser)
func commandsOutlivePause(c *scene) {
	in := c.instance().commands()
	started := in.shell("echo first; read line; echo got $line; sleep 600", withStdin)
	in.reads(started, "first\n")
	in.pause()
	in.resume()
	list, err := c.ListCommands(c.ctx, in.ID)
	c.must(err, "list the commands")
	c.check(len(list) == 1 && list[0].ID == started.ID && list[0].State == sdk.CommandRunning, "the command does not run any more after a pause: %s", shown(list))
	c.must(c.WriteCommand(c.ctx, in.ID, started.ID, []byte("it\n"), false), "write to the command after a pause")
	in.reads(started, "first\ngot it\n")
	in.signal(started, "SIGTERM")
	ended, _ := in.follow(started)
	equal(c, ended.State, sdk.CommandCancelled, "the state of a command that SIGTERM ended after a pause")
	equal(c, ended.ExitCode, 128+15, "the exit code")
}

// "memory and files stay" (Pauser)
func contextOutlivesPause(c *scene) {
	in := c.instance()
	made := in.newContext()
	made.run(c.samples.SetVariable).succeeded()
	in.pause()
	in.resume()
	made.prints(c.samples.GetVariable, "1")
}

// "Who follows a command or watches files meanwhile goes on afterwards, or is told
// CodeConflict." (Pauser) None is left with a watch that says nothing any more.
func watchOutlivesPause(c *scene) {
	in := c.instance().files()
	w := in.watch(false)
	in.pause()
	in.resume()
	in.write("after-the-pause", "x")
	timer := time.NewTimer(c.suite.within(callTimeout))
	defer timer.Stop()
	for {
		select {
		case change := <-w.changes:
			if change.Path == "/workspace/after-the-pause" {
				return
			}
		case <-w.ended:
			c.refused(w.err, "WatchFiles over a pause", sdk.CodeConflict)
			again := in.watch(false)
			in.write("again", "x")
			again.told("/workspace/again", sdk.FileCreated, sdk.FileModified, sdk.FileRenamed)
			return
		case <-timer.C:
			c.fail("a watch neither tells of a change after a pause nor ends")
		}
	}
}
