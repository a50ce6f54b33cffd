package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// step is one thing that was done through the broker.
type step struct {
	Name    string  `json:"name"`
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
}

// throughBroker starts the broker on the provider and does with it what clients do. It
// makes no faults.
func throughBroker(ctx context.Context, o options, cloud cloud, ledger ledger, bill *bill, clean cleaner) []step {
	b := &liveBroker{ctx: ctx, token: rand.Text()}
	var steps []step
	do := func(name string, f func() error) bool {
		began, s := time.Now(), step{Name: name}
		if err := f(); err != nil {
			s.Error = clean.text(err.Error())
		}
		s.Seconds = time.Since(began).Seconds()
		steps = append(steps, s)
		fmt.Printf("broker  %s: %s\n", name, map[bool]string{true: "passed", false: s.Error}[s.Error == ""])
		return s.Error == ""
	}
	bill.begin("of the broker")
	defer bill.end("of the broker")
	defer func() { do("the broker ends, with all that it made", b.stop) }()
	if !do("the broker starts", func() error { return b.start(o, cloud, ledger) }) {
		return steps
	}
	for language, code := range map[string]string{"python": "print(6 * 7)", "javascript": "console.log(6 * 7)", "bash": "echo $((6 * 7))"} {
		do(language+" runs", func() error { return b.prints(map[string]any{"language": language, "code": code}, "42\n") })
	}
	do("main gets arguments", func() error {
		return b.prints(map[string]any{"language": "python", "code": "def main(a):\n    print(a)\n", "arguments": map[string]any{"a": "it's"}}, "it's\n")
	})
	do("a session keeps files", func() error {
		if err := b.prints(map[string]any{"session_id": "live", "language": "bash", "code": "echo mine > file"}, ""); err != nil {
			return err
		}
		return b.prints(map[string]any{"session_id": "live", "language": "bash", "code": "cat file"}, "mine\n")
	})
	do("a context keeps state", func() error {
		if err := b.prints(map[string]any{"session_id": "live", "language": "python", "context": "default", "code": "x = 41"}, ""); err != nil {
			return err
		}
		return b.prints(map[string]any{"session_id": "live", "language": "python", "context": "default", "code": "print(x + 1)"}, "42\n")
	})
	return steps
}

// liveBroker is a broker process with the provider and one tenant.
type liveBroker struct {
	ctx        context.Context //nolint:containedctx // it is that of the run
	token, url string
	process    *exec.Cmd
	ended      chan struct{} // closed after failed is set
	failed     error
	dir        string
}

func (b *liveBroker) start(o options, cloud cloud, ledger ledger) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(o.dir, runDir); err != nil {
		return err
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "sandbox.hcl")
	text := fmt.Sprintf("listen = %q\nstate = %q\nplugin_dir = %q\ntenant \"live\" { token_sha256 = [\"%x\"] }\n%s",
		address, filepath.Join(b.dir, "state"), filepath.Join(bin, "plugins"), sha256.Sum256([]byte(b.token)), cloud.block(o.provider))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	b.url, b.process = "http://"+address, exec.Command(filepath.Join(bin, "sandbox-broker"), "serve", "--config", file)
	// A run that is killed takes the broker with it.
	b.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	b.process.Stdout, b.process.Stderr = log, log
	if err := b.process.Start(); err != nil {
		return err
	}
	b.ended = make(chan struct{})
	go func() {
		b.failed = b.process.Wait()
		close(b.ended)
	}()
	if err := b.ready(); err != nil {
		said, _ := os.ReadFile(log.Name()) // to help, if it can
		return fmt.Errorf("%w; it said: %s", err, said[max(0, len(said)-2000):])
	}
	id, err := os.ReadFile(filepath.Join(b.dir, "state", "broker_id"))
	if err != nil {
		return err
	}
	// Nothing is made before the first request.
	return ledger.add(entry{strings.TrimSpace(string(id)), o.provider, cloud.place(), time.Now()})
}

func (b *liveBroker) ready() error {
	ctx, cancel := context.WithTimeoutCause(b.ctx, time.Minute, errors.New("the broker was not ready within a minute"))
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if status, _, err := b.ask(http.MethodGet, "/api/v1/providers", nil); err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ticker.C:
		case <-b.ended:
			return errors.New("the broker has ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *liveBroker) ask(method, path string, body any) (int, []byte, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	req, err := http.NewRequestWithContext(b.ctx, method, b.url+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+b.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

func (b *liveBroker) prints(request map[string]any, want string) error {
	status, answer, err := b.ask(http.MethodPost, "/api/v1/execute", request)
	if err != nil {
		return err
	}
	var got struct{ Status, Stdout, Stderr string }
	if err := json.Unmarshal(answer, &got); err != nil || status != http.StatusOK || got.Status != "succeeded" || got.Stdout != want {
		return fmt.Errorf("the answer is %d %s; stdout must be %q", status, answer, want)
	}
	return nil
}

// stop ends the broker in order, which destroys its instances.
func (b *liveBroker) stop() error {
	if b.ended == nil {
		return os.RemoveAll(b.dir)
	}
	err := b.process.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = errors.New("the broker had ended before")
	}
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-b.ended:
		err = errors.Join(err, b.failed)
	case <-timer.C:
		err = errors.Join(err, fmt.Errorf("the broker did not end within %v, and was killed", stopTime), b.process.Process.Kill())
		<-b.ended
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// stopTime is more than a broker takes to stop.
const stopTime = 90 * time.Second
