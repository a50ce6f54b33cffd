// Package bridge connects to the ports of sandboxes whose service passes on HTTP alone: a
// small program in the sandbox, a command with a place (package place), makes connections
// of WebSockets.
package bridge

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/place"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

//go:embed bridge.py
var program string

// startTime bounds what a bridge may take to say where it listens.
const startTime = 20 * time.Second

// Address is where a port of a sandbox is reached by HTTP, and what requests must carry.
type Address struct {
	URL    string
	Header http.Header
}

// Bridge is that of one sandbox. It is started when it is first needed, and again when it
// has ended.
type Bridge struct {
	// Service and Box are where it runs.
	Service place.Service
	Box     func(context.Context) (place.Box, error)
	// Address finds out where a port is reached.
	Address func(ctx context.Context, port uint16) (Address, error)
	Client  *http.Client

	starting keylock.Locks[struct{}]
	running  *running // for who has the lock
}

// running is a bridge that was started.
type running struct {
	secret  string
	address Address
}

// errRefused is that nothing listens.
var errRefused = errors.New("nothing listens")

// Dial connects to a port. The connection ends with life.
func (b *Bridge) Dial(ctx, life context.Context, port uint16) (net.Conn, error) {
	at, fresh, err := b.start(ctx, nil)
	if err != nil {
		return nil, err
	}
	conn, err := b.dial(ctx, life, at, port)
	if err != nil && !fresh && !errors.Is(err, errRefused) && ctx.Err() == nil { // it may have ended meanwhile
		if at, _, err = b.start(ctx, at); err != nil {
			return nil, err
		}
		conn, err = b.dial(ctx, life, at, port)
	}
	switch {
	case errors.Is(err, errRefused):
		return nil, sdk.Errorf(sdk.CodeConnectionFailed, "nothing listens at port %d of the instance", port)
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, sdk.Errorf(sdk.CodeUnavailable, "the instance cannot be connected to: %w", err)
	}
	return conn, nil
}

// start starts a bridge, unless there is another one than broken.
func (b *Bridge) start(ctx context.Context, broken *running) (at *running, fresh bool, err error) {
	release, err := b.starting.Take(ctx, struct{}{})
	if err != nil {
		return nil, false, err
	}
	defer release()
	if b.running != nil && b.running != broken {
		return b.running, false, nil
	}
	b.running = nil
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	box, err := b.Box(ctx)
	if err != nil {
		return nil, false, err
	}
	run := place.Program{
		ID: remote.NewName(), Argv: []string{"python3", "-I", "-S", "{}"}, Source: program, Suffix: ".py", Dir: "/tmp",
		Keep: 4 << 10, Hidden: true,
	}
	secret := rand.Text()
	run.Env = map[string]string{"SANDBOX_BRIDGE_SECRET": secret}
	state, err := place.Ask(ctx, b.Service, func(ctx context.Context) (place.State, error) { return place.Command(ctx, box, run) })
	if err == nil && state.Done != nil {
		err = state.Done.Refusal()
	}
	var said string
	for err == nil && !strings.HasSuffix(said, "\n") {
		var got place.Progress
		got, err = place.Ask(ctx, b.Service, func(ctx context.Context) (place.Progress, error) {
			return place.Watch(ctx, box, run.ID, int64(len(said)), 0)
		})
		said += string(got.Stdout)
		if err == nil && got.Done != nil {
			err = sdk.Errorf(sdk.CodeNotSupported, "the sandbox cannot run what connects to its ports; it needs python3")
		}
	}
	if err != nil {
		return nil, false, b.Service.Explain(ctx, err, "connect to the ports")
	}
	port, err := strconv.ParseUint(strings.TrimSpace(said), 10, 16)
	if err != nil {
		return nil, false, sdk.Errorf(sdk.CodeUnavailable, "what connects to the ports said %.50q", said)
	}
	address, err := b.Address(ctx, uint16(port))
	if err != nil {
		return nil, false, err
	}
	b.running = &running{secret, address}
	return b.running, true, nil
}

// dial connects by a bridge.
func (b *Bridge) dial(ctx, life context.Context, at *running, port uint16) (net.Conn, error) {
	to, err := url.Parse(at.address.URL)
	if err != nil {
		return nil, fmt.Errorf("an address of a port: %w", err)
	}
	conn, resp, err := websocket.Dial(ctx, to.JoinPath(at.secret, strconv.Itoa(int(port))).String(), &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: b.Client, HTTPHeader: at.address.Header,
	})
	if err != nil {
		if resp != nil && resp.Header.Get("X-Sandbox-Bridge") != "" {
			return nil, errRefused
		}
		// It may show the address, which has the secret in it.
		return nil, errors.New(strings.ReplaceAll(err.Error(), at.secret, "…"))
	}
	conn.SetReadLimit(-1) // it is a stream, in pieces of any size
	return websocket.NetConn(life, conn, websocket.MessageBinary), nil
}
