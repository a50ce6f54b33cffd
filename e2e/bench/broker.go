package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// tenants has one tenant, whose token is token.
const (
	token   = "bench"
	tenants = `quota { max_concurrent = 10000 }
tenant "bench" { token_sha256 = ["1b32c28cb38c05480eccc1bd60ff97029b57a05c96718b96dad7e9d84894f549"] }`
)

// startBound is how long a broker may take until it is ready.
const startBound = time.Minute

// daemon is a broker under measurement: the real binary, with a state directory
// of its own, and its log in a file there, at the usual level.
type daemon struct {
	*client
	dir string
	cmd *exec.Cmd
}

// startDaemon starts a broker with this configuration and waits until it is
// ready. The caller owes a stop. Plugins are found in pluginDir.
func startDaemon(ctx context.Context, l lab, pluginDir, config string) (*daemon, error) {
	// The paths of sockets in it must stay short.
	dir, err := os.MkdirTemp("", "sb")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir}
	if err := d.start(ctx, l, pluginDir, config); err != nil {
		log, _ := os.ReadFile(d.log())
		return nil, errors.Join(fmt.Errorf("start a broker: %w\n%s", err, log), d.stop())
	}
	return d, nil
}

func (d *daemon) log() string { return filepath.Join(d.dir, "log") }

func (d *daemon) start(ctx context.Context, l lab, pluginDir, config string) error {
	file := filepath.Join(d.dir, "sandbox.hcl")
	text := fmt.Sprintf("listen = \"127.0.0.1:0\"\nstate = \"./state\"\nplugin_dir = %q\n%s\n%s\n", pluginDir, tenants, config)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	log, err := os.Create(d.log())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(l.bin, "sandbox-broker"), "serve", "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd = cmd
	return d.waitReady(ctx)
}

var banner = regexp.MustCompile(`serves on http://(127\.0\.0\.1:\d+)`)

func (d *daemon) waitReady(ctx context.Context) error {
	return until(ctx, startBound, 10*time.Millisecond, func() (bool, error) {
		if d.client == nil {
			text, err := os.ReadFile(d.log())
			if err != nil {
				return false, err
			}
			match := banner.FindSubmatch(text)
			if match == nil {
				return false, nil
			}
			d.client = newClient(string(match[1]))
		}
		status, _, err := d.do(http.MethodGet, "/readyz", nil)
		return err == nil && status == http.StatusOK, err
	})
}

// stop ends the broker and removes its directory. A broker that did not end well
// is an error.
func (d *daemon) stop() error {
	var err error
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		err = d.cmd.Wait()
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}

// until asks again and again until the answer is yes, an error, or ctx or the
// time is over.
func until(ctx context.Context, bound, interval time.Duration, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		if err := wait(ctx, interval); err != nil {
			return err
		}
	}
}

// wait for a while, or for the end of ctx.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// plugins is the directory of the plugins that `make build` made.
func (l lab) plugins() string { return filepath.Join(l.bin, "plugins") }

// joinStop stops what was started and adds what goes wrong then.
func joinStop(err error, started interface{ stop() error }) error {
	return errors.Join(err, started.stop())
}
