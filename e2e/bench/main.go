// Command bench measures the whole system beside what it is compared with, in
// turn and in one run, so that a machine whose speed drifts does not favour
// either. `make bench` runs it as root or as an ordinary user, from the
// repository's root, and prints milliseconds and ratios. It decides nothing.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const token = "bench"

// config has a pool that is larger than what one measurement takes.
const config = `
listen     = "127.0.0.1:0"
state      = "./state"
plugin_dir = %q
log { level = "warn" }
provider "self_managed" {
  pool_size     = 6
  queue_timeout = "2m"
}
tenant "bench" { token_sha256 = ["1b32c28cb38c05480eccc1bd60ff97029b57a05c96718b96dad7e9d84894f549"] }
`

func main() {
	runs := flag.Int("runs", 200, "measurements of each kind")
	flag.Parse()
	if err := bench(*runs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(runs int) (err error) {
	dir, err := os.MkdirTemp("", "sb")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := startBroker(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	raw, err := newRawSandbox(dir)
	if err != nil {
		return err
	}

	fmt.Printf("%s, %d CPUs, %d measurements of each kind, in turn\n\n", runtime.Version(), runtime.NumCPU(), runs)
	python, node := "/usr/bin/python3", "/usr/bin/node"
	session := map[string]any{"language": "python", "code": "print(1)", "session_id": "s"}
	if err := b.execute(session); err != nil {
		return err
	}
	figures, err := inTurn(runs, []measurement{
		{"bare python3 -c 'print(1)'", command(python, "-c", "print(1)")},
		{"runsc run of a fresh sandbox with the same", raw.run},
		{"POST /execute of the same, fresh sandbox", b.executing(map[string]any{"language": "python", "code": "print(1)"})},
		{"POST /execute of the same, live session", b.executing(session)},
		{"bare node -e 'console.log(1)'", command(node, "-e", "console.log(1)")},
		{"POST /execute of the same, fresh sandbox", b.executing(map[string]any{"language": "javascript", "code": "console.log(1)"})},
		{"POST /execute of echo 1 in bash, fresh sandbox", b.executing(map[string]any{"language": "bash", "code": "echo 1"})},
	})
	if err != nil {
		return err
	}
	table(figures)
	return b.crowd(100)
}

// measurement is something to time.
type measurement struct {
	name string
	do   func() error
}

// figure is what a measurement came to.
type figure struct {
	name  string
	times []time.Duration // sorted
}

func (f figure) percentile(p int) time.Duration { return f.times[(len(f.times)-1)*p/100] }

// pause between measurements lets the pool fill again, so that a warm pool is
// what is measured, and not how fast sandboxes are made.
const pause = 250 * time.Millisecond

func inTurn(runs int, all []measurement) ([]figure, error) {
	figures := make([]figure, len(all))
	for i, m := range all {
		figures[i].name = m.name
	}
	for run := range runs + 2 {
		for i, m := range all {
			time.Sleep(pause)
			began := time.Now()
			if err := m.do(); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			if run >= 2 { // the first two warm caches
				figures[i].times = append(figures[i].times, time.Since(began))
			}
		}
	}
	for i := range figures {
		slices.Sort(figures[i].times)
	}
	return figures, nil
}

// table prints figures with their ratio to the last bare one above them.
func table(figures []figure) {
	fmt.Printf("%-50s %9s %9s %9s\n", "", "p50 ms", "p95 ms", "x bare")
	var bare figure
	for i, f := range figures {
		if i == 0 || f.name[:4] == "bare" {
			bare = f
		}
		fmt.Printf("%-50s %9.1f %9.1f %9.2f\n", f.name, ms(f.percentile(50)), ms(f.percentile(95)),
			float64(f.percentile(50))/float64(bare.percentile(50)))
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func command(path string, args ...string) func() error {
	return func() error {
		out, err := exec.Command(path, args...).Output()
		return expect(out, err)
	}
}

func expect(out []byte, err error) error {
	if err != nil {
		return err
	}
	if string(out) != "1\n" {
		return fmt.Errorf("gave %q", out)
	}
	return nil
}

// rawSandbox runs the same program with runsc alone.
type rawSandbox struct {
	runsc, dir string
	n          int
}

func newRawSandbox(dir string) (*rawSandbox, error) {
	path, err := exec.LookPath("runsc")
	if err != nil {
		if path, err = filepath.Abs("bin/runsc"); err != nil {
			return nil, err
		}
	}
	bundle := filepath.Join(dir, "bundle")
	config := map[string]any{
		"ociVersion": "1.0.0",
		"process": map[string]any{
			"user": map[string]any{"uid": 0, "gid": 0}, "cwd": "/",
			"args": []string{"/usr/bin/python3", "-c", "print(1)"}, "env": []string{"PATH=/usr/bin:/bin"},
		},
		"root":  map[string]any{"path": "/", "readonly": true},
		"linux": map[string]any{"namespaces": []any{map[string]any{"type": "pid"}, map[string]any{"type": "network"}, map[string]any{"type": "mount"}}},
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(bundle, 0o755); err != nil {
		return nil, err
	}
	return &rawSandbox{runsc: path, dir: dir}, os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644)
}

func (r *rawSandbox) run() error {
	r.n++
	root := filepath.Join(r.dir, "raw")
	flags := []string{"--root=" + root, "--network=none", "--ignore-cgroups", "--overlay2=none"}
	if os.Geteuid() != 0 {
		flags = append(flags, "--rootless")
	}
	cmd := exec.Command(r.runsc, append(flags, "run", "--bundle="+filepath.Join(r.dir, "bundle"), fmt.Sprintf("raw%06d", r.n))...)
	out, err := cmd.Output()
	// runsc leaves this bind mount, which would keep the directory.
	_ = syscall.Unmount(filepath.Join(root, "null-netns"), syscall.MNT_DETACH)
	return expect(out, err)
}

// broker is the system under measurement.
type broker struct {
	cmd *exec.Cmd
	url string
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

func startBroker(dir string) (*broker, error) {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "sandbox.hcl")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, filepath.Join(bin, "plugins")), 0o644); err != nil {
		return nil, err
	}
	b := &broker{cmd: exec.Command(filepath.Join(bin, "sandbox-broker"), "serve", "--config", file)}
	b.cmd.Stderr = os.Stderr
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	banner := make([]byte, 4096)
	n, err := out.Read(banner)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the broker does not start: %w", err), b.stop())
	}
	b.url = address.FindString(string(banner[:n]))
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the broker
	return b, nil
}

func (b *broker) stop() error {
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	return b.cmd.Wait()
}

func (b *broker) executing(request map[string]any) func() error {
	return func() error { return b.execute(request) }
}

func (b *broker) execute(request map[string]any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, b.url+"/api/v1/execute", bytes.NewReader(body))
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
	var answer struct {
		Stdout string `json:"stdout"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d: %s", resp.StatusCode, text)
	}
	return expect([]byte(answer.Stdout), nil)
}

// crowd sends n requests at once, many more than the pool holds.
func (b *broker) crowd(n int) error {
	f := figure{times: make([]time.Duration, n)}
	errs := make([]error, n)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			errs[i] = b.execute(map[string]any{"language": "python", "code": "print(1)"})
			f.times[i] = time.Since(began)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	slices.Sort(f.times)
	fmt.Printf("\n%d at once, each in a fresh sandbox: all succeeded; p50 %.0f ms, p95 %.0f ms, %.1f a second\n",
		n, ms(f.percentile(50)), ms(f.percentile(95)), float64(n)/time.Since(began).Seconds())
	return nil
}
