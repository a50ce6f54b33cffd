package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

func stream(t *testing.T, b *harness.Broker, request map[string]any) *harness.Stream {
	t.Helper()
	s, err := b.Stream(t.Context(), "/api/v1/execute", request)
	assert.NilError(t, err)
	t.Cleanup(s.Close)
	return s
}

func TestFiftyStreamsAtOnceAreWholeAndInOrder(t *testing.T) {
	tier.Full(t)
	const sessions, each, lines = 5, 10, 1000
	inTurnOnBothRuntimes(t, func(t *testing.T, b *harness.Broker) {
		code := fmt.Sprintf(`import os, sys, time
print("ready")
while not os.path.exists("go"): time.sleep(0.25)
for i in range(%d):
    print(i, "x" * 40)
    if i %% 100 == 99: print(i, file=sys.stderr)
`, lines)
		var wg sync.WaitGroup
		var ready sync.WaitGroup
		ready.Add(sessions * each)
		for i := range sessions * each {
			wg.Go(func() {
				once := sync.OnceFunc(ready.Done)
				defer once()
				s, err := b.Stream(t.Context(), "/api/v1/execute", map[string]any{
					"language": "python", "code": code, "timeout": 600, "session_id": fmt.Sprint("s", i%sessions),
				})
				if !assert.Check(t, err) {
					return
				}
				defer s.Close()
				if !assert.Check(t, s.Until("ready\n")) {
					return
				}
				once()
				for name := ""; name != "done"; {
					if name, _, err = s.Next(); !assert.Check(t, err) {
						return
					}
				}
				var want, wantErr strings.Builder
				want.WriteString("ready\n")
				for n := range lines {
					fmt.Fprintln(&want, n, strings.Repeat("x", 40))
					if n%100 == 99 {
						fmt.Fprintln(&wantErr, n)
					}
				}
				assert.Check(t, string(s.Stdout) == want.String(), "stream %d is not whole or not in order: %d bytes", i, len(s.Stdout))
				assert.Check(t, is.Equal(string(s.Stderr), wantErr.String()))
			})
		}
		ready.Wait() // all fifty run
		for i := range sessions {
			b.Execute(t, map[string]any{"language": "bash", "code": "touch go", "session_id": fmt.Sprint("s", i)})
		}
		wg.Wait()
	})
}

func TestAStreamCarriesAnyBytesAndTheResult(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, func(t *testing.T, b *harness.Broker) {
		s := stream(t, b, map[string]any{
			"language": "python", "arguments": map[string]any{},
			"code": "import sys\ndef main():\n    sys.stdout.buffer.write(bytes(range(256)) * 300)\n    sys.stderr.write('\u20ac' * 50000)\n    return {'\u20ac': [1]}",
		})
		e := s.End(t)
		assert.Check(t, is.Equal(e.Status, "succeeded"))
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		assert.Check(t, bytes.Equal(s.Stdout, bytes.Repeat(all, 300)))
		assert.Check(t, string(s.Stderr) == strings.Repeat("\u20ac", 50000))
		assert.Check(t, is.Equal(string(s.Result), `{"€": [1]}`))
		assert.Check(t, is.Equal(s.Names[0], "started"))
		assert.Check(t, is.Equal(e.ExecutionID, s.ExecutionID))
		assert.Check(t, is.Equal(e.InstanceID, s.InstanceID))
	})
}

func TestCodeIsInterrupted(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, func(t *testing.T, b *harness.Broker) {
		for name, test := range map[string]struct {
			code     string
			exitCode int
			stdout   string
			stderr   string
		}{
			"and sees a KeyboardInterrupt": {"import time\nprint('on')\ntime.sleep(60)", 130, "on\n", "KeyboardInterrupt"},
			"and handles it":               {"import time\ntry:\n    print('on')\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('off')", 0, "on\noff\n", ""},
			"and ignores it":               {"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('on')\nwhile True: pass", 137, "on\n", ""},
		} {
			t.Run(name, func(t *testing.T) {
				s := stream(t, b, map[string]any{"language": "python", "code": test.code})
				assert.NilError(t, s.Until("on\n"))
				path := "/api/v1/instances/" + s.InstanceID + "/executions/" + s.ExecutionID
				harness.Refused(t, b.Do(http.MethodDelete, path, harness.OtherToken, nil), http.StatusNotFound, "SB013")
				assert.Equal(t, b.Do(http.MethodDelete, path, harness.Token, nil).Status, http.StatusAccepted)
				e := s.End(t)
				assert.Check(t, is.Equal(e.Status, "cancelled"))
				assert.Check(t, is.Equal(e.ExitCode, test.exitCode))
				assert.Check(t, is.Equal(string(s.Stdout), test.stdout))
				assert.Check(t, is.Contains(string(s.Stderr), test.stderr))
				harness.Refused(t, b.Do(http.MethodDelete, path, harness.Token, nil), http.StatusNotFound, "SB013")
			})
		}
		t.Run("by the name that its caller gave it", func(t *testing.T) {
			session := func(code string) map[string]any {
				return map[string]any{"language": "bash", "session_id": "named", "code": code}
			}
			instance := b.Execute(t, session("true")).InstanceID
			request := session("echo on; touch on; sleep 60")
			request["execution_id"] = "mine"
			answer := make(chan harness.Answer, 1)
			go func() { answer <- b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request) }()
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				return poll.Compare(is.Equal(b.Execute(t, session("test -e on && echo yes")).Stdout, "yes\n"))
			}, poll.WithTimeout(2*time.Minute))
			request["code"] = "true"
			harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", harness.Token, request), http.StatusConflict, "SB014")
			assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+instance+"/executions/mine", harness.Token, nil).Status, http.StatusAccepted)
			var e harness.Execution
			(<-answer).Into(t, &e)
			assert.Check(t, is.Equal(e.Status, "cancelled"))
			assert.Check(t, is.Equal(e.ExecutionID, "mine"))
			assert.Check(t, is.Equal(e.Stdout, "on\n"))
			assert.Check(t, is.Equal(b.Execute(t, session("echo next")).InstanceID, instance), "the instance lives on")
		})
	})
}

func TestAProviderIsInterruptedThroughItsPlugin(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	s := stream(t, b, map[string]any{"language": "mock", "code": `{"delay": "60s", "stdout": "so far"}`})
	name, _, err := s.Next()
	assert.NilError(t, err)
	assert.Equal(t, name, "started")
	assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/instances/"+s.InstanceID+"/executions/"+s.ExecutionID, harness.Token, nil).Status, http.StatusAccepted)
	e := s.End(t)
	assert.Check(t, is.Equal(e.Status, "cancelled"))
	assert.Check(t, is.Equal(e.ExitCode, 130))
	assert.Check(t, is.Equal(string(s.Stdout), "so far"))
}

func TestWhatFailsInAStream(t *testing.T) {
	t.Parallel()
	b := startMock(t, "")
	_, err := b.Stream(t.Context(), "/api/v1/execute", map[string]any{"language": "mock", "code": "{}", "timeout": -1})
	problem, refused := errors.AsType[*harness.Problem](err)
	assert.Assert(t, refused, "%v", err)
	assert.Equal(t, problem.Status, http.StatusUnprocessableEntity)
	s := stream(t, b, map[string]any{"language": "mock", "code": `{"crash": "before"}`})
	var last []byte
	for {
		_, data, err := s.Next()
		if err != nil {
			assert.ErrorIs(t, err, io.EOF)
			break
		}
		last = data
	}
	assert.DeepEqual(t, s.Names, []string{"started", "error"})
	var p harness.Problem
	assert.NilError(t, json.Unmarshal(last, &p))
	assert.Check(t, is.Equal(p.Code, "SB009"))
	assert.Check(t, is.Equal(p.Status, http.StatusServiceUnavailable))
}

func TestACallerThatLeavesAStreamEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, func(t *testing.T, b *harness.Broker) {
		session := func(code string) map[string]any {
			return map[string]any{"language": "bash", "session_id": "its-caller-leaves", "code": code}
		}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		s, err := b.Stream(ctx, "/api/v1/execute", session("(while :; do echo x >> beat; done) & while test ! -s beat; do :; done; echo on; wait"))
		assert.NilError(t, err)
		defer s.Close()
		assert.NilError(t, s.Until("on\n"))
		leave()
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			return poll.Compare(is.Equal(b.Execute(t, session("before=$(stat -c %s beat); sleep 0.3; test $before = $(stat -c %s beat) && echo still")).Stdout, "still\n"))
		}, poll.WithTimeout(2*time.Minute))
	})
}

// resident is the memory of a process, in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	assert.NilError(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			assert.NilError(t, err)
			return kb << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

func TestAReaderThatPausesLosesNothingAndCostsNoMemory(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const lines, width = 8000, 1000 // 8 MB, just below the highest limit
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + fmt.Sprintf("limits {\n  output = 8388608\n}\nprovider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 2\n}\n", binaries.Runsc(t)),
	})
	session := func(code string) map[string]any {
		return map[string]any{"language": "python", "session_id": "s", "timeout": 120, "code": code}
	}
	b.Execute(t, session("open('progress', 'w')"))
	request, err := json.Marshal(session(fmt.Sprintf(`
with open("progress", "w") as f:
    for i in range(%d):
        print(str(i).rjust(%d, "."))
        if i %% 10 == 0: f.write("x"); f.flush()
`, lines, width-1)))
	assert.NilError(t, err)
	before := resident(t, b.PID) + resident(t, b.Plugin("self_managed"))

	// The client's own buffer is small, so that little is on its way.
	dialer := net.Dialer{}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(b.URL, "http://"))
	assert.NilError(t, err)
	defer conn.Close()
	assert.NilError(t, conn.(*net.TCPConn).SetReadBuffer(256<<10))
	_, err = fmt.Fprintf(conn, "POST /api/v1/execute HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", harness.Token, len(request), request)
	assert.NilError(t, err)

	last := ""
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		now := b.Execute(t, session("import os, time\na = os.path.getsize('progress')\ntime.sleep(0.3)\nprint(a, os.path.getsize('progress'))")).Stdout
		last = now
		if from, to, _ := strings.Cut(strings.TrimSpace(now), " "); from == to && from != "0" {
			return poll.Success()
		}
		return poll.Continue("it goes on: %s", now)
	}, poll.WithTimeout(2*time.Minute))
	written, err := strconv.Atoi(strings.Fields(last)[0])
	assert.NilError(t, err)
	assert.Check(t, written < lines/10, "the code was not held up: %d of %d", written, lines/10)
	grown := resident(t, b.PID) + resident(t, b.Plugin("self_managed")) - before
	assert.Check(t, grown < 64<<20, "broker and plugin grew by %d bytes", grown)

	// Now it reads.
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	assert.NilError(t, err)
	defer resp.Body.Close()
	s := harness.NewStream(resp.Body)
	e := s.End(t)
	assert.Check(t, is.Equal(e.Status, "succeeded"))
	assert.Check(t, !e.Truncated)
	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&want, "%s\n", strings.Repeat(".", width-1-len(strconv.Itoa(i)))+strconv.Itoa(i))
	}
	assert.Check(t, bytes.Equal(s.Stdout, want.Bytes()), "%d bytes instead of %d", len(s.Stdout), want.Len())
}

func TestCtrlCInterruptsWhatExecRuns(t *testing.T) {
	t.Parallel()
	b := real.Broker(t)
	code := filepath.Join(t.TempDir(), "long.py")
	assert.NilError(t, os.WriteFile(code, []byte("import time\ntry:\n    print('on')\n    time.sleep(60)\nfinally:\n    print('off')\n"), 0o644))
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries.Dir(t), "sandbox-broker"), "exec", code)
	cmd.Env = append(os.Environ(), "SANDBOX_BROKER_URL="+b.URL, "SANDBOX_BROKER_TOKEN="+harness.Token)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	assert.Assert(t, lines.Scan())
	assert.Equal(t, lines.Text(), "on")
	assert.NilError(t, cmd.Process.Signal(os.Interrupt))
	assert.Assert(t, lines.Scan(), "it waits for the end")
	assert.Equal(t, lines.Text(), "off")
	assert.Assert(t, !lines.Scan())
	_ = cmd.Wait()
	assert.Equal(t, cmd.ProcessState.ExitCode(), 130)
	assert.Check(t, is.Contains(stderr.String(), "KeyboardInterrupt"))
}
