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
const pauseLength = 2 * time.Second

// countInterval is the least time between two numbers of counting.
const countInterval = 50 * time.Millisecond

// counting is a line for sh that counts in a file, and never faster than countInterval.
const counting = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.05; done"

var errNotYet = errors.New("not yet")

// count is how far a command has counted.
func (c *scene) count(id string) int {
	_, out := c.follow(id, c.shell(id, "cat count 2>/dev/null || echo 0"))
	n, err := strconv.Atoi(strings.TrimSpace(out.stdout.String()))
	c.must(err, "read what a command counts")
	return n
}

// pass lets time pass.
func (c *scene) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
		c.fail("the case did not end in time")
	}
}

// "Pause freezes every process" and "lets every process go on where it was" (Pauser):
// those of commands too.
func pauseStopsCommands(c *scene) {
	id := c.instance()
	c.shell(id, counting)
	c.eventually("a command counts", func(context.Context) error {
		if c.count(id) == 0 {
			return errNotYet
		}
		return nil
	})
	began := time.Now()
	before := c.count(id)
	c.pause(id)
	c.pass(pauseLength)
	c.resume(id)
	after := c.count(id)
	ran := time.Since(began) - pauseLength
	if most := int(ran/countInterval) + 1; after-before > most {
		c.fail("a command counted %d times over a pause of %v, and can have had the time for %d", after-before, pauseLength, most)
	}
	c.eventually("a command goes on after a pause", func(context.Context) error {
		if c.count(id) <= after {
			return errNotYet
		}
		return nil
	})
}

// "A command that a pause stops is running before, meanwhile and after it." (Pauser)
func commandsOutlivePause(c *scene) {
	id := c.instance()
	started := c.shell(id, "echo first; read line; echo got $line; sleep 600", withStdin)
	c.reads(id, started, "first\n")
	c.pause(id)
	c.resume(id)
	list, err := c.ListCommands(c.ctx, id)
	c.must(err, "list the commands")
	c.check(len(list) == 1 && list[0].ID == started.ID && list[0].State == sdk.CommandRunning, "the command does not run any more after a pause: %s", shown(list))
	c.must(c.WriteCommand(c.ctx, id, started.ID, []byte("it\n"), false), "write to the command after a pause")
	c.reads(id, started, "first\ngot it\n")
	c.signal(id, started, "SIGTERM")
	ended, _ := c.follow(id, started)
	equal(c, ended.State, sdk.CommandCancelled, "the state of a command that SIGTERM ended after a pause")
	equal(c, ended.ExitCode, 128+15, "the exit code")
}

// "memory and files stay" (Pauser)
func contextOutlivesPause(c *scene) {
	id := c.instance()
	made := c.newContext(id)
	c.succeeded(c.execute(c.in(id, made, c.samples.SetVariable)))
	c.pause(id)
	c.resume(id)
	c.printsIn(id, made, c.samples.GetVariable, "1")
}

// "Who follows a command or watches files meanwhile goes on afterwards, or is told
// CodeConflict." (Pauser) None is left with a watch that says nothing any more.
func watchOutlivesPause(c *scene) {
	id := c.instance()
	ctx, cancel := context.WithCancel(c.ctx)
	changes, ready, ended := make(chan sdk.FileChange, 1000), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- c.WatchFiles(ctx, sdk.WatchFilesRequest{InstanceID: id, Path: "."},
			func() error { close(ready); return nil },
			func(list []sdk.FileChange) error {
				for _, change := range list {
					select {
					case changes <- change:
					default:
					}
				}
				return nil
			})
	}()
	c.later(func() {
		cancel()
		if err := <-ended; err != nil {
			return // it has ended, which is all that matters
		}
	})
	timer := time.NewTimer(c.suite.within(callTimeout))
	defer timer.Stop()
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		c.fail("WatchFiles ended before it watched: %v", err)
	case <-timer.C:
		c.fail("WatchFiles did not say that it watches")
	}
	c.pause(id)
	c.resume(id)
	c.write(id, "after-the-pause", "x")
	for {
		select {
		case change := <-changes:
			if change.Path == "/workspace/after-the-pause" {
				return
			}
		case err := <-ended:
			ended <- err
			c.refused(err, "WatchFiles over a pause", sdk.CodeConflict)
			again := c.watch(id, false)
			c.write(id, "again", "x")
			c.told(again, "/workspace/again", sdk.FileCreated, sdk.FileModified, sdk.FileRenamed)
			return
		case <-timer.C:
			c.fail("a watch neither tells of a change after a pause nor ends")
		}
	}
}
