// Package frames carries messages of our own among the output of a program that runs
// elsewhere: a marker of 128 random bits that is made for one run, a payload as base64,
// and the end. What a frame says is for those who use it.
package frames

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
)

// end of a frame.
const end = ';'

// NewMarker makes a marker that nothing else can know.
func NewMarker() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return "__run_" + hex.EncodeToString(b) + ":"
}

// Filter stands between output and whoever wants it, and takes the frames out.
type Filter struct {
	marker []byte
	most   int
	out    func([]byte) error
	frame  func(payload []byte) bool
	held   []byte
}

// NewFilter makes a filter. Frames of more than most bytes are none, nor are those that
// frame says false to.
func NewFilter(marker string, most int, out func([]byte) error, frame func(payload []byte) bool) *Filter {
	return &Filter{marker: []byte(marker), most: base64.StdEncoding.EncodedLen(most), out: out, frame: frame}
}

// Write takes a piece of output, cut anywhere.
func (f *Filter) Write(p []byte) error {
	data := append(f.held, p...)
	f.held = nil
	for len(data) > 0 {
		at := bytes.Index(data, f.marker)
		if at < 0 {
			at = len(data) - f.partial(data)
			f.held = bytes.Clone(data[at:])
			return f.pass(data[:at])
		}
		if err := f.pass(data[:at]); err != nil {
			return err
		}
		body := data[at+len(f.marker):]
		length := bytes.IndexByte(body, end)
		if length < 0 && len(body) <= f.most {
			f.held = bytes.Clone(data[at:])
			return nil
		}
		if length < 0 || length > f.most || !f.take(body[:length]) {
			if err := f.pass(f.marker); err != nil { // it only looks like one
				return err
			}
			data = body
			continue
		}
		data = body[length+1:]
	}
	return nil
}

// Close passes on what was held back.
func (f *Filter) Close() error {
	held := f.held
	f.held = nil
	return f.pass(held)
}

// Cut says that what comes next does not follow on what came: half a frame has no other.
func (f *Filter) Cut() error {
	if bytes.HasPrefix(f.held, f.marker) {
		f.held = nil
	}
	return f.Close()
}

func (f *Filter) take(text []byte) bool {
	payload, err := base64.StdEncoding.AppendDecode(nil, text)
	return err == nil && f.frame(payload)
}

func (f *Filter) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return f.out(p)
}

// partial is how many bytes at the end of data begin a marker.
func (f *Filter) partial(data []byte) int {
	for n := min(len(f.marker)-1, len(data)); n > 0; n-- {
		if bytes.HasSuffix(data, f.marker[:n]) {
			return n
		}
	}
	return 0
}
