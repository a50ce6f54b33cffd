package local

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

//go:embed context.py
var contextRunner string

// interpreter is the process of a context.
type interpreter struct {
	run            *process
	requests       *os.File
	answers        chan answer
	dead           chan struct{}
	stdout, stderr *splitter
}

type request struct {
	Code      string            `json:"code"`
	Arguments json.RawMessage   `json:"arguments"`
	Env       map[string]string `json:"env"`
	Sentinel  string            `json:"sentinel"`
	// Keep has the variables written to that file, and Take read from it.
	Keep string `json:"keep,omitempty"`
	Take string `json:"take,omitempty"`
}

type answer struct {
	Code   int     `json:"code"`
	Result *string `json:"result"`
	Value  *string `json:"value"`
}

func (c *codeContext) start() (*interpreter, error) {
	theirRequests, requests, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, theirAnswers, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	in := &interpreter{
		run:      c.instance.newProcess([]string{"python3", "-c", contextRunner}, map[string]string{"PYTHONPATH": c.instance.packages()}, c.env),
		requests: requests, answers: make(chan answer), dead: make(chan struct{}), stdout: &splitter{}, stderr: &splitter{},
	}
	in.run.Dir = c.directory()
	in.run.ExtraFiles = []*os.File{theirRequests, theirAnswers}
	go func() {
		defer close(in.dead)
		defer answers.Close()
		_ = in.run.run(c.instance.life, in.stdout.write, in.stderr.write)
		theirRequests.Close()
		theirAnswers.Close()
		requests.Close()
	}()
	go func() {
		lines := bufio.NewScanner(answers)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var a answer
			if json.Unmarshal(lines.Bytes(), &a) == nil {
				select {
				case in.answers <- a:
				case <-in.dead:
				}
			}
		}
	}()
	return in, nil
}

// execute runs code. What stops it interrupts first, and kills a second later.
func (in *interpreter) execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	sentinel := "\x00" + newID()
	outDone, errDone := in.stdout.expect(sentinel, out.Stdout), in.stderr.expect(sentinel, out.Stderr)
	line, err := json.Marshal(request{Code: req.Code, Arguments: req.Arguments, Env: req.Env, Sentinel: sentinel})
	if err != nil {
		return sdk.ExecuteResult{}, err
	}
	started := time.Now()
	go func() { _, _ = in.requests.Write(append(line, '\n')) }() // a dead one is noticed below
	var result sdk.ExecuteResult
	got, answered, reason := in.await(ctx, req.Timeout)
	result.Duration = time.Since(started)
	if answered {
		<-outDone
		<-errDone
		result.ExitCode = got.Code
		if got.Result != nil {
			result.Result = json.RawMessage(*got.Result)
		}
	} else {
		result.ExitCode = in.run.exitCode()
		result.Detail = "the interpreter ended; the context starts afresh, without its state"
	}
	if err := conclude(&result, reason); err != nil {
		return sdk.ExecuteResult{}, err
	}
	if req.Artifacts != nil && got.Value != nil {
		err = out.Artifact(sdk.Artifact{Kind: sdk.ArtifactResult, MIMEType: "text/plain", Data: []byte(*got.Value), Group: 1})
	}
	return result, err
}

// await waits for the answer or the death of the interpreter, and says what cut
// the code short, if something did.
func (in *interpreter) await(ctx context.Context, timeout time.Duration) (got answer, answered bool, reason error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case got = <-in.answers:
		return got, true, nil
	case <-in.dead:
		return got, false, nil
	case <-ctx.Done():
		reason = ctx.Err()
	case <-timer.C:
		reason = errTimeout
	}
	in.run.signal(syscall.SIGINT)
	grace := time.NewTimer(sdk.InterruptGrace)
	defer grace.Stop()
	select {
	case got = <-in.answers:
		return got, true, reason
	case <-in.dead:
	case <-grace.C:
		in.run.end(reason)
		<-in.dead
	}
	return got, false, reason
}

// splitter passes on what an interpreter prints, up to the sentinel of each
// execution.
type splitter struct {
	mu       sync.Mutex
	rest     []byte
	sentinel []byte
	to       func([]byte) error
	deaf     bool // to has failed
	done     chan struct{}
}

func (s *splitter) expect(sentinel string, to func([]byte) error) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest, s.sentinel, s.to, s.deaf, s.done = nil, []byte(sentinel), to, false, make(chan struct{})
	return s.done
}

func (s *splitter) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == nil {
		return nil
	}
	s.rest = append(s.rest, b...)
	if at := bytes.Index(s.rest, s.sentinel); at >= 0 {
		s.pass(s.rest[:at])
		s.to = nil
		close(s.done)
		return nil
	}
	// What may be the beginning of the sentinel waits.
	keep := 0
	for n := min(len(s.rest), len(s.sentinel)-1); n > 0; n-- {
		if bytes.HasSuffix(s.rest, s.sentinel[:n]) {
			keep = n
			break
		}
	}
	s.pass(s.rest[:len(s.rest)-keep])
	s.rest = bytes.Clone(s.rest[len(s.rest)-keep:])
	return nil
}

// pass passes output on. When nobody listens any more the interpreter goes on: it
// is its caller's context that ends the code.
func (s *splitter) pass(b []byte) {
	if !s.deaf && s.to(b) != nil {
		s.deaf = true
	}
}
