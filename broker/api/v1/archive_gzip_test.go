package v1

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func gzipped(t *testing.T, content io.Reader) []byte {
	t.Helper()
	var body bytes.Buffer
	w := gzip.NewWriter(&body)
	_, err := io.Copy(w, content)
	assert.NilError(t, err)
	assert.NilError(t, w.Close())
	return body.Bytes()
}

type endlessZeros struct{}

func (endlessZeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

var errBrokeOff = errors.New("the client went away")

type breakingOff struct{}

func (breakingOff) Read([]byte) (int, error) { return 0, errBrokeOff }

func TestAnArchiveIsTakenInGzipToo(t *testing.T) {
	for name, body := range map[string][]byte{
		"as it is":         []byte("a tar stream"),
		"in gzip":          gzipped(t, strings.NewReader("a tar stream")),
		"in gzip, in two":  append(gzipped(t, strings.NewReader("a tar ")), gzipped(t, strings.NewReader("stream"))...),
		"in gzip and more": append(gzipped(t, strings.NewReader("a tar stream")), gzipped(t, strings.NewReader(""))...),
	} {
		t.Run(name, func(t *testing.T) {
			content, err := io.ReadAll(archiveContent(bytes.NewReader(body)))
			assert.NilError(t, err)
			assert.Equal(t, string(content), "a tar stream")
		})
	}
	for _, short := range []string{"", "a", "\x1f\x8b"} {
		content, err := io.ReadAll(archiveContent(strings.NewReader(short)))
		assert.NilError(t, err)
		assert.Equal(t, string(content), short)
	}
}

func TestABombIsNoArchive(t *testing.T) {
	// A stream of many parts, since compressing all of it takes a minute under the race
	// detector.
	mebibyte := gzipped(t, io.LimitReader(endlessZeros{}, 1<<20))
	bomb := bytes.Repeat(mebibyte, 512)
	n, err := io.Copy(io.Discard, archiveContent(bytes.NewReader(bomb)))
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
	assert.ErrorContains(t, err, "without compression")
	assert.Assert(t, n < int64(len(bomb))*maxExpansion+expandedUnlooked+1<<20, "%d", n)
	// What is small enough is nobody's trouble.
	_, err = io.Copy(io.Discard, archiveContent(bytes.NewReader(bytes.Repeat(mebibyte, 32))))
	assert.NilError(t, err)
}

func TestABrokenStreamIsToldFromOneThatBrokeOff(t *testing.T) {
	whole := gzipped(t, strings.NewReader(strings.Repeat("text", 1000)))
	invalid := &sdk.Error{Code: sdk.CodeInvalidRequest}
	_, err := io.ReadAll(archiveContent(bytes.NewReader(whole[:len(whole)-6])))
	assert.ErrorIs(t, err, invalid)
	assert.ErrorContains(t, err, "cut off")
	broken := bytes.Clone(whole)
	broken[len(broken)-5] ^= 1
	_, err = io.ReadAll(archiveContent(bytes.NewReader(broken)))
	assert.ErrorIs(t, err, invalid)
	_, err = io.ReadAll(archiveContent(strings.NewReader("\x1f\x8b\x08 no more")))
	assert.ErrorIs(t, err, invalid)
	_, err = io.ReadAll(archiveContent(io.MultiReader(bytes.NewReader(whole[:len(whole)-6]), breakingOff{})))
	assert.ErrorIs(t, err, errBrokeOff)
	_, err = io.ReadAll(archiveContent(breakingOff{}))
	assert.ErrorIs(t, err, errBrokeOff)
}
