package link_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/link"
)

// echo is a server that answers each line with itself, and tells what it has read.
func echo(t *testing.T) (address string, heard chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	heard = make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					heard <- lines.Text()
					_, _ = io.WriteString(conn, lines.Text()+"\n")
				}
			}()
		}
	}()
	return listener.Addr().String(), heard
}

func open(t *testing.T, l *link.Link) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", l.Address())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, bufio.NewReader(conn)
}

func say(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	_, err := io.WriteString(conn, line+"\n")
	assert.NilError(t, err)
}

func hear(t *testing.T, conn net.Conn, from *bufio.Reader, line string) {
	t.Helper()
	assert.NilError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	got, err := from.ReadString('\n')
	assert.NilError(t, err)
	assert.Equal(t, got, line+"\n")
}

func hearNothing(t *testing.T, conn net.Conn, from *bufio.Reader) {
	t.Helper()
	assert.NilError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := from.ReadByte()
	assert.Assert(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
}

func TestALinkIsCutAndHealed(t *testing.T) {
	t.Parallel()
	address, heard := echo(t)
	l, err := link.Listen(address, nil)
	assert.NilError(t, err)
	defer l.Close()
	conn, from := open(t, l)
	say(t, conn, "open")
	hear(t, conn, from, "open")
	assert.Equal(t, <-heard, "open")

	// What was sent while it was stalled comes later, on old connections and on new ones.
	l.Cut(link.Stalled)
	say(t, conn, "late")
	other, fromOther := open(t, l)
	say(t, other, "other")
	hearNothing(t, conn, from)
	assert.Equal(t, len(heard), 0)
	l.Cut(link.Open)
	hear(t, conn, from, "late")
	hear(t, other, fromOther, "other")
	<-heard
	<-heard

	// A mute one brings what is asked, and no answer.
	l.Cut(link.Mute)
	say(t, conn, "asked")
	assert.Equal(t, <-heard, "asked")
	hearNothing(t, conn, from)
	l.Cut(link.Open)
	hear(t, conn, from, "asked")

	l.Cut(link.Reset)
	_, err = from.ReadByte()
	assert.Assert(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	// The reset may come before the dial is done.
	if refused, err := net.Dial("tcp", l.Address()); err == nil {
		defer refused.Close()
		assert.NilError(t, refused.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err = refused.Read(make([]byte, 1))
		assert.Assert(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	}
	l.Cut(link.Open)
	conn, from = open(t, l)
	say(t, conn, "again")
	hear(t, conn, from, "again")
}

func TestALinkIsCutForOneOfThoseWhoConnect(t *testing.T) {
	t.Parallel()
	address, _ := echo(t)
	names := make(chan string, 2)
	names <- "a"
	names <- "b"
	l, err := link.Listen(address, func(net.Addr) string { return <-names })
	assert.NilError(t, err)
	defer l.Close()
	a, fromA := open(t, l)
	say(t, a, "1")
	hear(t, a, fromA, "1")
	b, fromB := open(t, l)
	say(t, b, "1")
	hear(t, b, fromB, "1")
	l.CutFrom("a", link.Stalled)
	say(t, a, "2")
	say(t, b, "2")
	hear(t, b, fromB, "2")
	hearNothing(t, a, fromA)
	l.CutFrom("a", link.Open)
	hear(t, a, fromA, "2")
}

func TestALinkLeadsElsewhere(t *testing.T) {
	t.Parallel()
	first, _ := echo(t)
	second, heard := echo(t)
	l, err := link.Listen(first, nil)
	assert.NilError(t, err)
	defer l.Close()
	conn, from := open(t, l)
	say(t, conn, "1")
	hear(t, conn, from, "1")
	l.Lead(second)
	_, err = from.ReadByte()
	assert.Assert(t, err != nil && !errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	conn, from = open(t, l)
	say(t, conn, "2")
	hear(t, conn, from, "2")
	assert.Equal(t, <-heard, "2")
}
