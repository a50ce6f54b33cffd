package guest

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

//go:embed pip.py
var pip []byte

// packagesSocket is where pip asks for packages.
const packagesSocket = RunDir + "/packages.sock"

// Bounds on those who ask. They are programs of user code.
const (
	maxAsking      = 16
	maxAsked       = 64 << 10
	askedInTime    = 10 * time.Second
	answeredInTime = 10 * time.Second
)

// pipModule is pip as a program of Python.
const pipModule = isolation.ModulesDir + "/pip/__main__.py"

// writePip puts pip where programs find it: as a command, and as a module of
// `python3 -m pip`. No file there can be executed, so the commands are the guest's own
// executable under other names.
func writePip() error {
	guest, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the guest: %w", err)
	}
	for _, dir := range []string{isolation.ToolsDir, filepath.Dir(pipModule)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make room for pip: %w", err)
		}
	}
	for _, name := range []string{"pip", "pip3"} { // those of an earlier try
		if err := os.Remove(filepath.Join(isolation.ToolsDir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("make room for pip: %w", err)
		}
	}
	return errors.Join(
		os.WriteFile(pipModule, pip, 0o444),
		os.WriteFile(filepath.Join(filepath.Dir(pipModule), "__init__.py"), nil, 0o444),
		os.Symlink(guest, filepath.Join(isolation.ToolsDir, "pip")),
		os.Symlink(guest, filepath.Join(isolation.ToolsDir, "pip3")),
	)
}

// becomePip runs pip in the place of this process, which user code has started. It
// returns only if there is no Python.
func becomePip(arguments []string) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return err
	}
	return unix.Exec(python, append([]string{python, "-I", pipModule}, arguments...), os.Environ())
}

// asking are the programs that wait for packages. The zero value is ready.
type asking struct {
	mu      sync.Mutex
	serving bool
	last    uint64
	waiting map[uint64]chan *guestv1.AnswerRequest
}

// Requested implements guestv1.InstallServiceServer.
func (in *installations) Requested(_ *guestv1.RequestedRequest, stream grpc.ServerStreamingServer[guestv1.RequestedResponse]) error {
	a := &in.asking
	a.mu.Lock()
	if a.serving {
		a.mu.Unlock()
		return sdk.Errorf(sdk.CodeUnavailable, "somebody listens already")
	}
	a.serving, a.waiting = true, map[uint64]chan *guestv1.AnswerRequest{}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.serving = false
	}()

	if err := os.Remove(packagesSocket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	listener, err := net.Listen("unix", packagesSocket)
	if err == nil {
		err = os.Chmod(packagesSocket, 0o666)
	}
	if err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "%w", err)
	}
	defer context.AfterFunc(stream.Context(), func() { _ = listener.Close() })()
	defer listener.Close()

	var conns sync.WaitGroup
	defer conns.Wait()
	room := make(chan struct{}, maxAsking)
	var sending sync.Mutex
	for {
		select {
		case room <- struct{}{}:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		conn, err := listener.Accept()
		if err != nil {
			return stream.Context().Err()
		}
		conns.Go(func() {
			defer func() { <-room }()
			defer conn.Close()
			a.serve(stream.Context(), conn, func(r *guestv1.RequestedResponse) error {
				sending.Lock()
				defer sending.Unlock()
				return stream.Send(r)
			})
		})
	}
}

// serve is one program: what it asks for, and the answer.
func (a *asking) serve(ctx context.Context, conn net.Conn, tell func(*guestv1.RequestedResponse) error) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetReadDeadline(time.Now().Add(askedInTime))
	line, err := bufio.NewReader(io.LimitReader(conn, maxAsked)).ReadBytes('\n')
	if err != nil {
		return
	}
	var asked struct {
		Requirements []string `json:"requirements"`
	}
	if json.Unmarshal(line, &asked) != nil {
		return
	}
	answer := make(chan *guestv1.AnswerRequest, 1)
	a.mu.Lock()
	a.last++
	id := a.last
	a.waiting[id] = answer
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.waiting, id)
	}()
	if tell(&guestv1.RequestedResponse{Id: id, Requirements: asked.Requirements}) != nil {
		return
	}
	select {
	case got := <-answer:
		text, err := json.Marshal(map[string]any{"exit_code": got.GetExitCode(), "stdout": string(got.GetStdout()), "stderr": string(got.GetStderr())})
		if err == nil {
			_ = conn.SetWriteDeadline(time.Now().Add(answeredInTime))
			_, _ = conn.Write(append(text, '\n')) // who asked may have gone
		}
	case <-ctx.Done():
	}
}

// Answer implements guestv1.InstallServiceServer.
func (in *installations) Answer(_ context.Context, req *guestv1.AnswerRequest) (*guestv1.AnswerResponse, error) {
	in.asking.mu.Lock()
	defer in.asking.mu.Unlock()
	if answer := in.asking.waiting[req.GetId()]; answer != nil {
		delete(in.asking.waiting, req.GetId())
		answer <- req
	}
	return &guestv1.AnswerResponse{}, nil
}
