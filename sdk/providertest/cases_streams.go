package providertest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func streamCases() []Case {
	const group = "streams"
	return []Case{
		{Group: group, Name: "stdout and stderr are told apart", run: twoStreams},
		{Group: group, Name: "output arrives while the code runs", run: outputArrives},
		{Group: group, Name: "output arrives in order and whole", run: outputInOrder},
		{Group: group, Name: "output ends where the code ended it", run: noLineFeed},
		{Group: group, Name: "letters of all sizes arrive", run: unicodeOutput},
		{Group: group, Name: "bytes that are no text arrive", run: binaryOutput},
		{Group: group, Name: "much output arrives whole", run: muchOutput},
		{Group: group, Name: "output above the limit is cut there, and said so", run: cutOutput},
		{Group: group, Name: "output of the limit's size is not cut", run: outputAtTheLimit},
		{Group: group, Name: "code goes on when its output is cut", run: goesOnWhenCut},
		{Group: group, Name: "an output that nobody reads holds up nothing else", run: unreadOutput},
		{Group: group, Name: "a listener that fails ends the execution", run: failingListener},
	}
}

// "Stdout and Stderr take raw bytes in order." (Output)
func twoStreams(c *scene) {
	got := c.instance().run(c.samples.Streams)
	got.printed("out\n")
	equal(c, got.stderr, "err\n", "stderr")
}

// "Output goes to out as it appears." (Provider.Execute)
func outputArrives(c *scene) {
	e := c.begin(c.ctx, c.instance().lasting(c.samples.Wait))
	e.saying("ready\n")
	e.goesOn("the arrival of output")
}

// "raw bytes in order" (Output)
func outputInOrder(c *scene) {
	var want strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	got := c.instance().run(c.samples.Lines)
	got.succeeded()
	if got.stdout == want.String() {
		return
	}
	lines, wanted := strings.Split(got.stdout, "\n"), strings.Split(want.String(), "\n")
	for i := range min(len(lines), len(wanted)) {
		c.check(lines[i] == wanted[i], "line %d of stdout is %s; it must be %q", i+1, shown(lines[i]), wanted[i])
	}
	c.fail("stdout has %d lines; it must have %d", len(lines)-1, len(wanted)-1)
}

// "raw bytes" (Output): nothing is added.
func noLineFeed(c *scene) { c.instance().prints(c.samples.NoLineFeed, "end") }

// The same: text is UTF-8 on both ways.
func unicodeOutput(c *scene) { c.instance().prints(c.samples.Unicode, UnicodeText+"\n") }

// The same: output need not be text.
func binaryOutput(c *scene) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	got := c.instance().run(c.samples.Binary)
	got.succeeded()
	equal(c, []byte(got.stdout), every, "stdout")
}

// flood is more than the buffers between provider and broker hold.
const flood = 2_500_000

// flooding is a request for much output, all of which may come.
func (in instance) flooding() sdk.ExecuteRequest {
	req := in.lasting(in.samples.Flood)
	req.OutputLimit = 2 * flood
	return req
}

// "at most MaxOutputChunk at a time" (Output)
func muchOutput(c *scene) {
	got := c.execute(c.instance().flooding())
	got.printed(strings.Repeat("x", flood))
	equal(c, got.stderr, strings.Repeat("y", flood), "stderr")
	c.check(!got.Truncated, "output below the limit counts as cut")
	c.check(got.longestChunk == 0, "a message carries %d bytes of output; at most %d are allowed", got.longestChunk, sdk.MaxOutputChunk)
}

// "OutputLimit in bytes, for stdout and for stderr each. What exceeds it is
// dropped and ExecuteResult.Truncated is set." (ExecuteRequest)
func cutOutput(c *scene) {
	const limit = 10_000
	req := c.instance().request(c.code(c.samples.Flood))
	req.OutputLimit = limit
	got := c.execute(req)
	equal(c, len(got.stdout), limit, "the length of stdout")
	equal(c, len(got.stderr), limit, "the length of stderr")
	c.check(got.Truncated, "output was cut, and the result does not say so")
}

// The same.
func outputAtTheLimit(c *scene) {
	req := c.instance().flooding()
	req.OutputLimit = flood
	got := c.execute(req)
	got.succeeded()
	equal(c, len(got.stdout), flood, "the length of stdout")
	c.check(!got.Truncated, "output of exactly the limit counts as cut")
}

// The same: it is dropped, and the code does not notice.
func goesOnWhenCut(c *scene) {
	in := c.instance()
	req := in.request(c.code(c.samples.Flood))
	req.OutputLimit = 100
	got := c.execute(req)
	got.succeeded()
	// Flood leaves a file as the last thing it does; a second run would see it.
	equal(c, got.ExitCode, 0, "the exit code of code whose output is cut")
}

// stuckOutput takes nothing until it is released.
type stuckOutput struct {
	*heard
	entered chan struct{}
	release chan struct{}
}

func (s *stuckOutput) Stdout(p []byte) error {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.release
	return s.heard.Stdout(p)
}

// "each call blocks until the broker has room for more" (Output): that of one
// execution alone.
func unreadOutput(c *scene) {
	in := c.instance()
	out := &stuckOutput{newHeard(), make(chan struct{}, 1), make(chan struct{})}
	req := in.flooding()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Execute(c.ctx, req, out)
		ended <- err
	}()
	<-out.entered
	released := false
	release := func() {
		if !released {
			released = true
			close(out.release)
		}
	}
	defer func() { release() }()
	for range 10 { // until the buffers are full
		in.prints(c.samples.Hello, "hello\n")
	}
	release()
	c.must(<-ended, "an execution whose output was read late")
	equal(c, out.out(), strings.Repeat("x", flood), "the output that was read late")
}

// errDeaf is what a listener that has gone says.
var errDeaf = errors.New("nobody listens")

type deafOutput struct{ *heard }

func (deafOutput) Stdout([]byte) error { return errDeaf }

// "an error means that nobody listens any more" (Output): the code is stopped, as
// by the end of its context, and the instance stays usable.
func failingListener(c *scene) {
	in := c.instance().ticking()
	_, err := c.Execute(c.ctx, in.lasting(c.samples.TickAndWait), deafOutput{newHeard()})
	c.check(errors.Is(err, errDeaf), "the execution gave %v, not the listener's error", err)
	in.stops(in.now(), obeyTimeout, "its listener was gone")
}
