package guestlink_test

import (
	"bytes"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
)

const (
	own   = guestlink.Fingerprint("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	other = guestlink.Fingerprint("BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
)

func TestAFingerprintIsFoundInTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want guestlink.Fingerprint // "" for none
	}{
		"alone":                        {own.Line(), own},
		"after other lines":            {"starting\n\n" + own.Line() + "more\n", own},
		"the first of two":             {own.Line() + other.Line(), own},
		"an empty log":                 {"", ""},
		"a line that has not ended":    {strings.TrimSuffix(own.Line(), "\n"), ""},
		"half a line":                  {own.Line()[:50], ""},
		"amid a line":                  {"he said: " + own.Line(), ""},
		"with something behind it":     {strings.TrimSuffix(own.Line(), "\n") + " indeed\n", ""},
		"a key too short":              {strings.Replace(own.Line(), "A\n", "\n", 1), ""},
		"a wrong line before the true": {strings.Replace(own.Line(), "A\n", "\n", 1) + own.Line(), own},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := guestlink.ParseFingerprint([]byte(c.log))
			assert.Equal(t, got, c.want)
			assert.Equal(t, ok, c.want != "")
		})
	}
}

func FuzzParseFingerprint(f *testing.F) {
	f.Add([]byte(own.Line()))
	f.Add([]byte(strings.TrimSuffix(own.Line(), "\n")))
	f.Add([]byte("a\nsandbox-guest listens with the key \n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		found, ok := guestlink.ParseFingerprint(log)
		if !ok {
			assert.Equal(t, string(found), "")
			// Whatever stands before it, a line is found; the log's last may have become one.
			_, ok = guestlink.ParseFingerprint(append(append(bytes.Clone(log), '\n'), own.Line()...))
			assert.Assert(t, ok)
			return
		}
		_, err := guestlink.ParsePublic(string(found))
		assert.NilError(t, err)
		assert.Assert(t, bytes.Contains(log, []byte(found.Line())))
	})
}
