package frames_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/frames"
)

const marker = "__run_0123:"

func frame(payload string) string {
	return marker + base64.StdEncoding.EncodeToString([]byte(payload)) + ";"
}

// parse takes a text in pieces; payloads that begin with "no" are none.
func parse(t testing.TB, text string, size int) (plain string, payloads []string) {
	t.Helper()
	var out bytes.Buffer
	f := frames.NewFilter(marker, 30, func(p []byte) error { out.Write(p); return nil }, func(p []byte) bool {
		if strings.HasPrefix(string(p), "no") {
			return false
		}
		payloads = append(payloads, string(p))
		return true
	})
	for data := []byte(text); len(data) > 0; {
		n := min(size, len(data))
		assert.NilError(t, f.Write(data[:n]))
		data = data[n:]
	}
	assert.NilError(t, f.Close())
	return out.String(), payloads
}

func TestFramesAreTakenOutHoweverTheOutputIsCut(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, c := range map[string]struct {
		text, plain string
		payloads    []string
	}{
		"nothing but output":             {text: "a\nb", plain: "a\nb"},
		"a frame between output":         {text: "a" + frame("1") + "b", plain: "ab", payloads: []string{"1"}},
		"frames one after the other":     {text: frame("1") + frame("2"), payloads: []string{"1", "2"}},
		"the marker alone":               {text: "a" + marker, plain: "a" + marker},
		"a marker before a frame":        {text: marker + frame("1"), plain: marker, payloads: []string{"1"}},
		"beginnings of a marker":         {text: "____run__run_0__run_0123", plain: "____run__run_0__run_0123"},
		"what is no base64":              {text: marker + "?;" + frame("1"), plain: marker + "?;", payloads: []string{"1"}},
		"a frame that is refused":        {text: frame("no"), plain: frame("no")},
		"a frame that is too long":       {text: frame(long), plain: frame(long)},
		"a frame that has no end":        {text: "a" + marker + "MQ==", plain: "a" + marker + "MQ=="},
		"a long text without its end":    {text: marker + long, plain: marker + long},
		"another marker":                 {text: "__run_4567:MQ==;", plain: "__run_4567:MQ==;"},
		"a frame that has nothing in it": {text: frame(""), payloads: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			for size := range 20 {
				plain, payloads := parse(t, c.text, size+1)
				assert.Equal(t, plain, c.plain, "in pieces of %d", size+1)
				assert.DeepEqual(t, payloads, c.payloads)
			}
		})
	}
}

func TestAListenerThatIsGoneEndsTheOutput(t *testing.T) {
	gone := errors.New("gone")
	f := frames.NewFilter(marker, 10, func([]byte) error { return gone }, func([]byte) bool { return true })
	assert.ErrorIs(t, f.Write([]byte("x")), gone)
}

func TestMarkersDiffer(t *testing.T) {
	one, other := frames.NewMarker(), frames.NewMarker()
	assert.Assert(t, one != other)
}

func FuzzFilter(f *testing.F) {
	f.Add("a"+frame("1")+"b"+frame("no"), 3)
	f.Add(marker+marker+";", 1)
	f.Fuzz(func(t *testing.T, text string, size int) {
		wantPlain, want := parse(t, text, len(text)+1)
		plain, got := parse(t, text, max(size%64, 1))
		assert.Equal(t, plain, wantPlain)
		assert.DeepEqual(t, got, want)
		if !strings.Contains(text, marker) {
			assert.Equal(t, plain, text)
		}
	})
}
