package commands

import (
	"context"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/refusal"
)

// endOfFile is what a terminal takes for the end of its input, by default.
const endOfFile = "\x04"

// input is our end of a program's standard input.
type input struct {
	file     *os.File
	terminal bool
	turn     chan struct{} // whoever has put something in writes

	mu     sync.Mutex
	closed bool
}

func newInput(file *os.File, terminal bool) *input {
	return &input{file: file, terminal: terminal, turn: make(chan struct{}, 1)}
}

// write returns when the pipe or the terminal has taken everything. When ctx ends
// before, some of it may have been taken.
func (in *input) write(ctx context.Context, data []byte, end bool) error {
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if end && in.terminal {
		data = append(data[:len(data):len(data)], endOfFile...)
	}
	if in.isClosed() {
		return errClosed()
	}
	if err := in.writeWithin(ctx, data); err != nil {
		return err
	}
	if end && !in.terminal {
		in.close()
	}
	return nil
}

func (in *input) writeWithin(ctx context.Context, data []byte) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = in.file.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	_, err := in.file.Write(data)
	if !stop() {
		<-interrupted
		_ = in.file.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case os.IsTimeout(err):
		return status.FromContextError(ctx.Err()).Err()
	default: // the program, or its end, has closed it
		return errClosed()
	}
}

func errClosed() error {
	return refusal.New(refusal.Conflict, "", "the command's standard input is closed")
}

func (in *input) isClosed() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.closed
}

// close ends a write in progress. It may be called twice.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.closed = true
		_ = in.file.Close()
	}
}
