package stdio

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// TokenBytes is the length of a token that announces a new connection.
const TokenBytes = 32

// maxStale bounds what a guest may still say of an earlier connection before it answers to
// a token: a pipe was full, and gRPC was about to write more.
const maxStale = 8 << 20

// Line is the guest's end of a pair of pipes. It is a listener: one connection after the
// other is over the same pipes.
//
// A checkpoint of a sandbox has the connection in it, but not who is at the other end.
// Whoever starts a copy gives it other pipes, of which it takes the other ends by
// Conn.TakeOver: it writes the token that was expected when the checkpoint was taken, and
// disregards what is said before the answer. In the original nobody writes the token, and
// its connection goes on.
type Line struct {
	in   io.ReadCloser
	out  io.WriteCloser
	next chan *Conn // buffered

	mu    sync.Mutex
	token []byte // nil for none

	once sync.Once
	done chan struct{}
}

var _ net.Listener = (*Line)(nil)

// NewLine takes ownership of both pipes. Its first connection is there at once.
func NewLine(in io.ReadCloser, out io.WriteCloser) *Line {
	l := &Line{in: in, out: out, next: make(chan *Conn, 1), done: make(chan struct{})}
	l.connect(nil)
	return l
}

// Expect names the token of the next connection, in the place of an earlier one.
func (l *Line) Expect(token []byte) error {
	if len(token) != TokenBytes {
		return fmt.Errorf("a token has %d bytes", TokenBytes)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token = bytes.Clone(token)
	return nil
}

// expected takes the token, if p begins with it. It comes as a whole and before anything
// else: the pipe is new, and who writes so little to one does it at once.
func (l *Line) expected(p []byte) (token []byte, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == nil || !bytes.HasPrefix(p, l.token) {
		return nil, false
	}
	token, l.token = l.token, nil
	return token, true
}

// connect makes a connection, of which rest was read already.
func (l *Line) connect(rest []byte) {
	e := &lineEnd{line: l, rest: rest}
	l.next <- NewConn(lineReader{e}, lineWriter{e})
}

// Accept implements net.Listener: io.EOF says that the pipes have ended.
func (l *Line) Accept() (net.Conn, error) {
	select {
	case conn := <-l.next:
		return conn, nil
	case <-l.done:
		return nil, io.EOF
	}
}

// Close ends the pipes.
func (l *Line) Close() error {
	var err error
	l.once.Do(func() {
		err = errors.Join(l.out.Close(), l.in.Close())
		close(l.done)
	})
	return err
}

// Addr implements net.Listener.
func (l *Line) Addr() net.Addr { return addr{} }

// lineEnd is what one connection has of a line.
type lineEnd struct {
	line *Line
	rest []byte // of the one reader

	over    atomic.Bool // another connection has the line
	writing sync.Mutex  // held while something is written
}

type lineReader struct{ *lineEnd }

// Read gets whole reads of the pipe, as Conn gives it more room than a pipe has.
func (e lineReader) Read(p []byte) (int, error) {
	if len(e.rest) > 0 {
		n := copy(p, e.rest)
		e.rest = e.rest[n:]
		return n, nil
	}
	n, err := e.line.in.Read(p)
	token, is := e.line.expected(p[:n])
	if !is {
		return n, err
	}
	// What is just being written belongs before the answer; whoever waits for that reads it.
	e.over.Store(true)
	e.writing.Lock()
	defer e.writing.Unlock()
	if _, err := e.line.out.Write(answerTo(token)); err != nil {
		return 0, err
	}
	e.line.connect(bytes.Clone(p[len(token):n]))
	return 0, io.EOF
}

// Close ends the line, unless another connection has it.
func (e lineReader) Close() error {
	if e.over.Load() {
		return nil
	}
	return e.line.Close()
}

type lineWriter struct{ *lineEnd }

func (e lineWriter) Write(p []byte) (int, error) {
	e.writing.Lock()
	defer e.writing.Unlock()
	if e.over.Load() {
		return 0, io.ErrClosedPipe
	}
	return e.line.out.Write(p)
}

// Close does nothing: Conn closes its reader too.
func (e lineWriter) Close() error { return nil }

// answerTo is what a guest says before all that belongs to a new connection.
func answerTo(token []byte) []byte {
	sum := sha256.Sum256(append([]byte("taken over: "), token...))
	return sum[:]
}

// TakeOver makes of the connection to a copy of a guest one that nothing was said over yet.
// Nobody else uses it meanwhile; closing it ends the wait.
func (c *Conn) TakeOver(token []byte) error {
	if _, err := c.out.Write(token); err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	answer := answerTo(token)
	var window []byte
	for stale := 0; stale <= maxStale; {
		c.resize()
		n, err := c.in.Read(c.buf)
		window = append(window, c.buf[:n]...)
		if at := bytes.Index(window, answer); at >= 0 {
			c.rest = window[at+len(answer):]
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for the answer: %w", err)
		}
		stale += n
		window = append(window[:0], window[max(0, len(window)-len(answer)+1):]...)
	}
	return errors.New("the guest does not answer to the token")
}
