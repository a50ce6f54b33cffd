package frames_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/frames"
)

func all(frames.Frame) bool { return true }

func TestFramesComeWithTheirData(t *testing.T) {
	r := frames.NewReader(strings.NewReader(
		`{"kind":"display","length":5,"mime":"text/plain","group":2,"size":5}` + "\nab\ncd" +
			`{"kind":"done","exit_code":3,"execution":7,"peak_bytes":9}` + "\n"))
	f, err := r.Next(all)
	assert.NilError(t, err)
	assert.DeepEqual(t, f, frames.Frame{Kind: frames.Display, Length: 5, MIMEType: "text/plain", Group: 2, Size: 5, Data: []byte("ab\ncd")})
	f, err = r.Next(all)
	assert.NilError(t, err)
	assert.DeepEqual(t, f, frames.Frame{Kind: frames.Done, ExitCode: 3, Execution: 7, PeakBytes: 9, Data: []byte{}})
	_, err = r.Next(all)
	assert.ErrorIs(t, err, io.EOF)
}

func TestWhatIsNotWantedIsPassedOver(t *testing.T) {
	r := frames.NewReader(strings.NewReader(`{"kind":"value","length":100000}` + "\n" + strings.Repeat("x", 100000) + `{"kind":"done"}` + "\n"))
	f, err := r.Next(func(f frames.Frame) bool { return f.Length < 1000 })
	assert.NilError(t, err)
	assert.Equal(t, f.Length, int64(100000))
	assert.Assert(t, f.Data == nil)
	f, err = r.Next(all)
	assert.NilError(t, err)
	assert.Equal(t, f.Kind, frames.Done)
}

func TestNonsenseEndsTheReading(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":                  "nonsense\n",
		"a length below nothing":   `{"kind":"value","length":-1}` + "\n",
		"a line without an end":    strings.Repeat("x", 1<<20),
		"half a line":              `{"kind":"val`,
		"less than was announced":  `{"kind":"value","length":9223372036854775807}` + "\nabc",
		"a number beyond numbers":  `{"kind":"value","length":1e400}` + "\n",
		"data that is not its own": `{"kind":"value","length":2}` + "\nabc\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := frames.NewReader(strings.NewReader(text))
			_, err := r.Next(all)
			for err == nil {
				_, err = r.Next(all)
			}
			assert.Assert(t, !errors.Is(err, io.EOF), "%v", err)
		})
	}
}

func FuzzNext(f *testing.F) {
	f.Add(`{"kind":"display","length":3,"mime":"a"}` + "\nabc{}\n")
	f.Add("{\"length\":99999999999}\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := frames.NewReader(strings.NewReader(text))
		for {
			frame, err := r.Next(func(f frames.Frame) bool { return f.Length < 1<<10 })
			if err != nil {
				return
			}
			assert.Assert(t, len(frame.Data) < 1<<10)
		}
	})
}
