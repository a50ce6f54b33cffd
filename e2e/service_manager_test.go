package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

// serviceManager does for the broker what systemd does with Type=notify and a .socket unit:
// it listens before there is a broker, and is told what that has come to.
type serviceManager struct {
	dir      string
	socket   *os.File
	states   *net.UnixConn
	endpoint string
}

func newServiceManager(t *testing.T) *serviceManager {
	t.Helper()
	dir := scratch.Dir(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	address := listener.Addr().String()
	socket, err := listener.(*net.TCPListener).File()
	assert.NilError(t, err)
	assert.NilError(t, listener.Close())
	t.Cleanup(func() { _ = socket.Close() })
	states, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	assert.NilError(t, err)
	t.Cleanup(func() { _ = states.Close() })
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "plugins"), 0o755))
	binaries.Install(t, mockPlugin, filepath.Join(dir, "plugins", "mock"))
	config := fmt.Sprintf("listen = %q\nstate = \"./state\"\nplugin_dir = \"./plugins\"\nprovider \"mock\" {}\n%s", address, harness.Tenants)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "sandbox.hcl"), []byte(config), 0o600))
	return &serviceManager{dir: dir, socket: socket, states: states, endpoint: "http://" + address}
}

// start starts a broker, which ends with the test at the latest.
func (m *serviceManager) start(t *testing.T) *exec.Cmd {
	t.Helper()
	// The number of the process is known to the process alone.
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$0" serve -c sandbox.hcl`, filepath.Join(binaries.Dir(t), "sandbox-broker"))
	cmd.Dir = m.dir
	cmd.ExtraFiles = []*os.File{m.socket}
	cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES=api", "NOTIFY_SOCKET="+filepath.Join(m.dir, "notify"), "TMPDIR="+m.dir, "XDG_RUNTIME_DIR="+m.dir)
	log, err := os.Create(filepath.Join(m.dir, "log"))
	assert.NilError(t, err)
	defer log.Close()
	cmd.Stderr = log
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// log is what the broker that was started last has said.
func (m *serviceManager) log(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(m.dir, "log"))
	assert.NilError(t, err)
	return string(log)
}

// told is the next state that the broker tells.
func (m *serviceManager) told(t *testing.T) string {
	t.Helper()
	assert.NilError(t, m.states.SetReadDeadline(time.Now().Add(2*time.Minute)))
	buffer := make([]byte, 4096)
	n, err := m.states.Read(buffer)
	assert.NilError(t, err)
	return string(buffer[:n])
}

func TestAServiceManagersSocketOutlivesABroker(t *testing.T) {
	t.Parallel()
	m := newServiceManager(t)
	type answer struct {
		status int
		err    error
	}
	get := func() <-chan answer {
		answers := make(chan answer, 1)
		go func() {
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
			response, err := client.Get(m.endpoint + "/healthz")
			if err != nil {
				answers <- answer{err: err}
				return
			}
			_ = response.Body.Close()
			answers <- answer{status: response.StatusCode}
		}()
		return answers
	}
	for range 2 { // the second time, nobody listens but the service manager
		early := get()
		broker := m.start(t)
		assert.Equal(t, m.told(t), "READY=1")
		got := <-early
		assert.NilError(t, got.err)
		assert.Equal(t, got.status, http.StatusOK)
		children := harness.Plugins(t, broker.Process.Pid)
		assert.Assert(t, len(children) > 0)
		for _, child := range children {
			environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", child.PID))
			assert.NilError(t, err)
			assert.Check(t, !strings.Contains(string(environment), "LISTEN_") && !strings.Contains(string(environment), "NOTIFY_SOCKET"), "%q", environment)
		}
		assert.NilError(t, broker.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, m.told(t), "STOPPING=1")
		assert.NilError(t, broker.Wait())
	}
}

func TestAnAddressThatIsNotTheSocketsIsRefusedOrTold(t *testing.T) {
	t.Parallel()
	m := newServiceManager(t)
	file := filepath.Join(m.dir, "sandbox.hcl")
	config, err := os.ReadFile(file)
	assert.NilError(t, err)
	address := strings.TrimPrefix(m.endpoint, "http://")
	rewrite := func(to string) {
		assert.NilError(t, os.WriteFile(file, []byte(strings.Replace(string(config), address, to, 1)), 0o600))
	}
	rewrite("0.0.0.0" + address[strings.LastIndex(address, ":"):])
	assert.Check(t, is.ErrorContains(m.start(t).Wait(), "exit status 1"))
	assert.Check(t, is.Contains(m.log(t), "this process was started with a socket on "+address))

	rewrite("127.0.0.1:0")
	m.start(t)
	assert.Equal(t, m.told(t), "READY=1")
	assert.Check(t, is.Contains(m.log(t), "who connects there waits in vain: addresses=[\""+address+"\"]"))
}
