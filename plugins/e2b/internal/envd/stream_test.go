package envd

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
)

func TestAStreamIsReadToItsEnd(t *testing.T) {
	one, err := envelope(map[string]any{"event": map[string]any{"start": map[string]int{"pid": 7}}})
	assert.NilError(t, err)
	end := []byte("\x02\x00\x00\x00\x02{}")
	failed := append([]byte{2, 0, 0, 0, 0}, `{"error":{"code":"not_found","message":"gone"}}`...)
	failed[4] = byte(len(failed) - envelopeHead)
	read := func(stream []byte) (m message, err error) {
		r := bytes.NewReader(stream)
		if err = readMessage(r, &m); err == nil {
			err = readMessage(r, &m)
		}
		return m, err
	}

	m, err := read(append(bytes.Clone(one), end...))
	assert.ErrorIs(t, err, io.EOF)
	assert.Equal(t, m.Event.Start.PID, 7)

	_, err = read(append(bytes.Clone(one), failed...))
	e, ok := errors.AsType[*e2bhttp.Error](err)
	assert.Assert(t, ok, "%v", err)
	assert.Equal(t, e.Code, "not_found")

	for cut := range len(one) + len(end) {
		_, err = read(append(bytes.Clone(one), end...)[:cut])
		_, lost := errors.AsType[*e2bhttp.LostError](err)
		assert.Check(t, lost, "cut after %d bytes: %v", cut, err)
		assert.Check(t, !errors.Is(err, io.EOF), "cut after %d bytes, and taken for the end", cut)
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02{}\x02\x00\x00\x00\x02{}"))
	f.Add([]byte("\x02\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := bytes.NewReader(stream)
		for range len(stream) + 1 {
			var m message
			if err := readMessage(r, &m); err != nil {
				return
			}
		}
		t.Fatal("a stream without an end")
	})
}
