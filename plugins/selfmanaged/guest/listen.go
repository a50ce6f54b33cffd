package guest

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
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
	// AuthorityVariable is the public key of who gives clients their credentials; see
	// guestlink.Authority.
	AuthorityVariable = "SANDBOX_GUEST_AUTHORITY"
	// PodVariable is the UID of the guest's own pod, for which a credential must be.
	PodVariable = "SANDBOX_GUEST_POD"
	// NetworkVariable is NetworkNone where programs are to reach nothing but each other, or
	// empty where they have the network that the guest has.
	NetworkVariable = "SANDBOX_GUEST_NETWORK"
	// AbandonedVariable is how long the guest may be without a client before it ends, as
	// time.ParseDuration has it; empty or 0 for ever. What somebody's is lasts for its time.
	AbandonedVariable = "SANDBOX_GUEST_ABANDONED_AFTER"
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

// Trust is whom a guest that listens answers: who has a credential of the authority for the
// pod of that UID.
type Trust struct{ Authority, Pod string }

// Listen serves the protocol to whom it trusts, over any number of connections, until ctx
// ends. What runs for a call ends with its connection; commands, contexts and files outlive
// it. On log it prints the line that guestlink.ParseFingerprint finds. It ends too when nobody
// has been connected for as long as AbandonedVariable says.
func Listen(ctx context.Context, address string, trust Trust, log io.Writer) error {
	debug.SetGCPercent(50)
	abandoned, err := abandonedAfter(os.Getenv(AbandonedVariable))
	if err != nil {
		return fmt.Errorf("the environment variable %s: %w", AbandonedVariable, err)
	}
	authority, err := guestlink.ParsePublic(trust.Authority)
	if err != nil {
		return fmt.Errorf("the environment variable %s %w", AuthorityVariable, err)
	}
	if trust.Pod == "" {
		return fmt.Errorf("the environment variable %s does not have the UID of the pod", PodVariable)
	}
	if address == "" {
		return fmt.Errorf("the environment variable %s names no address to listen on", ListenVariable)
	}
	for _, name := range []string{ListenVariable, AuthorityVariable, PodVariable, NetworkVariable, AbandonedVariable} {
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
	listener, err := guestlink.Listen(tcp, authority, trust.Pod)
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
	ctx, end := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer end()
	waiting.Go(func() {
		if g.attended.abandoned(ctx, abandoned) {
			_, _ = fmt.Fprintf(log, "guest: nobody has been connected for %s: the sandbox ends\n", abandoned)
			end()
		}
	})
	defer context.AfterFunc(ctx, srv.Stop)()
	if err := srv.Serve(g.attended.counting(listener)); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
