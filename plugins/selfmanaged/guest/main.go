package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
)

// Main is the guest's main function, and that of the init process of each program
// that it starts. Without arguments it serves over its standard input and output.
func Main() {
	if name := filepath.Base(os.Args[0]); name == "pip" || name == "pip3" {
		fmt.Fprintln(os.Stderr, "ERROR:", becomePip(os.Args[1:]))
		os.Exit(1)
	}
	isolation.Init()
	// Threads that start programs end, which the process's first thread cannot.
	runtime.LockOSThread()
	in, out := os.Stdin, os.Stdout
	// Whatever prints by accident shall not corrupt the protocol.
	os.Stdout = os.Stderr
	if err := command(os.Args[1:], in, out); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

// CommandBuild, as an argument of the guest, has commands run as root: the sandbox is there to
// make a layer of an image, and holds nothing of anybody. It is no variable, which an image
// could have.
const CommandBuild = "build"

// errUsage is the error for arguments that mean nothing.
var errUsage = errors.New("usage: sandbox-guest [build | listen | connect | install DIRECTORY]")

func command(arguments []string, in, out *os.File) error {
	name := ""
	if len(arguments) > 0 {
		name = arguments[0]
	}
	switch {
	case len(arguments) == 0:
		return Run(in, out)
	case name == CommandBuild && len(arguments) == 1:
		return run(in, out, true)
	case name == CommandListen && len(arguments) == 1:
		if os.Getenv(NetworkVariable) == NetworkNone {
			return leaveNetwork(os.Getenv(ListenVariable))
		}
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
		defer stop()
		trust := Trust{Authority: os.Getenv(AuthorityVariable), Pod: os.Getenv(PodVariable)}
		return Listen(ctx, os.Getenv(ListenVariable), trust, os.Stderr)
	case name == CommandConnect && len(arguments) == 1:
		return Connect(os.Getenv(ListenVariable), in, out)
	case name == CommandInstall && len(arguments) == 2:
		return install(arguments[1])
	}
	return errUsage
}
