package providertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/serve"

	"github.com/hashicorp/go-hclog"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// InProcess serves the provider of a factory in this process, on a socket with
// the same server and limits as serve.Serve.
func InProcess(factory serve.Factory) Opener {
	return func(context.Context) (*Plugin, error) {
		dir, err := os.MkdirTemp("", "plugin") // sockets have short paths
		if err != nil {
			return nil, err
		}
		listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		log := &logBuffer{}
		logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: log, JSONFormat: true})
		watch := &callWatch{}
		server := grpc.NewServer(append(serve.ServerOptions(logger),
			grpc.ChainUnaryInterceptor(watch.unary), grpc.ChainStreamInterceptor(watch.stream), grpc.WaitForHandlers(true))...)
		serve.RegisterServer(server, factory(logger), logger)
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()

		conn, err := grpc.NewClient("unix:"+listener.Addr().String(),
			append(wire.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			server.Stop()
			return nil, errors.Join(err, <-served, os.RemoveAll(dir))
		}
		return &Plugin{
			Conn: conn,
			Stop: func(ctx context.Context) error {
				_, closeErr := providerv1.NewProviderServiceClient(conn).Close(ctx, &providerv1.CloseRequest{})
				err := errors.Join(wire.DecodeError(closeErr), conn.Close())
				return errors.Join(err, stopServer(ctx, server, served), os.RemoveAll(dir))
			},
			Log:  log.String,
			Late: watch.list,
		}, nil
	}
}

// stopServer ends the server and waits for its calls, unless they do not end.
func stopServer(ctx context.Context, server *grpc.Server, served <-chan error) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.Stop()
	}()
	select {
	case <-stopped:
		return <-served
	case <-ctx.Done():
		return errors.New("a call of the provider does not end although its context has")
	}
}

// logBuffer keeps what is written to it, up to a limit.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxLog = 16 << 20

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf.Len() < maxLog {
		b.buf.Write(p)
	}
	return len(p), nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// LateCall is a call that returned after its context had ended.
type LateCall struct {
	// Method in gRPC's form.
	Method string
	// By how much, once it has returned.
	By time.Duration
}

// String names the call and its delay.
func (c LateCall) String() string { return fmt.Sprintf("%s: %v", c.Method, c.By) }

// callWatch looks at calls from the provider's side, where the end of a context
// can be told from the return of the call.
type callWatch struct {
	mu    sync.Mutex
	calls []LateCall
}

func (w *callWatch) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	defer w.begin(ctx, info.FullMethod)()
	return handler(ctx, req)
}

func (w *callWatch) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	defer w.begin(stream.Context(), info.FullMethod)()
	return handler(srv, stream)
}

// begin returns what to call when the call has returned.
func (w *callWatch) begin(ctx context.Context, method string) func() {
	ended := make(chan time.Time, 1)
	stop := context.AfterFunc(ctx, func() { ended <- time.Now() })
	return func() {
		if stop() {
			return
		}
		call := LateCall{method, time.Since(<-ended)}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls = append(w.calls, call)
	}
}

// list returns the calls whose contexts ended before they did, with their delay.
func (w *callWatch) list() []LateCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}
