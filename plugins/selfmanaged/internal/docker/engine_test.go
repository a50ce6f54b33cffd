package docker_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/docker"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// serve answers as an engine would, by path without the version, on a socket.
func serve(t *testing.T, answers map[string]string) (host string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "e") //nolint:usetesting // that is too long: the path of a socket has at most 107 bytes
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	assert.NilError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41") // that of Debian 12
	})
	mux.HandleFunc("/v1.41/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path[len("/v1.41"):]]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"message": "no such thing"}`
		}
		_, err := w.Write([]byte(answer))
		assert.Check(t, err)
	})
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.Check(t, is.ErrorIs(server.Serve(listener), http.ErrServerClosed))
	}()
	t.Cleanup(func() {
		assert.Check(t, server.Close())
		<-done
	})
	return "unix://" + socket
}

func newRuntime(t *testing.T, host string, change func(*docker.Options)) (*docker.Runtime, error) {
	t.Helper()
	engine, err := docker.Connect(host)
	if err != nil {
		return nil, err
	}
	guest := filepath.Join(t.TempDir(), "guest")
	assert.NilError(t, os.WriteFile(guest, nil, 0o755))
	o := docker.Options{
		StateDir: t.TempDir(), BrokerID: "b", Label: "l", Runtime: docker.DefaultRuntime, Image: docker.DefaultImage,
		Guest: guest, Limits: confine.Limits{MemoryMB: 64, CPUs: 1, WorkspaceMB: 16, Processes: 16}, Logger: hclog.NewNullLogger(),
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	return docker.New(ctx, engine, o)
}

const (
	limits = `"MemoryLimit": true, "CpuCfsQuota": true, "PidsLimit": true`
	gvisor = `{"ServerVersion": "20.10", "Runtimes": {"runc": {"path": "runc"}, "runsc": {"path": "/usr/bin/runsc"}}, ` + limits + `}`
)

const imagePath = "/images/" + docker.DefaultImage + "/json"

func TestNewSaysWhatIsMissing(t *testing.T) {
	cases := map[string]struct {
		answers map[string]string // nil: nobody listens
		change  func(*docker.Options)
		code    sdk.Code
		field   string
		want    string
	}{
		"no engine": {nil, nil, sdk.CodeConnectionFailed, "", "start it, or name its socket with the setting docker_host"},
		"an engine that fails": {
			map[string]string{"/info": "{"},
			nil, sdk.CodeConnectionFailed, "", "does not answer",
		},
		"an engine without gVisor": {
			map[string]string{"/info": `{"Runtimes": {"runc": {"path": "runc"}}}`},
			nil, sdk.CodeInvalidConfig, "docker_runtime", `the Docker Engine has no runtime "runsc": run "runsc install" as root, or put {"runtimes": {"runsc": {"path": "/usr/local/bin/runsc"}}} into the engine's daemon.json; then restart the engine`,
		},
		"an engine without the runtime that is named": {
			map[string]string{"/info": gvisor},
			func(o *docker.Options) { o.Runtime = "kata" },
			sdk.CodeInvalidConfig, "docker_runtime", `has no runtime "kata": register it in the engine's daemon.json and restart the engine, or name another with the setting docker_runtime (there are runc, runsc)`,
		},
		"no image": {
			map[string]string{"/info": gvisor},
			nil, sdk.CodeInvalidConfig, "image", "has no image \"sandbox-broker/rootfs:latest\": make the default one with `make rootfs`",
		},
		"limits that are required and cannot be had": {
			map[string]string{"/info": `{"Runtimes": {"runsc": {"path": "runsc"}}, "PidsLimit": true}`, imagePath: `{}`},
			func(o *docker.Options) { o.LimitsRequired = true },
			sdk.CodeInvalidConfig, "cgroups", "cannot limit memory, CPU of a sandbox on this machine",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			host := "unix:///nonexistent/docker.sock"
			if c.answers != nil {
				host = serve(t, c.answers)
			}
			_, err := newRuntime(t, host, c.change)
			coded, ok := errors.AsType[*sdk.Error](err)
			assert.Assert(t, ok, "%v", err)
			assert.Check(t, is.Equal(coded.Code, c.code))
			assert.Check(t, is.Equal(coded.Field, c.field))
			assert.Check(t, is.Contains(coded.Message, c.want))
		})
	}
}

func TestWhatIsWeaker(t *testing.T) {
	engine := func(info string) map[string]string {
		return map[string]string{"/info": info, imagePath: `{}`, "/containers/json": `[]`, "/events": ``}
	}
	cases := map[string]struct {
		info    string
		runtime string
		gvisor  bool
		want    []string
	}{
		"gVisor with all limits":        {gvisor, "runsc", true, nil},
		"gVisor under another name":     {`{"Runtimes": {"gv": {"path": "/opt/runsc"}}, ` + limits + `}`, "gv", true, nil},
		"gVisor through its shim":       {`{"Runtimes": {"gv": {"runtimeType": "io.containerd.runsc.v1"}}, ` + limits + `}`, "gv", true, nil},
		"a runtime that is not gVisor":  {gvisor, "runc", false, []string{`"runc" is not gVisor`, "this machine's kernel itself"}},
		"an engine that cannot limit":   {`{"Runtimes": {"runsc": {"path": "runsc"}}}`, "runsc", true, []string{"cannot limit memory, CPU, processes"}},
		"neither gVisor nor all limits": {`{"Runtimes": {"runc": {"path": "runc"}}, "MemoryLimit": true, "CpuCfsQuota": true}`, "runc", false, []string{"not gVisor", "cannot limit processes"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := newRuntime(t, serve(t, engine(c.info)), func(o *docker.Options) { o.Runtime = c.runtime })
			assert.NilError(t, err)
			assert.Check(t, is.Equal(r.GVisor(), c.gvisor))
			if c.want == nil {
				assert.Check(t, is.Equal(r.Weakness(), ""))
			}
			for _, want := range c.want {
				assert.Check(t, is.Contains(r.Weakness(), want))
			}
			assert.NilError(t, r.Close())
		})
	}
}

func TestCheckNoticesWhatGoesMissing(t *testing.T) {
	answers := map[string]string{"/info": gvisor, imagePath: `{}`, "/containers/json": `[]`, "/events": ``}
	r, err := newRuntime(t, serve(t, answers), nil)
	assert.NilError(t, err)
	assert.NilError(t, r.Check(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, r.Check(ctx), &sdk.Error{Code: sdk.CodeConnectionFailed}, "no answer")
	assert.NilError(t, r.Close())
}

func TestOnlyUnixSocketsAreTaken(t *testing.T) {
	for _, host := range []string{"tcp://127.0.0.1:2375", "/var/run/docker.sock", "unix://relative", "ssh://host", "npipe:////./pipe/docker_engine"} {
		_, err := docker.Connect(host)
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig}, host)
	}
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
	_, err := docker.Connect("")
	assert.ErrorContains(t, err, `$DOCKER_HOST is "tcp://127.0.0.1:2375", but must be a Unix socket`)
	t.Setenv("DOCKER_HOST", "")
	engine, err := docker.Connect("")
	assert.NilError(t, err)
	assert.Equal(t, engine.DaemonHost(), "unix:///var/run/docker.sock")
	assert.NilError(t, engine.Close())
}
