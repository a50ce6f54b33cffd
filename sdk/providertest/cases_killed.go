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
	made := c.createOn(first, first.createRequest(c.language))
	word := sleepingTime()
	e := c.beginOn(c.ctx, first, c.lasting(made.ID, fmt.Sprintf(code, word)))
	c.saying(e, "ready")
	// A shell says ready while its child is about to become the program.
	seen := c.suite.eventually(c.ctx, settleTimeout/10, func(context.Context) error {
		if len(processesWith(word)) == 0 {
			return errors.New("it is not there")
		}
		return nil
	})
	if seen != nil {
		c.destroyLater(first, made.ID)
		c.skip("its code does not run where the suite could see it")
	}
	first.plugin.Kill()
	first.stop(c.ctx)
	_ = c.await(e, settleTimeout, "the provider was killed")
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
