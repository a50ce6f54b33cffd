package stdio_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
)

func TestALineHasOneConnectionAndReportsTheEnd(t *testing.T) {
	in, remoteOut := io.Pipe()
	remoteIn, out := io.Pipe()
	listener := stdio.NewLine(in, out)
	conn, err := listener.Accept()
	assert.NilError(t, err)
	go func() { _, _ = remoteOut.Write([]byte("ping")) }()
	buf := make([]byte, 4)
	_, err = io.ReadFull(conn, buf)
	assert.NilError(t, err)
	assert.Equal(t, string(buf), "ping")

	ended := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		ended <- err
	}()
	assert.NilError(t, conn.Close())
	assert.NilError(t, conn.Close(), "closing twice is fine")
	assert.ErrorIs(t, <-ended, io.EOF)
	_, err = remoteIn.Read(buf)
	assert.ErrorIs(t, err, io.EOF, "both directions end")
}

// script gives reads of these sizes, and keeps how much each was asked for.
type script struct {
	sizes []int
	asked []int
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.sizes) == 0 {
		return 0, io.EOF
	}
	n := min(s.sizes[0], len(p))
	for i := range n {
		p[i] = byte(len(s.asked))
	}
	s.sizes, s.asked = s.sizes[1:], append(s.asked, len(p))
	return n, nil
}

func (s *script) Close() error { return nil }

func TestAConnectionReadsMuchAtOnceWhileMuchComes(t *testing.T) {
	const small, large = 64 << 10, 512 << 10
	calm := slices.Repeat([]int{10}, 64)
	for name, test := range map[string]struct{ sizes, asked []int }{
		"little":                       {[]int{10, 10, small - 1, 10}, []int{small, small, small, small}},
		"much":                         {[]int{small, large, large}, []int{small, large, large}},
		"a little between":             {[]int{small, 10, large, 10}, []int{small, large, large, large}},
		"much, and little for long":    {slices.Concat([]int{small}, calm, []int{10}), slices.Concat([]int{small}, slices.Repeat([]int{large}, 64), []int{small})},
		"much again after the silence": {slices.Concat([]int{small}, calm, []int{large, 10}), slices.Concat([]int{small}, slices.Repeat([]int{large}, 64), []int{small, large})},
	} {
		t.Run(name, func(t *testing.T) {
			var want []byte
			in := &script{sizes: test.sizes}
			for i, size := range test.sizes {
				want = append(want, bytes.Repeat([]byte{byte(i)}, min(size, test.asked[i]))...)
			}
			_, out := io.Pipe()
			got, err := io.ReadAll(stdio.NewConn(in, out))
			assert.NilError(t, err)
			assert.Assert(t, bytes.Equal(got, want), "what is read is what was given, in order")
			assert.DeepEqual(t, in.asked, test.asked)
		})
	}
}

func TestAConnectionThatBreaksGivesWhatItHadFirst(t *testing.T) {
	broken := errors.New("the pipe broke")
	_, out := io.Pipe()
	conn := stdio.NewConn(io.NopCloser(io.MultiReader(strings.NewReader("last"), iotest.ErrReader(broken))), out)
	got, err := io.ReadAll(conn)
	assert.ErrorIs(t, err, broken)
	assert.Equal(t, string(got), "last")
}

func TestAClosedLineStopsAccepting(t *testing.T) {
	in, _ := io.Pipe()
	_, out := io.Pipe()
	listener := stdio.NewLine(in, out)
	_, err := listener.Accept()
	assert.NilError(t, err)
	assert.NilError(t, listener.Close())
	_, err = listener.Accept()
	assert.ErrorIs(t, err, io.EOF)
}

func TestADialerHandsTheConnectionOutOnce(t *testing.T) {
	in, _ := io.Pipe()
	_, out := io.Pipe()
	dial := stdio.Dialer(stdio.NewConn(in, out))
	_, err := dial(context.Background(), "")
	assert.NilError(t, err)
	_, err = dial(context.Background(), "")
	assert.ErrorIs(t, err, io.EOF)
}
