package pipe

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// ErrClosed says that the Writer was closed, or that nobody reads any more.
var ErrClosed = errors.New("the standard input is closed")

// endOfFile is what a terminal takes for the end of its input, by default.
const endOfFile = "\x04"

// Writer writes to our end of a program's standard input. Its methods may be called from
// any goroutine.
type Writer struct {
	file     *os.File
	terminal bool
	turn     chan struct{} // whoever has put something in writes

	mu     sync.Mutex
	closed bool
}

// NewWriter takes ownership of a file that has deadlines. The input of a terminal is not
// closed at its end: that has a character.
func NewWriter(file *os.File, terminal bool) *Writer {
	return &Writer{file: file, terminal: terminal, turn: make(chan struct{}, 1)}
}

// Write returns when the pipe or the terminal has taken everything, and with end the end
// too. When ctx ends before, some of it may have been taken, and the error is that of
// ctx. Any other error is ErrClosed.
func (w *Writer) Write(ctx context.Context, data []byte, end bool) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if end && w.terminal {
		data = append(data[:len(data):len(data)], endOfFile...)
	}
	if w.isClosed() {
		return ErrClosed
	}
	if err := w.writeWithin(ctx, data); err != nil {
		return err
	}
	if end && !w.terminal {
		w.Close()
	}
	return nil
}

func (w *Writer) writeWithin(ctx context.Context, data []byte) error {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = w.file.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	_, err := w.file.Write(data)
	if !stop() {
		<-interrupted
		_ = w.file.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case os.IsTimeout(err):
		return ctx.Err()
	default: // the program, or its end, has closed it
		return ErrClosed
	}
}

func (w *Writer) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// Close ends a write in progress. It may be called twice.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		_ = w.file.Close()
	}
}
