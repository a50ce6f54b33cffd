// Command recording records the command line with a real broker and real sandboxes: it types
// at a shell in a terminal, and writes what is shown as docs/command-line.cast, in the form
// of asciinema, and its first part as docs/command-line.svg. `make recording` runs it.
//
// Not here: what is promised about the command line; package e2e/commandline tests that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func main() {
	bin := flag.String("bin", "bin", "directory with the binaries")
	into := flag.String("into", "docs", "directory to write into")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := record(ctx, *bin, *into); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

const (
	address = "127.0.0.1:9385" // that of the documentation
	prompt  = "$ "
	columns = 100
	rows    = 28
)

// record starts a broker, plays all scenes, and stops the broker.
func record(ctx context.Context, bin, into string) (err error) {
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "recording")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stop, err := serve(ctx, bin, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := layOut(dir); err != nil {
		return err
	}
	s, err := openStage(ctx, bin, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	still, err := play(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(into, "command-line.cast"), s.cast(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(into, "command-line.svg"), picture(still), 0o644)
}

// play types what is to be seen, and returns what was shown in the part that a picture has.
func play(s *stage) (still string, err error) {
	for _, line := range []string{
		"sandbox-broker create --session build --template bash --ttl 1h",
		"sandbox-broker ps",
		"sandbox-broker cp src build:",
		"sandbox-broker exec build -- sh src/make.sh",
		"sandbox-broker cp build:out/report.txt - | head -2",
		"echo 'print(sum(range(101)))' | sandbox-broker run -",
	} {
		if err := s.line(line); err != nil {
			return "", err
		}
	}
	still = s.shown()
	for _, next := range []struct{ keys, shows string }{
		{"sandbox-broker shell bui\t-e PS1='in build: '\r", "in build: "}, // the key completes the name
		{"ls out\r", "in build: "},
		{"stty size\r", "in build: "},
		{"exit\r", prompt},
		{"sandbox-broker exec -d build -- sh -c 'while :; do :; done'\r", prompt},
		{"sandbox-broker top --interval 500ms\r", "%  "},
		{"m", "by memory"},
		{"q", prompt},
		{"sandbox-broker rm --force build\r", prompt},
	} {
		if err := s.types(next.keys, next.shows); err != nil {
			return "", err
		}
	}
	return still, nil
}

// layOut makes the files that are copied.
func layOut(dir string) error {
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		return err
	}
	script := "mkdir -p out\nuname -s >out/report.txt\necho 'all tests pass' >>out/report.txt\necho built\n"
	return os.WriteFile(filepath.Join(dir, "src", "make.sh"), []byte(script), 0o644)
}

// serve starts a broker and waits until it is ready.
func serve(ctx context.Context, bin, dir string) (stop func() error, err error) {
	runsc := filepath.Join(bin, "runsc")
	if found, err := exec.LookPath("runsc"); err == nil {
		runsc = found
	}
	config := fmt.Sprintf("listen = %q\nstate = \"./data\"\nplugin_dir = %q\nprovider \"self_managed\" {\n  runsc = %q\n  pool_size = 2\n}\n"+
		"tenant \"demo\" { token_sha256 = [\"7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c\"] }\n",
		address, filepath.Join(bin, "plugins"), runsc)
	file := filepath.Join(dir, "sandbox.hcl")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	broker := exec.CommandContext(ctx, filepath.Join(bin, "sandbox-broker"), "serve", "--config", file)
	broker.Stderr = os.Stderr
	if err := broker.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- broker.Wait() }()
	stop = func() error {
		_ = broker.Process.Signal(syscall.SIGTERM)
		return <-ended
	}
	api := client.New("http://"+address, "demo-token")
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := api.Ready(ctx); err == nil {
			return stop, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the broker ended: %w", err)
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		case <-ticker.C:
		}
	}
}
