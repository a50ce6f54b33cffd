package sse_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	events := []sse.Event{
		{Name: "a", Data: []byte(`{"x": 1}`)},
		{Name: "b", Data: []byte("two\nlines\n")},
		{Name: "c", Data: []byte{}},
		{Name: "d", Data: []byte(": no comment")},
	}
	var b []byte
	for _, e := range events {
		b = sse.AppendComment(e.Append(b), "ping")
	}
	r := sse.NewReader(bytes.NewReader(b), 1<<10)
	for _, want := range events {
		got, err := r.Next()
		assert.NilError(t, err)
		assert.Equal(t, got.Name, want.Name)
		assert.Equal(t, string(got.Data), string(want.Data))
	}
	_, err := r.Next()
	assert.ErrorIs(t, err, io.EOF)
}

func TestTheWireFormat(t *testing.T) {
	assert.Equal(t, string(sse.Event{Name: "n", Data: []byte("a\r\nb\rc")}.Append(nil)), "event: n\ndata: a\ndata: b\ndata: c\n\n")
	for name, test := range map[string]struct{ text, want string }{
		"other line ends":               {"event: a\r\ndata: 1\r\n\r\nevent: b\rdata: 2\r\r", "a=1;b=2;"},
		"no space":                      {"event:a\ndata:1\n\n", "a=1;"},
		"a second space is data":        {"event: a\ndata:  1\n\n", "a= 1;"},
		"no data is no event":           {"event: a\n\ndata: 1\n\n", "=1;"},
		"fields that nobody knows":      {"id: 7\nretry: 5\nfoo\ndata: 1\n\n", "=1;"},
		"what was cut off is none":      {"event: a\ndata: 1\n\nevent: b\ndata: 2\n", "a=1;"},
		"what was cut off in its midst": {"event: a\ndata: 1\n\nevent: b\nda", "a=1;"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, readAll(t, test.text), test.want) })
	}
	_, err := sse.NewReader(strings.NewReader("data: "+strings.Repeat("x", 100)), 50).Next()
	assert.ErrorIs(t, err, sse.ErrTooLong)
}

func readAll(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	for r := sse.NewReader(strings.NewReader(text), 1<<20); ; {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		assert.NilError(t, err)
		b.WriteString(e.Name + "=" + string(e.Data) + ";")
	}
}

func FuzzReader(f *testing.F) {
	f.Add("event: a\ndata: 1\n\n", "data")
	f.Add("\r\r\n: x\ndata\n\n", "a\r\nb")
	f.Fuzz(func(t *testing.T, text, data string) {
		readAll(t, text)
		// What is written can be read, whatever was before it.
		e := sse.Event{Name: "name", Data: []byte(data)}
		got := readAll(t, string(e.Append([]byte(text+"\n\n"))))
		normal := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)
		assert.Assert(t, strings.HasSuffix(got, "name="+normal+";"), "%q", got)
	})
}
