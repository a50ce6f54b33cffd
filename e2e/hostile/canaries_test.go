package hostile_test

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"
)

// canaries are on the host what hostile programs look for: a file with a secret, a
// process, sockets. None of it may be reached or changed.
type canaries struct {
	// Secret is what no output may hold. It is in the file and in the environment
	// of broker and plugin.
	Secret string
	file   string
	socket string
	// abstract is the name of a Unix socket without a file.
	abstract string
	tcp, udp int // ports, on every address of the host
	process  *exec.Cmd
	contacts atomic.Int64 // connections and packets that arrived
	before   map[string]string
}

// plant puts them out and takes them in when the test ends.
func plant(t *testing.T) *canaries {
	t.Helper()
	c := &canaries{Secret: "canary-" + rand.Text()}
	dir, err := os.MkdirTemp("", "canary") //nolint:usetesting // a socket's path has at most 107 bytes
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	assert.NilError(t, os.Chmod(dir, 0o777)) // nothing but the sandbox shall keep anybody out
	c.file, c.socket, c.abstract = filepath.Join(dir, "file"), filepath.Join(dir, "socket"), filepath.Base(dir)
	assert.NilError(t, os.WriteFile(c.file, []byte(c.Secret), 0o666))
	assert.NilError(t, os.Chmod(c.file, 0o666))
	t.Setenv("CANARY_SECRET", c.Secret)

	c.process = exec.Command("sleep", "infinity")
	assert.NilError(t, c.process.Start())
	t.Cleanup(func() {
		assert.Check(t, c.process.Process.Kill())
		_ = c.process.Wait() // killed, as it must be
	})

	var sockets []interface{ Close() error }
	var served sync.WaitGroup
	t.Cleanup(func() {
		for _, s := range sockets {
			assert.Check(t, s.Close())
		}
		served.Wait()
	})
	for _, at := range []struct{ network, address string }{{"tcp", ":0"}, {"unix", c.socket}, {"unix", "@" + c.abstract}} {
		l, err := net.Listen(at.network, at.address)
		assert.NilError(t, err)
		sockets = append(sockets, l)
		served.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c.contacts.Add(1)
				_ = conn.Close()
			}
		})
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			c.tcp = tcp.Port
		}
	}
	assert.NilError(t, os.Chmod(c.socket, 0o777))
	packets, err := net.ListenPacket("udp", ":0")
	assert.NilError(t, err)
	sockets = append(sockets, packets)
	c.udp = packets.LocalAddr().(*net.UDPAddr).Port
	served.Go(func() {
		for {
			if _, _, err := packets.ReadFrom(make([]byte, 16)); err != nil {
				return
			}
			c.contacts.Add(1)
		}
	})
	c.before = hostState(t, c)
	return c
}

// env tells the programs where to look.
func (c *canaries) env(t *testing.T) map[string]string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	assert.NilError(t, err)
	hosts := []string{"127.0.0.1", "::1"}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			hosts = append(hosts, ip.IP.String())
		}
	}
	return map[string]string{
		"CANARY_FILE": c.file, "CANARY_SOCKET": c.socket, "CANARY_ABSTRACT": c.abstract,
		"CANARY_TCP": strconv.Itoa(c.tcp), "CANARY_UDP": strconv.Itoa(c.udp),
		"CANARY_HOSTS": strings.Join(hosts, " "), "CANARY_PID": strconv.Itoa(c.process.Process.Pid),
	}
}

// unharmed fails the test if anything outside of the sandboxes changed or was
// reached. It ends by reaching all of it itself: a canary that sees nobody proves
// nothing.
func (c *canaries) unharmed(t *testing.T) {
	t.Helper()
	assert.Check(t, is.DeepEqual(hostState(t, c), c.before))
	assert.Check(t, is.Equal(c.contacts.Load(), int64(0)), "something reached a socket of the host")
	for _, at := range []struct{ network, address string }{
		{"tcp", fmt.Sprintf("127.0.0.1:%d", c.tcp)},
		{"udp", fmt.Sprintf("127.0.0.1:%d", c.udp)},
		{"unix", c.socket},
		{"unix", "@" + c.abstract},
	} {
		seen := c.contacts.Load()
		conn, err := net.Dial(at.network, at.address)
		if !assert.Check(t, err) {
			continue
		}
		if at.network == "udp" { // the others see the connection, and end it
			_, err = conn.Write([]byte("x"))
			assert.Check(t, err)
		}
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if c.contacts.Load() == seen {
				return poll.Continue("the canary at %v does not see us", at)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
		assert.Check(t, conn.Close())
	}
}
