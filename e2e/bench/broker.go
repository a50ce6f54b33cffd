package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tenants has one tenant, whose token is token.
const (
	token   = "bench"
	tenants = `tenant "bench" {
  token_sha256 = ["1b32c28cb38c05480eccc1bd60ff97029b57a05c96718b96dad7e9d84894f549"]
  quota { max_concurrent = 10000 }
}`
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
func startDaemon(ctx context.Context, binary, pluginDir, config string) (*daemon, error) {
	// The paths of sockets in it must stay short.
	dir, err := os.MkdirTemp("", "sb")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir}
	if err := d.start(ctx, binary, pluginDir, config); err != nil {
		log, _ := os.ReadFile(d.log())
		return nil, errors.Join(fmt.Errorf("start a broker: %w\n%s", err, log), d.stop())
	}
	return d, nil
}

func (d *daemon) log() string { return filepath.Join(d.dir, "log") }

func (d *daemon) start(ctx context.Context, binary, pluginDir, config string) error {
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
	cmd := exec.Command(binary, "serve", "--config", file)
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

// broker is the binary of a build.
func (b build) broker() string { return filepath.Join(b.bin, "sandbox-broker") }

// plugins is the directory of its plugins.
func (b build) plugins() string { return filepath.Join(b.bin, "plugins") }

// version is what its binary says.
func (b build) version(ctx context.Context) string {
	return strings.TrimPrefix(firstLine(ctx, b.broker(), "version"), "sandbox-broker ")
}

// has says whether its self-managed provider knows a setting.
func (b build) has(ctx context.Context, setting string) (bool, error) {
	text, err := exec.CommandContext(ctx, b.broker(), "plugin", "describe", "--json", filepath.Join(b.plugins(), "self_managed")).Output()
	if err != nil {
		return false, fmt.Errorf("plugin describe: %w", err)
	}
	var description struct {
		Settings []struct{ Name string }
	}
	if err := json.Unmarshal(text, &description); err != nil {
		return false, err
	}
	return slices.ContainsFunc(description.Settings, func(s struct{ Name string }) bool { return s.Name == setting }), nil
}

// selfManaged is the configuration of a self-managed provider with these settings,
// one a line. All builds use the same gVisor.
func (l lab) selfManaged(settings string) string {
	if l.runsc != "" {
		settings += fmt.Sprintf("\n  runsc = %q", l.runsc)
	}
	return "provider \"self_managed\" {\n  " + settings + "\n}\n"
}

// daemons are a broker of each build, in the order of the lab.
type daemons []*daemon

// start starts a broker of each build with this configuration and the build's own
// plugins. The caller owes a stop.
func (l lab) start(ctx context.Context, config string) (daemons, error) {
	return l.startWith(ctx, build.plugins, config)
}

// startWith takes plugins from elsewhere.
func (l lab) startWith(ctx context.Context, plugins func(build) string, config string) (ds daemons, err error) {
	for _, b := range l.builds {
		d, err := startDaemon(ctx, b.broker(), plugins(b), config)
		if err != nil {
			return nil, joinStop(err, ds)
		}
		ds = append(ds, d)
	}
	return ds, nil
}

func (ds daemons) stop() (err error) {
	for _, d := range ds {
		err = errors.Join(err, d.stop())
	}
	return err
}

// sides makes a side of each broker.
func (ds daemons) sides(turn func(d *daemon) turn) []*side {
	var sides []*side
	for _, d := range ds {
		sides = append(sides, &side{"broker", turn(d)})
	}
	return sides
}

// each does something with each broker.
func (ds daemons) each(do func(d *daemon) error) error {
	for _, d := range ds {
		if err := do(d); err != nil {
			return err
		}
	}
	return nil
}

// joinStop stops what was started and adds what goes wrong then.
func joinStop(err error, started interface{ stop() error }) error {
	return errors.Join(err, started.stop())
}
