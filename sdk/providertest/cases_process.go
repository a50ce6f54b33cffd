package providertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func processCases() []Case {
	const group = "process"
	return []Case{
		{Group: group, Name: "it ends in order", fresh: true, run: endsInOrder},
		{Group: group, Name: "it ends in order with an instance alive", fresh: true, run: endsWithInstance},
		{Group: group, Name: "it ends in order while code runs", fresh: true, run: endsWhileCodeRuns},
		{Group: group, Name: "it ends in order before it is configured", fresh: true, run: endsUnconfigured},
		{Group: group, Name: "after a restart List and Execute agree", fresh: true, run: agreesAfterRestart},
		{Group: group, Name: "after a kill List and Execute agree", fresh: true, run: agreesAfterKill},
		{Group: group, Name: "code ends with a process that is killed", fresh: true, run: codeEndsWithKill},
		{Group: group, Name: "after a restart it makes instances", fresh: true, run: worksAfterRestart},
		{Group: group, Name: "after a restart old instances can be destroyed", fresh: true, run: destroysAfterRestart},
	}
}

// endCases come last: they end the process that all others have used.
func endCases() []Case {
	return []Case{{Group: "process", Name: "it ends in order after all other cases", run: endsAfterAll}}
}

// "Every method must return soon after its context ends." (Provider) A call that
// never does keeps the process from ending in order.
func endsAfterAll(c *scene) {
	c.suite.shared = nil
	c.stopInOrder()
}

// stopInOrder stops the process and fails if that does not work.
func (c *scene) stopInOrder() {
	c.stopped = true
	ctx, cancel := c.within(stopTimeout)
	defer cancel()
	c.must(c.plugin.Stop(ctx), "stop the provider")
	c.check(ctx.Err() == nil, "the provider did not end within %v", c.suite.within(stopTimeout))
}

// "Serve calls Close once, after the last call has returned, with a deadline of a
// few seconds." (Closer)
func endsInOrder(c *scene) { c.newSession(newBrokerID(), newBrokerID()).stopInOrder() }

// The same.
func endsWithInstance(c *scene) {
	s := c.newSession(newBrokerID(), newBrokerID())
	s.create(s.createRequest(""))
	s.stopInOrder()
}

// The same: calls that still run end then.
func endsWhileCodeRuns(c *scene) {
	c.someLanguage()
	s := c.newSession(newBrokerID(), newBrokerID())
	e := s.begin(c.ctx, s.instance().lasting(c.samples.Wait))
	e.saying("ready")
	s.stopInOrder()
	e.await(settleTimeout, "the provider ended")
}

// "The broker … never calls a method on a provider that refused its
// configuration": it ends without.
func endsUnconfigured(c *scene) { c.launched().stopInOrder() }

// restarted makes an instance, ends the process, and starts another in its place. It
// returns the instance as the other process may know it.
func (c *scene) restarted(end func(*scene)) instance {
	c.someLanguage()
	brokerID, state := newBrokerID(), newBrokerID()
	first := c.newSession(brokerID, state)
	made := first.instance()
	end(first)
	again := c.newSession(brokerID, state)
	again.destroyLater(made.ID)
	return again.withID(made.ID)
}

// "The broker uses it after a crash to find what it lost." (Provider.List) What is
// listed is there, and what is there is listed.
func agreesAfterRestart(c *scene) {
	c.restarted((*scene).stopInOrder).agrees()
}

// The same: "It may hold what an earlier process left behind when it was killed."
// (ConfigureRequest.StateDir)
func agreesAfterKill(c *scene) {
	c.restarted(func(s *scene) {
		if s.plugin.Kill == nil {
			c.skip("the provider cannot be killed here: it is not a process of its own")
		}
		s.plugin.Kill()
		s.stop(c.ctx)
	}).agrees()
}

// agrees checks that code runs in the instance if it is listed, and else does not.
func (in instance) agrees() {
	_, listed := in.listed()[in.ID]
	got := in.begin(in.ctx, in.request(in.code(in.samples.Hello))).await(callTimeout, "it began")
	if !listed {
		in.refused(got.err, "Execute in an instance that List lacks after the restart", sdk.CodeNotFound)
		return
	}
	in.must(got.err, "execute in an instance that List has after the restart")
	got.succeeded()
}

// "the same at each start" (ConfigureRequest.StateDir)
func worksAfterRestart(c *scene) {
	old := c.restarted((*scene).stopInOrder)
	made := old.instance()
	got := made.begin(c.ctx, made.request(c.code(c.samples.Hello))).await(callTimeout, "it began")
	c.must(got.err, "execute after a restart")
	got.succeeded()
}

// "Destroying an instance that does not exist is a success." (Provider.Destroy)
func destroysAfterRestart(c *scene) {
	old := c.restarted((*scene).stopInOrder)
	c.must(c.call("Destroy", func(ctx context.Context) error { return old.Destroy(ctx, old.ID) }), "destroy an instance of the process before")
	_, listed := old.listed()[old.ID]
	c.check(!listed, "List has the instance %s that was destroyed", old.ID)
}

// sleeping says ready and has a program sleep, whose command line holds the word.
var sleeping = map[sdk.Language]string{
	sdk.Bash:       "setsid sleep %[1]s & echo ready; wait",
	sdk.Python:     "import subprocess\np = subprocess.Popen(['sleep', '%[1]s'], start_new_session=True)\nprint('ready', flush=True)\np.wait()\n",
	sdk.JavaScript: "const child = require('child_process').spawn('sleep', ['%[1]s'], {detached: true}); child.on('spawn', () => console.log('ready')); child.on('error', (e) => { throw e })",
}

// "Code that runs as processes of this machine ends with the plugin, however that
// ends." (Provider) A session of its own is no way to live on.
func codeEndsWithKill(c *scene) {
	c.someLanguage()
	if !c.suite.description().Ephemeral {
		c.skip("its instances outlive the process, and their code may")
	}
	code, ok := sleeping[c.language]
	if !ok {
		c.skip("there is no code for this in %s", c.language)
	}
	brokerID, state := newBrokerID(), newBrokerID()
	first := c.newSession(brokerID, state)
	if first.plugin.Kill == nil {
		c.skip("the provider cannot be killed here: it is not a process of its own")
	}
	made := first.instance()
	word := sleepingTime()
	e := first.begin(c.ctx, made.lasting(fmt.Sprintf(code, word)))
	e.saying("ready")
	// A shell says ready while its child is about to become the program.
	seen := c.suite.eventually(c.ctx, settleTimeout/10, func(context.Context) error {
		if len(processesWith(word)) == 0 {
			return errors.New("it is not there")
		}
		return nil
	})
	if seen != nil {
		first.destroyLater(made.ID)
		c.skip("its code does not run where the suite could see it")
	}
	first.plugin.Kill()
	first.stop(c.ctx)
	_ = e.await(settleTimeout, "the provider was killed")
	c.later(func() { killProcesses(processesWith(word)) })
	c.eventually("code goes on although the plugin was killed", func(context.Context) error {
		if pids := processesWith(word); len(pids) > 0 {
			return fmt.Errorf("the processes %v still run", pids)
		}
		return nil
	})
}

// sleepingTime is a number of seconds that nobody else sleeps.
func sleepingTime() string {
	n, err := rand.Int(rand.Reader, big.NewInt(1e15))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("86400.%015d", n)
}

// processesWith lists the processes of this machine with a word in their command line.
func processesWith(word string) []int {
	directories, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, directory := range directories {
		line, err := os.ReadFile(directory + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		for argument := range bytes.SplitSeq(line, []byte{0}) {
			var pid int
			if _, err := fmt.Sscan(filepath.Base(directory), &pid); err == nil && string(argument) == word {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// killProcesses does what the provider should have done.
func killProcesses(pids []int) {
	for _, pid := range pids {
		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Kill()
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			continue // another user's, which this one may not end
		}
	}
}
