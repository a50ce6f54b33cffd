package guest

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/orphans"
)

// Environment variables of a guest that listens. Programs in the sandbox do not get them.
const (
	// ListenVariable is the address to listen on, such as ":7777".
	ListenVariable = "SANDBOX_GUEST_LISTEN"
	// ClientKeyVariable is the public key of the one client; see guestlink.Public.
	ClientKeyVariable = "SANDBOX_GUEST_CLIENT_KEY"
	// NetworkVariable is NetworkNone where programs are to reach nothing but each other, or
	// empty where they have the network that the guest has.
	NetworkVariable = "SANDBOX_GUEST_NETWORK"
)

// NetworkNone is a value of NetworkVariable.
const NetworkNone = "none"

// The commands of the guest, as arguments of its program.
const (
	// CommandListen serves on ListenVariable.
	CommandListen = "listen"
	// CommandConnect passes its standard input and output on to the guest that listens in the
	// same sandbox, whose ListenVariable it has.
	CommandConnect = "connect"
	// CommandInstall copies the guest into the directory that is its argument.
	CommandInstall = "install"
)

// A client that is gone without a word is noticed in deadAfter + deadAnswer, and what ran
// for it ends then.
const (
	deadAfter  = 20 * time.Second
	deadAnswer = 10 * time.Second
	// oftenest is how often a client may ask whether the guest is there.
	oftenest = 5 * time.Second
)

// Listen serves the protocol to who has the client's key, over any number of connections,
// until ctx ends. What runs for a call ends with its connection; commands, contexts and
// files outlive it. On log it prints the line that guestlink.ParseFingerprint finds.
func Listen(ctx context.Context, address, clientKey string, log io.Writer) error {
	debug.SetGCPercent(50)
	client, err := guestlink.ParsePublic(clientKey)
	if err != nil {
		return fmt.Errorf("the environment variable %s %w", ClientKeyVariable, err)
	}
	if address == "" {
		return fmt.Errorf("the environment variable %s names no address to listen on", ListenVariable)
	}
	for _, name := range []string{ListenVariable, ClientKeyVariable, NetworkVariable} {
		if err := os.Unsetenv(name); err != nil {
			return fmt.Errorf("clear the environment: %w", err)
		}
	}
	if err := secureDirectories(); err != nil {
		return err
	}
	if err := writeRunners(); err != nil {
		return err
	}
	names, err := nameWorkspace()
	if err != nil {
		return err
	}
	tcp, err := listenOn(address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	listener, err := guestlink.Listen(tcp, client)
	if err != nil {
		_ = tcp.Close()
		return err
	}
	if _, err := io.WriteString(log, listener.Fingerprint().Line()); err != nil {
		_ = listener.Close()
		return fmt.Errorf("print the fingerprint: %w", err)
	}
	if os.Getpid() == 1 {
		reaping, stop := context.WithCancel(ctx)
		defer orphans.Reap(reaping)()
		defer stop()
	}
	g := newGuest(names)
	g.outlives = true
	srv := g.server(
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: deadAfter, Timeout: deadAnswer}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: oftenest, PermitWithoutStream: true}),
	)
	defer context.AfterFunc(ctx, srv.Stop)()
	if err := srv.Serve(listener); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
