package program

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// These tests stand inside the package because a frame can only be written by who
// knows the marker.

const marker = "__sandbox_0123:"

type collector struct {
	bytes.Buffer
	err error
}

func (c *collector) Stdout(p []byte) error {
	c.Write(p)
	return c.err
}
func (c *collector) Stderr([]byte) error         { return nil }
func (c *collector) Artifact(sdk.Artifact) error { return nil }

func frame(kind, text string) string { return marker + kind + text + ";" }

func value(json string) string { return frame("=", base64.StdEncoding.EncodeToString([]byte(json))) }

func TestFramesAreTakenOutOfTheOutput(t *testing.T) {
	half := base64.StdEncoding.EncodeToString([]byte(`{"a": "0123456789"}`))
	for name, c := range map[string]struct {
		stdout string
		exit   int
		plain  string
		result string
		status sdk.Status
		detail bool
	}{
		"nothing but output":                   {stdout: "a\nb", plain: "a\nb"},
		"a result between output":              {stdout: "a" + frame("c", "") + "b" + value("1") + "c" + frame("x", "0") + "d", plain: "abcd", result: "1"},
		"a result in parts":                    {stdout: frame("c", "") + frame("+", half[:8]) + "between" + frame("=", half[8:]) + frame("x", "0"), plain: "between", result: `{"a": "0123456789"}`},
		"a call without a result":              {stdout: frame("c", "") + frame("x", "0")},
		"a result of code that failed":         {stdout: frame("c", "") + value("1") + frame("x", "3"), exit: 3, status: sdk.StatusFailed},
		"two results":                          {stdout: frame("c", "") + value("1") + value("2") + frame("x", "0")},
		"a result that is no JSON":             {stdout: frame("c", "") + value("{") + frame("x", "0"), status: sdk.StatusFailed, detail: true},
		"a result that is no base64":           {stdout: frame("c", "") + frame("=", "a") + frame("x", "0"), status: sdk.StatusFailed, detail: true},
		"half a result":                        {stdout: frame("c", "") + frame("+", half[:8]) + frame("x", "0"), status: sdk.StatusFailed, detail: true},
		"the end is missing":                   {stdout: frame("c", "") + "x", plain: "x", status: sdk.StatusFailed, detail: true},
		"a result above the limit":             {stdout: frame("c", "") + strings.Repeat(frame("+", strings.Repeat("eHh4", 1000)), 5) + value("1") + frame("x", "0"), status: sdk.StatusFailed, detail: true},
		"the marker alone":                     {stdout: "a" + marker, plain: "a" + marker},
		"the beginning of a marker at the end": {stdout: "a" + marker[:5], plain: "a" + marker[:5]},
		"beginnings of a marker":               {stdout: "____sand__sandbox_012__sandbox_0123", plain: "____sand__sandbox_012__sandbox_0123"},
		"a marker and something else":          {stdout: marker + "?" + marker + "=€;" + marker + "x999;" + marker + "c1;", plain: marker + "?" + marker + "=€;" + marker + "x999;" + marker + "c1;", status: sdk.StatusFailed, detail: true},
		"a marker before a frame":              {stdout: marker + value("1") + frame("x", "0"), plain: marker, result: "1"},
		"a frame without end":                  {stdout: marker + "=" + strings.Repeat("A", maxFrame+1) + "b", plain: marker + "=" + strings.Repeat("A", maxFrame+1) + "b"},
		"another marker":                       {stdout: "__sandbox_4567:=MQ==;", plain: "__sandbox_4567:=MQ==;"},
	} {
		t.Run(name, func(t *testing.T) {
			for size := range 20 {
				got, result := parse(t, c.stdout, size+1, c.exit)
				if c.status == "" {
					c.status = sdk.StatusSucceeded
				}
				assert.Assert(t, is.Equal(got, c.plain), "in pieces of %d", size+1)
				assert.Assert(t, is.Equal(string(result.Result), c.result))
				assert.Assert(t, is.Equal(result.Status, c.status))
				assert.Assert(t, is.Equal(result.Detail != "", c.detail))
			}
		})
	}
}

func parse(t testing.TB, stdout string, size, exit int) (string, sdk.ExecuteResult) {
	t.Helper()
	var out collector
	o := (&Program{marker: marker, limit: 1000}).Output(&out)
	for data := []byte(stdout); len(data) > 0; {
		n := min(size, len(data))
		assert.NilError(t, o.Stdout(data[:n]))
		data = data[n:]
	}
	result, err := o.Finish(exit)
	assert.NilError(t, err)
	return out.String(), result
}

func TestWhatIsHeldBackIsFew(t *testing.T) {
	var out collector
	o := (&Program{marker: marker}).Output(&out)
	assert.NilError(t, o.Stdout([]byte("so far_")))
	assert.Equal(t, out.String(), "so far")
	for range 1000 {
		assert.NilError(t, o.Stdout([]byte(marker+"="+strings.Repeat("A", 1000))))
	}
	assert.Assert(t, len(o.held) <= len(marker)+1+maxFrame+1000)
}

func TestAListenerThatIsGoneEndsTheOutput(t *testing.T) {
	gone := errors.New("gone")
	o := (&Program{marker: marker}).Output(&collector{err: gone})
	assert.ErrorIs(t, o.Stdout([]byte("x")), gone)
	o = (&Program{marker: marker}).Output(&collector{err: gone})
	assert.NilError(t, o.Stdout([]byte("_")))
	_, err := o.Finish(0)
	assert.ErrorIs(t, err, gone)
}

// However the output is cut, the same comes out; and without a frame, everything.
func FuzzOutput(f *testing.F) {
	f.Add("a"+frame("c", "")+value("[1]")+"b"+frame("x", "0"), 3)
	f.Add(marker+marker+"=;"+marker[:7], 1)
	f.Add("_____s__sandbox_0123", 2)
	f.Fuzz(func(t *testing.T, stdout string, size int) {
		whole, want := parse(t, stdout, len(stdout)+1, 0)
		plain, got := parse(t, stdout, max(size%64, 1), 0)
		assert.Equal(t, plain, whole)
		assert.DeepEqual(t, got, want)
		if !strings.Contains(stdout, marker) {
			assert.Equal(t, plain, stdout)
		}
	})
}
