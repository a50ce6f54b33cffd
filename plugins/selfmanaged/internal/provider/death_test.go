package provider

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Environment of the victim, a process of this test's own binary that holds
// sandboxes as a plugin does and is killed.
const (
	victimStateDir = "SELFMANAGED_TEST_VICTIM_STATE_DIR"
	victimBinaries = "SELFMANAGED_TEST_VICTIM_BINARIES" // of runsc and the guest
	victimBrokerID = "SELFMANAGED_TEST_VICTIM_BROKER_ID"
)

// victim runs code without end in a sandbox of each kind, and prints a line when
// all of it runs.
func victim() {
	ctx := context.Background()
	p := New(hclog.NewNullLogger()).(*Provider)
	runsc, guest, _ := strings.Cut(os.Getenv(victimBinaries), ":")
	settings, _ := p.Describe().Schema.Resolve(map[string]any{"pool_size": 3, "max_sandboxes": 6, "runsc": runsc, "guest": guest})
	err := p.Configure(ctx, sdk.ConfigureRequest{Label: "self_managed", BrokerID: os.Getenv(victimBrokerID), StateDir: os.Getenv(victimStateDir), Settings: settings})
	if err != nil {
		fmt.Println("configure:", err)
		return
	}
	ended, started := make(chan error), make(chan struct{})
	for template, code := range map[string]string{
		templatePython: "print(1)\nwhile True: pass",
		templateNode:   "console.log(1); setInterval(() => {}, 1000)",
		templateBash:   "trap '' HUP INT TERM; echo 1; sleep 1000",
	} {
		go func() {
			i, err := p.Create(ctx, sdk.CreateRequest{Template: template})
			if err == nil {
				out := newAnnouncer()
				go func() {
					<-out.written
					started <- struct{}{}
				}()
				_, err = p.Execute(ctx, sdk.ExecuteRequest{InstanceID: i.ID, Language: languageOf(template), Code: code, Timeout: time.Hour, OutputLimit: 1 << 20}, out)
			}
			ended <- err
		}()
	}
	for range 3 {
		select {
		case <-started:
		case err := <-ended:
			fmt.Println("an execution ended:", err)
			return
		}
	}
	fmt.Println("running")
	fmt.Println("an execution ended:", <-ended)
}

// announcer is an output that tells when something was written.
type announcer struct {
	once    sync.Once
	written chan struct{}
}

func newAnnouncer() *announcer { return &announcer{written: make(chan struct{})} }

func (a *announcer) Stdout([]byte) error {
	a.once.Do(func() { close(a.written) })
	return nil
}

func (a *announcer) Stderr([]byte) error { return nil }

func (a *announcer) Artifact(sdk.Artifact) error { return nil }

func TestNoSandboxOutlivesItsPlugin(t *testing.T) {
	cases := map[string]func(t *testing.T, plugin *os.Process){
		"killed": func(t *testing.T, plugin *os.Process) {
			assert.NilError(t, plugin.Kill())
		},
		"stopped and killed": func(t *testing.T, plugin *os.Process) {
			assert.NilError(t, plugin.Signal(syscall.SIGSTOP))
			assert.NilError(t, plugin.Kill())
		},
		"killed while its sandboxes are stopped": func(t *testing.T, plugin *os.Process) {
			for pid := range processesNaming(os.Getenv(victimStateDir)) {
				assert.NilError(t, unix.Kill(pid, unix.SIGSTOP))
			}
			assert.NilError(t, plugin.Kill())
		},
	}
	for name, kill := range cases {
		t.Run(name, func(t *testing.T) {
			dir, brokerID := scratch.Dir(t), "test"+newID()
			t.Setenv(victimStateDir, dir)
			t.Setenv(victimBrokerID, brokerID)
			t.Setenv(victimBinaries, binaries.Runsc(t)+":"+filepath.Join(binaries.Dir(t), "sandbox-guest"))
			cmd := exec.Command("/proc/self/exe")
			stdout, err := cmd.StdoutPipe()
			assert.NilError(t, err)
			assert.NilError(t, cmd.Start())
			line, err := bufio.NewReader(stdout).ReadString('\n')
			assert.Check(t, err)
			assert.Check(t, is.Equal(line, "running\n"))
			assert.Check(t, len(processesNaming(dir)) > 0)
			kill(t, cmd.Process)
			assert.ErrorContains(t, cmd.Wait(), "killed")
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if left := processesNaming(dir); len(left) > 0 {
					return poll.Continue("processes are left: %v", left)
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))

			// The next plugin finds what the dead one left, and clears it away.
			p := configured(t, dir, brokerID, nil)
			assert.NilError(t, p.Close(t.Context()))
			nothingLeft(t, dir, brokerID)
		})
	}
}

func TestASandboxThatIsKilledIsReplaced(t *testing.T) {
	for _, process := range []string{"runsc", "runsc-sandbox", "runsc-gofer"} {
		t.Run(process, func(t *testing.T) {
			p := newProvider(t, nil)
			id := create(t, p, templatePython)
			out, result := newAnnouncer(), make(chan error)
			go func() {
				_, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(1)\nwhile True: pass", Timeout: time.Minute, OutputLimit: 1 << 20}, out)
				result <- err
			}()
			<-out.written
			killed := 0
			for pid, line := range processesNaming(id) {
				if program, _, _ := strings.Cut(line, " "); filepath.Base(program) == process {
					assert.NilError(t, unix.Kill(pid, unix.SIGKILL))
					killed++
				}
			}
			assert.Equal(t, killed, 1)
			assert.ErrorIs(t, <-result, &sdk.Error{Code: sdk.CodeUnavailable})
			_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: ""})
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
			poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(processesNaming(id), 0)) }, poll.WithTimeout(2*time.Minute))
			got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Python, Code: "print('next')"})
			assert.NilError(t, err)
			assert.Equal(t, got.stdout, "next\n")
		})
	}
}

func TestASandboxThatHangsIsDestroyed(t *testing.T) {
	p := newProvider(t, nil)
	var id string
	hang := func(limit time.Duration) sdk.ExecuteResult {
		id = create(t, p, templatePython)
		out, result := newAnnouncer(), make(chan sdk.ExecuteResult, 1)
		go func() {
			r, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(1)\nwhile True: pass", Timeout: limit, OutputLimit: 1 << 20}, out)
			assert.Check(t, err)
			result <- r
		}()
		select {
		case <-out.written:
		case r := <-result:
			return r // before it printed anything
		}
		for pid := range processesNaming(id) {
			assert.NilError(t, unix.Kill(pid, unix.SIGSTOP))
		}
		return <-result
	}
	var got sdk.ExecuteResult
	for limit := time.Second; !strings.Contains(got.Detail, "did not answer"); limit *= 2 {
		assert.Assert(t, limit < time.Minute, "the guest always ended it before it was stopped")
		got = hang(limit)
		assert.Equal(t, got.Status, sdk.StatusTimeout)
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result { return poll.Compare(is.Len(processesNaming(id), 0)) }, poll.WithTimeout(2*time.Minute))
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: ""})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
}

func TestAGuestThatSaysNothingIsGivenUp(t *testing.T) {
	guest := filepath.Join(t.TempDir(), "guest")
	assert.NilError(t, os.WriteFile(guest, []byte("#!/bin/sh\ntrap '' HUP INT TERM\nwhile :; do sleep 1000; done\n"), 0o755))
	p := newProvider(t, map[string]any{"pool_size": 0, "guest": guest})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := p.sandboxes.make(ctx, templatePython)
	assert.ErrorContains(t, err, "prepare the guest")
	assert.Check(t, is.Len(processesNaming(p.dir), 0))
}

func TestExecutionsLeaveNothingBehind(t *testing.T) {
	tier.Full(t)
	for name, images := range map[string]string{"sandboxes that were prepared one by one": imagesNever, "copies": imagesAlways} {
		t.Run(name, func(t *testing.T) {
			leaveNothingBehind(t, newProvider(t, map[string]any{"pool_size": 3, "max_sandboxes": 6, "images": images}))
		})
	}
}

func leaveNothingBehind(t *testing.T, p testProvider) {
	t.Helper()
	run := func(instances, executions int) {
		for n := range instances {
			template := []string{templatePython, templateNode, templateBash}[n%3]
			id := create(t, p, template)
			for range executions {
				code := map[string]string{templatePython: "print(1)", templateNode: "console.log(1)", templateBash: "echo 1"}[template]
				got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: languageOf(template), Code: code})
				assert.NilError(t, err)
				assert.Equal(t, got.stdout, "1\n")
			}
			assert.NilError(t, p.Destroy(t.Context(), id))
		}
	}
	held := func() map[string]int {
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			s := p.pool.Stats()
			if s.Making == 0 && s.InUse == 0 && s.Ready[templatePython] == 1 && s.Ready[templateNode] == 1 && s.Ready[templateBash] == 1 {
				return poll.Success()
			}
			return poll.Continue("%v", s)
		}, poll.WithTimeout(2*time.Minute))
		held := map[string]int{"goroutines": runtime.NumGoroutine()}
		for name, pattern := range map[string]string{
			"descriptors": "/proc/self/fd/*", "files": filepath.Join(p.dir, "*/*"), "cgroups": "/sys/fs/cgroup/*/sandbox-broker/" + p.brokerID + "*/*",
		} {
			found, err := filepath.Glob(pattern)
			assert.NilError(t, err)
			held[name] = len(found)
		}
		return held
	}
	run(6, 1)
	var before map[string]int
	poll.WaitOn(t, func(poll.LogT) poll.Result { // the poll is a goroutine too
		before = held()
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	run(9, 4)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		for name, n := range held() {
			if n > before[name] {
				return poll.Continue("%s: %d before, %d after", name, before[name], n)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}
