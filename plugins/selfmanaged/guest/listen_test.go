package guest_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/confine"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// podUID is whom the credentials of the tests are for.
const podUID = "0e0f7a52-0d9a-4c1b-9d3c-5d0f2f6f7a11"

func podAuthority(t testing.TB) (key ed25519.PrivateKey, public string) {
	t.Helper()
	k, err := guestlink.Authority(bytes.Repeat([]byte("secret"), 8), "sandboxes")
	assert.NilError(t, err)
	return k, guestlink.Public(k)
}

// pod is a container like that of a pod: the guest is process 1 and listens, the file systems
// are read-only or everybody's to write, and the environment is Kubernetes's.
type pod struct {
	gvisor  bool
	runtime []string // the program and its flags
	log     syncBuffer
	ended   chan error
	guest   guestlink.Fingerprint
}

// syncBuffer is a buffer that is read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf.Bytes())
}

// startPod starts the container and reads the guest's fingerprint from its log.
func startPod(t *testing.T, program string, gvisor bool) *pod {
	t.Helper()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "a container like that of a pod needs root")
	}
	dir, err := os.MkdirTemp("", "pod") //nolint:usetesting // the path of a socket in it is short
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	// As the init container of the pod does.
	volume := filepath.Join(dir, "volume")
	assert.NilError(t, os.Mkdir(volume, 0o755))
	out, err := exec.Command(filepath.Join(binaries.Dir(t), "sandbox-guest"), "install", volume).CombinedOutput()
	assert.NilError(t, err, "%s", out)

	config, err := json.Marshal(podSpec(t, volume, gvisor))
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600))
	p := &pod{gvisor: gvisor, runtime: []string{program, "--root=" + filepath.Join(dir, "state")}, ended: make(chan error, 1)}
	if gvisor {
		p.runtime = append(p.runtime, "--network=none", "--ignore-cgroups")
	}
	run := p.command("run", "--bundle="+dir, "pod")
	run.Stderr = &p.log
	run.WaitDelay = time.Second
	// What runsc mounts, it leaves behind.
	run.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	assert.NilError(t, run.Start())
	go func() { p.ended <- run.Wait() }()
	t.Cleanup(func() {
		_ = p.command("kill", "pod", "KILL").Run() // it may have ended
		select {
		case err := <-p.ended:
			t.Logf("the container ended: %v: %s", err, p.log.Bytes())
		case <-time.After(2 * time.Minute):
			t.Error("the container does not end")
		}
		_ = p.command("delete", "--force", "pod").Run() // it may be gone
	})
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		select {
		case err := <-p.ended:
			p.ended <- err
			return poll.Error(fmt.Errorf("the container ended: %w: %s", err, p.log.Bytes()))
		default:
		}
		var ok bool
		if p.guest, ok = guestlink.ParseFingerprint(p.log.Bytes()); !ok {
			return poll.Continue("no fingerprint: %s", p.log.Bytes())
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	return p
}

func podSpec(t testing.TB, volume string, gvisor bool) *specs.Spec {
	t.Helper()
	_, public := podAuthority(t)
	root, err := filepath.EvalSymlinks(binaries.Rootfs(t))
	assert.NilError(t, err)
	emptyDir := func(path string) specs.Mount {
		return specs.Mount{Destination: path, Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=0777", "size=64m"}}
	}
	capabilities := confine.GuestCapabilities()
	if !gvisor {
		capabilities = slices.DeleteFunc(capabilities, func(c string) bool { return c == "CAP_SYS_RESOURCE" })
	}
	return &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			Args: []string{"/opt/sandbox/guest", "listen"},
			Env: []string{
				guest.ListenVariable + "=:7777", guest.AuthorityVariable + "=" + public, guest.PodVariable + "=" + podUID,
				"KUBERNETES_SERVICE_HOST=10.0.0.1", "PATH=/usr/bin",
			},
			Cwd: "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			NoNewPrivileges: true,
		},
		Root:     &specs.Root{Path: root, Readonly: true},
		Hostname: "pod-1",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=0755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1777", "size=64m"}},
			emptyDir("/workspace"), emptyDir("/tmp"), emptyDir("/run"),
			{Destination: "/opt/sandbox", Type: "bind", Source: volume, Options: []string{"rbind", "ro"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/sandbox-broker-test-" + filepath.Base(filepath.Dir(volume)),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
			},
		},
	}
}

func (p *pod) command(arguments ...string) *exec.Cmd {
	line := slices.Concat(p.runtime, arguments)
	return exec.Command(line[0], line[1:]...)
}

// exec runs a shell in the container, as kubectl exec does.
func (p *pod) exec(t testing.TB, script string) string {
	t.Helper()
	out, err := p.command("exec", "pod", "/bin/sh", "-c", script).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return string(out)
}

// tunnel is a connection through `sandbox-guest connect` in the container.
type tunnel struct {
	*stdio.Conn
	cmd *exec.Cmd
}

func (c *tunnel) Close() error {
	return errors.Join(c.Conn.Close(), c.cmd.Wait())
}

// connect makes a connection to the guest by exec, and no network.
func (p *pod) connect(context.Context) (net.Conn, error) {
	cmd := p.command("exec", "pod", "/opt/sandbox/guest", "connect")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &tunnel{stdio.NewConn(out, in), cmd}, cmd.Start()
}

// plugin is one life of a plugin: a connection, until it dies.
type plugin struct {
	*wire.Client
	guest guestv1.GuestServiceClient
	die   func()
}

func (p *pod) plugin(t *testing.T) *plugin {
	t.Helper()
	authority, _ := podAuthority(t)
	dialer := guestlink.Dialer{Connect: p.connect, Authority: authority, Pod: podUID, Guest: p.guest}
	var mu sync.Mutex
	var conns []net.Conn
	cc, err := grpc.NewClient("passthrough:guest", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := dialer.Dial(ctx)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				conns = append(conns, conn)
			}
			return conn, err
		}))...)
	assert.NilError(t, err)
	die := sync.OnceFunc(func() {
		_ = cc.Close() // calls may be in flight
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	t.Cleanup(die)
	return &plugin{wire.InstanceClient(cc), guestv1.NewGuestServiceClient(cc), die}
}

func (p *pod) preparation() *guestv1.PrepareRequest {
	memory := int64(512 << 20)
	if !p.gvisor {
		memory = math.MaxInt64 // what the guest sees in use there is the machine's
	}
	return &guestv1.PrepareRequest{
		FindInterpreters: true, Warm: []string{guest.Python}, Packages: true,
		MemoryLimit: memory, ProcessLimit: 128, FileSizeLimit: 64 << 20,
	}
}

// output keeps what code prints, and tells of the first of it.
type output struct {
	sdk.Output
	mu      sync.Mutex
	text    strings.Builder
	printed chan struct{}
}

func newOutput() *output { return &output{printed: make(chan struct{})} }

func (o *output) Stdout(p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() == 0 {
		close(o.printed)
	}
	o.text.Write(p)
	return nil
}

func (o *output) Stderr(p []byte) error { return o.Stdout(p) }

// runs runs Python and returns what it prints.
func (p *plugin) runs(t *testing.T, contextID, code string) string {
	t.Helper()
	o := newOutput()
	result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
		Language: sdk.Python, ContextID: contextID, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20,
	}, o)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded, o.text.String())
	return o.text.String()
}

func TestAGuestThatListensOutlivesItsConnections(t *testing.T) {
	for name, find := range map[string]func(testing.TB) string{
		"gVisor": binaries.Runsc,
		"runc": func(t testing.TB) string {
			binaries.Needs(t, "runc", "runc")
			return "runc"
		},
	} {
		t.Run(name, func(t *testing.T) { checkOutlives(t, startPod(t, find(t), name == "gVisor")) })
	}
}

func checkOutlives(t *testing.T, pod *pod) {
	ctx := t.Context()
	first := pod.plugin(t)
	prepared, err := first.guest.Prepare(ctx, pod.preparation())
	assert.NilError(t, err)
	assert.Check(t, is.Equal(prepared.GetVersion(), guest.Version()))
	assert.Check(t, is.Equal(prepared.GetInterpreters()[guest.Python], "/usr/bin/python3"))
	assert.Check(t, is.Equal(prepared.GetInterpreters()[guest.Bash], "/usr/bin/bash"))
	// The next plugin, which does not know what the guest was prepared for, has it from there.
	recalled, err := first.guest.Recall(ctx, &guestv1.RecallRequest{})
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(recalled.GetInterpreters(), prepared.GetInterpreters()))

	// User code sees nothing of the pod, and cannot change what the guest runs.
	seen := first.runs(t, "", `
import glob, os, stat
print("environment:", [n for n in os.environ if n.startswith(("KUBERNETES", "SANDBOX"))])
print("processes:", len(glob.glob("/proc/[0-9]*")) <= 2, os.getuid())
for d in "/run", "/run/sandbox", "/run/sandbox/runner.py":
    print(d, "mine:", os.access(d, os.W_OK))
for d in "/workspace", "/tmp", "/dev/shm":
    open(d + "/x", "w").write("x"); print(d, oct(stat.S_IMODE(os.stat(d).st_mode)))
`)
	assert.Equal(t, seen, `environment: []
processes: True 1000
/run mine: False
/run/sandbox mine: False
/run/sandbox/runner.py mine: False
/workspace 0o1777
/tmp 0o1777
/dev/shm 0o1777
`)

	// A command, a context and an execution go on when the plugin dies.
	command, err := first.StartCommand(ctx, sdk.CommandRequest{
		Argv: []string{"bash", "-c", "echo before; while ! [ -e /workspace/go ]; do sleep 0.05; done; echo after"}, KeepOutput: 1 << 20,
	})
	assert.NilError(t, err)
	kept, err := first.CreateContext(ctx, sdk.CreateContextRequest{Language: sdk.Python})
	assert.NilError(t, err)
	first.runs(t, kept.ID, "answer = 42")
	running := newOutput()
	died := make(chan error, 1)
	go func() {
		_, err := first.Execute(ctx, sdk.ExecuteRequest{Language: sdk.Python, Timeout: 10 * time.Minute, OutputLimit: 1 << 20, Code: `
import subprocess
subprocess.Popen(["sleep", "98765"])
print("started")
while True: pass`}, running)
		died <- err
	}()
	select {
	case <-running.printed:
	case err := <-died:
		t.Fatalf("the execution ended: %v", err)
	}
	assert.Assert(t, is.Contains(pod.exec(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), "sleep 98765"))
	first.die()
	assert.Assert(t, <-died != nil)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if left := pod.exec(t, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"); strings.Contains(left, "sleep 98765") {
			return poll.Continue("what the execution started is left: %s", left)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(200*time.Millisecond))

	second := pod.plugin(t)
	again, err := second.guest.Prepare(ctx, pod.preparation())
	assert.NilError(t, err)
	assert.DeepEqual(t, again.GetInterpreters(), prepared.GetInterpreters())
	other := pod.preparation()
	other.MemoryLimit--
	_, err = second.guest.Prepare(ctx, other)
	assert.ErrorIs(t, wire.DecodeError(err), &sdk.Error{Code: sdk.CodeConflict})
	_, err = second.guest.Reset(ctx, &guestv1.ResetRequest{})
	assert.ErrorIs(t, wire.DecodeError(err), &sdk.Error{Code: sdk.CodeNotSupported})

	assert.Equal(t, second.runs(t, kept.ID, "print(answer)"), "42\n")
	assert.Equal(t, second.runs(t, "", "open('/workspace/go', 'w').close()"), "")
	var said strings.Builder
	ended, err := second.ReadCommand(ctx, sdk.ReadCommandRequest{CommandID: command.ID, Follow: true}, func(o sdk.CommandOutput) error {
		said.Write(o.Data)
		return nil
	})
	assert.NilError(t, err)
	assert.Equal(t, said.String(), "before\nafter\n")
	assert.Equal(t, ended.ExitCode, 0)

	// What somebody else has orphaned in the container does not stay a zombie.
	orphan := strings.TrimSpace(pod.exec(t, "sleep 0.1 >/dev/null 2>&1 & echo $!"))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if got := pod.exec(t, fmt.Sprintf("[ -e /proc/%s ] && cat /proc/%s/stat || echo gone", orphan, orphan)); got != "gone\n" {
			return poll.Continue("%s", got)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(200*time.Millisecond))
	assert.Equal(t, second.runs(t, "", "print('well')"), "well\n")

	assert.NilError(t, pod.command("kill", "pod", "TERM").Run())
	err = <-pod.ended
	pod.ended <- nil
	assert.NilError(t, err, "it ends by itself: %s", pod.log.Bytes())
}
