// Package jail runs a program in namespaces of its own, by bubblewrap, and reaches the
// Unix sockets on which it listens. The sandboxes of fakes are such programs.
package jail

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
)

// Jail is a program that runs.
type Jail struct {
	sockets string
	command *exec.Cmd
	stdin   io.Closer
	end     sync.Once

	mu         sync.Mutex
	open       map[*connection]struct{}
	transports []*http.Transport
}

// Start runs bubblewrap with these arguments, of which the last are the program's. The
// program reads config as JSON on its standard input, and says "ready" in a line when it
// listens on sockets, which the host finds in the directory sockets. It must end when its
// standard input does.
func Start(sockets string, config any, arguments ...string) (*Jail, error) {
	j := &Jail{sockets: sockets, command: exec.Command("bwrap", arguments...), open: map[*connection]struct{}{}}
	j.command.Stderr = os.Stderr
	stdin, err := j.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := j.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.stdin = stdin
	if err := j.command.Start(); err != nil {
		return nil, err
	}
	err = json.NewEncoder(stdin).Encode(config)
	if err == nil {
		var line string
		if line, err = bufio.NewReader(stdout).ReadString('\n'); line == "ready\n" {
			return j, nil
		}
	}
	j.End()
	return nil, fmt.Errorf("the sandbox did not start: %w", err)
}

// End kills all that runs in the jail, and waits until it is gone.
func (j *Jail) End() {
	j.end.Do(func() {
		j.stdin.Close()
		_ = j.command.Process.Kill()
		_ = j.command.Wait()
		j.mu.Lock()
		all := slices.Clone(j.transports)
		j.mu.Unlock()
		for _, t := range all {
			t.CloseIdleConnections() // which closes connections of ours
		}
	})
}

// Dial connects to a socket.
func (j *Jail) Dial(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(j.sockets, socket))
	if err != nil {
		return nil, err
	}
	added := &connection{conn, j}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open[added] = struct{}{}
	return added, nil
}

// Transport makes HTTP requests over the connections that dial makes.
func (j *Jail) Transport(dial func(context.Context) (net.Conn, error)) *http.Transport {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.transports = append(j.transports, t)
	return t
}

// Reset breaks all connections that there are.
func (j *Jail) Reset() {
	j.mu.Lock()
	all := slices.Collect(maps.Keys(j.open))
	j.mu.Unlock()
	for _, conn := range all {
		conn.Close()
	}
}

// connection is one that is open.
type connection struct {
	net.Conn
	jail *Jail
}

func (c *connection) Close() error {
	c.jail.mu.Lock()
	delete(c.jail.open, c)
	c.jail.mu.Unlock()
	return c.Conn.Close()
}
