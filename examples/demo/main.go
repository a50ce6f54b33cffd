// Command demo shows what the broker is for, in half a minute: it starts the
// broker on sandbox.hcl, runs code in real gVisor sandboxes through REST, shows
// results and timings, and stops everything again. `make demo` runs it from the
// repository's root.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	address = "http://127.0.0.1:9385" // as in sandbox.hcl
	token   = "demo-token"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context) (err error) {
	broker, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.stop()) }()
	if err := broker.waitReady(ctx); err != nil {
		return err
	}
	for _, s := range steps() {
		if err := s.run(ctx); err != nil {
			return err
		}
	}
	return showProvider(ctx)
}

// step is one execution with what it must give.
type step struct {
	title     string
	language  string
	code      string
	arguments string
	result    string // JSON
	stdout    string // a part of it
}

func steps() []step {
	return []step{
		{
			title: "Python, main with arguments", language: "python",
			code:      `def main(name: str, count: int) -> dict: return {"message": f"Hello {name}!" * count}`,
			arguments: `{"name": "World", "count": 3}`,
			result:    `{"message": "Hello World!Hello World!Hello World!"}`,
		},
		{
			title: "JavaScript, main with arguments", language: "javascript",
			code:      "function main(args) { return {message: `Hello ${args.name}!`.repeat(args.count)} }",
			arguments: `{"name": "World", "count": 3}`,
			result:    `{"message": "Hello World!Hello World!Hello World!"}`,
		},
		{title: "Python, a plain script", language: "python", code: "print(sum(range(10)))", stdout: "45\n"},
		{title: "JavaScript, a plain script", language: "javascript", code: "console.log([1, 2, 3].map(x => x * x).join())", stdout: "1,4,9\n"},
		{title: "The kernel, seen from inside: gVisor", language: "bash", code: "uname -sr; dmesg | grep -m1 gVisor", stdout: "gvisor"},
		{
			title: "The network, seen from inside: loopback alone", language: "python",
			code:   "import socket\nprint('interfaces:', [name for _, name in socket.if_nameindex()])\nprint('reach 1.1.1.1:', socket.socket().connect_ex(('1.1.1.1', 53)) == 0)",
			stdout: "interfaces: ['lo']\nreach 1.1.1.1: False\n",
		},
	}
}

// answer is the part of an execution's result that the demo shows.
type answer struct {
	Status        string          `json:"status"`
	Stdout        string          `json:"stdout"`
	Stderr        string          `json:"stderr"`
	Result        json.RawMessage `json:"result"`
	ExecutionTime float64         `json:"execution_time"`
	Detail        string          `json:"detail"` // of a refusal
}

func (s step) run(ctx context.Context) error {
	request := map[string]any{"language": s.language, "code": s.code}
	if s.arguments != "" {
		request["arguments"] = json.RawMessage(s.arguments)
	}
	var got answer
	began := time.Now()
	if err := call(ctx, http.MethodPost, "/api/v1/execute", request, &got); err != nil {
		return fmt.Errorf("%s: %w", s.title, err)
	}
	took := time.Since(began)
	fmt.Printf("\n%s\n", s.title)
	for line := range strings.Lines(s.code) {
		fmt.Printf("  | %s\n", strings.TrimRight(line, "\n"))
	}
	if s.arguments != "" {
		fmt.Printf("  arguments %s\n", s.arguments)
	}
	if got.Result != nil {
		fmt.Printf("  result    %s\n", got.Result)
	}
	for line := range strings.Lines(got.Stdout) {
		fmt.Printf("  stdout    %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Printf("  %s; the code ran %.1f ms, the whole request took %.1f ms\n", got.Status, got.ExecutionTime*1000, float64(took.Microseconds())/1000)
	if got.Status != "succeeded" || !strings.Contains(got.Stdout, s.stdout) || !sameJSON(string(got.Result), s.result) {
		return fmt.Errorf("%s: not the expected answer; stderr: %s", s.title, got.Stderr)
	}
	return nil
}

func sameJSON(a, b string) bool {
	var x, y any
	if a == "" || b == "" {
		return a == b
	}
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

// provider is the part of a provider's description that the demo shows.
type provider struct {
	ID      string            `json:"id"`
	Details map[string]string `json:"details"`
}

func providers(ctx context.Context) ([]provider, error) {
	var list struct {
		Providers []provider `json:"providers"`
	}
	err := call(ctx, http.MethodGet, "/api/v1/providers", nil, &list)
	return list.Providers, err
}

// showProvider says what the sandboxes are made of, and what is weaker here than
// it could be.
func showProvider(ctx context.Context) error {
	list, err := providers(ctx)
	for _, p := range list {
		fmt.Printf("\nProvider %s: runsc %s; %s sandboxes ready\n", p.ID, p.Details["runsc"], p.Details["ready"])
		if weaker := p.Details["weaker"]; weaker != "" {
			fmt.Println("Weaker than it could be:", weaker)
		}
	}
	return err
}

// warm says whether a sandbox of each template is ready, as far as the pool is
// large enough for that.
func warm(ctx context.Context) bool {
	list, err := providers(ctx)
	if err != nil || len(list) == 0 {
		return false
	}
	for name, value := range list[0].Details {
		if strings.HasPrefix(name, "ready_") && value == "0" {
			return false
		}
	}
	return true
}

func call(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, address+path, payload)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("HTTP %d: %s", resp.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// process is the broker.
type process struct {
	cmd   *exec.Cmd
	ended chan error
	log   *bytes.Buffer // read only after ended
}

func start(ctx context.Context) (*process, error) {
	// An answer now would come from somebody else's broker.
	if call(ctx, http.MethodGet, "/healthz", nil, nil) == nil {
		return nil, fmt.Errorf("something serves %s already: stop it first", address)
	}
	p := &process{cmd: exec.Command("bin/sandbox-broker", "serve", "--config", "sandbox.hcl"), ended: make(chan error, 1), log: &bytes.Buffer{}}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	fmt.Println("Starting the broker on sandbox.hcl ...")
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p, nil
}

func (p *process) waitReady(ctx context.Context) error {
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for call(ctx, http.MethodGet, "/readyz", nil, nil) != nil || !warm(ctx) {
		select {
		case <-tick.C:
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("the broker ended: %w\n%s", err, p.log)
		case <-deadline:
			return errors.New("the broker is not ready after 30 s; `make run` shows its log")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	fmt.Printf("Ready after %.1f s, with a sandbox waiting for each language.\n", time.Since(began).Seconds())
	return nil
}

func (p *process) stop() error {
	fmt.Println("\nStopping the broker ...")
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		if err != nil {
			return fmt.Errorf("the broker ended badly: %w\n%s", err, p.log)
		}
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		return errors.New("the broker did not stop within a minute")
	}
	fmt.Println("Done. Nothing is left running.")
	return nil
}
