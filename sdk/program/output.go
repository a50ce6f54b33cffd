package program

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A frame is the marker, a letter for its kind, a text, and the end:
//
//	MARKER c ;          main is called
//	MARKER + base64 ;   a part of the result, more follows
//	MARKER = base64 ;   the last part of the result
//	MARKER x digits ;   the exit code: the runner has come to its end
const (
	frameCall = 'c'
	framePart = '+'
	frameLast = '='
	frameExit = 'x'
	frameEnd  = ';'
	// maxFrame bounds the text of a frame; the runners stay well below.
	maxFrame = 4 << 10
)

// Output takes what the service gives as the output of a program, and passes on
// all but the frames. Like any sdk.Output it can be called from several goroutines;
// the pieces may be cut anywhere. A few bytes that may turn out to be the beginning
// of a frame are held back until more comes, or Finish.
type Output struct {
	out     sdk.Output
	program *Program

	mu sync.Mutex
	// held is the beginning of what may be a frame.
	held []byte
	// encoded are the parts of the result so far.
	encoded []byte
	// results counts the results that are complete; value is the only one.
	results int
	value   []byte
	tooLong bool
	// called says that main was called, or was to be.
	called bool
	exit   *int
}

var _ sdk.Output = (*Output)(nil)

// Output returns what stands between the service and out.
func (p *Program) Output(out sdk.Output) *Output {
	return &Output{out: out, program: p, called: p.calls}
}

// Stderr passes on a piece of standard error.
func (o *Output) Stderr(p []byte) error { return o.out.Stderr(p) }

// Artifact passes on an artifact.
func (o *Output) Artifact(a sdk.Artifact) error { return o.out.Artifact(a) }

// Stdout takes a piece of standard output.
func (o *Output) Stdout(p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	data := append(o.held, p...)
	o.held = nil
	for len(data) > 0 {
		plain, rest := o.split(data)
		if len(plain) > 0 {
			if err := o.out.Stdout(plain); err != nil {
				return err
			}
		}
		length, complete := o.frame(rest)
		switch {
		case !complete:
			o.held = bytes.Clone(rest)
			return nil
		case length == 0: // it looked like one
			if len(rest) > 0 {
				if err := o.out.Stdout(rest[:1]); err != nil {
					return err
				}
				rest = rest[1:]
			}
		}
		data = rest[length:]
	}
	return nil
}

// split parts data before the first place where a frame begins or may begin.
func (o *Output) split(data []byte) (plain, rest []byte) {
	marker := []byte(o.program.marker)
	if i := bytes.Index(data, marker); i >= 0 {
		return data[:i], data[i:]
	}
	for n := min(len(marker)-1, len(data)); n > 0; n-- {
		if bytes.HasSuffix(data, marker[:n]) {
			return data[:len(data)-n], data[len(data)-n:]
		}
	}
	return data, nil
}

// frame reads the frame that data begins with. It is incomplete if more is needed
// to tell, and of length 0 if it is none.
func (o *Output) frame(data []byte) (length int, complete bool) {
	if len(data) <= len(o.program.marker) {
		return 0, len(data) == 0
	}
	body := data[len(o.program.marker):]
	kind, text := body[0], body[1:]
	if bytes.IndexByte([]byte{frameCall, framePart, frameLast, frameExit}, kind) < 0 {
		return 0, true
	}
	end := bytes.IndexByte(text, frameEnd)
	if end < 0 {
		return 0, len(text) > maxFrame || !isFrameText(text)
	}
	text = text[:end]
	if end > maxFrame || !isFrameText(text) || !o.take(kind, text) {
		return 0, true
	}
	return len(o.program.marker) + 1 + end + 1, true
}

func isFrameText(text []byte) bool {
	for _, c := range text {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/', c == '=':
		default:
			return false
		}
	}
	return true
}

// take deals with a frame, and says whether it is one.
func (o *Output) take(kind byte, text []byte) bool {
	switch kind {
	case frameCall:
		o.called = true
		return len(text) == 0
	case frameExit:
		code, err := strconv.ParseUint(string(text), 10, 8)
		if err != nil {
			return false
		}
		exit := int(code)
		o.exit = &exit
		return true
	}
	// The runner has its own limit; who exceeds this one is not the runner.
	if int64(len(o.encoded)+len(text)) > o.program.limit/3*4+maxFrame {
		o.tooLong, o.encoded = true, nil
	} else {
		o.encoded = append(o.encoded, text...)
	}
	if kind == framePart {
		return true
	}
	o.results++
	value := make([]byte, base64.StdEncoding.DecodedLen(len(o.encoded)))
	n, err := base64.StdEncoding.Decode(value, o.encoded)
	o.encoded = nil
	if err == nil && json.Valid(value[:n]) {
		o.value = value[:n]
	}
	return true
}

// Finish passes on what was held back and says what became of the code, once all
// output has come. The exit code is that of the process. Duration, PeakMemoryBytes and
// Truncated are for the provider to fill in. A number that is no exit code, such as the -1
// by which os.ProcessState says that a signal ended a process, is told as 137.
func (o *Output) Finish(exitCode int) (sdk.ExecuteResult, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if held := o.held; len(held) > 0 {
		o.held = nil
		if err := o.out.Stdout(held); err != nil {
			return sdk.ExecuteResult{}, err
		}
	}
	if exitCode < 0 || exitCode > 255 {
		exitCode = 128 + 9
	}
	result := sdk.ExecuteResult{Status: sdk.StatusSucceeded, ExitCode: exitCode}
	switch {
	case exitCode != 0:
		// What failed has returned nothing, whatever it wrote.
		result.Status = sdk.StatusFailed
	case o.results == 1 && o.value != nil && len(o.encoded) == 0 && !o.tooLong:
		result.Result = o.value
	case o.results > 1: // who sends two forges one of them
	case o.called && (o.exit == nil || o.results > 0 || len(o.encoded) > 0 || o.tooLong):
		result.Status, result.ExitCode = sdk.StatusFailed, 1
		result.Detail = "the result did not arrive: the code ended the interpreter itself, or the service has cut the output"
	}
	return result, nil
}
