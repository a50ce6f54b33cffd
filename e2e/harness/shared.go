package harness

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Shared is a broker for all tests of a package that ask it for no more than others
// may see: they find instances, logs and counts of each other. Those that kill it,
// change its settings or count what it holds start one of their own.
type Shared struct {
	// Options says how it is started.
	Options func(t testing.TB) Options

	mu     sync.Mutex
	broker *Broker
	owner  *owner
}

// Broker returns the broker, started by the first test that asks. Its log is shown for
// a test that fails, from where that test asked.
func (s *Shared) Broker(t testing.TB) *Broker {
	t.Helper()
	options := s.Options(t) // which may skip the test
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == nil {
		s.owner = &owner{}
		s.owner.run(func() { s.broker = Start(s.owner, options) })
	}
	if s.broker == nil {
		t.Fatalf("the shared broker did not start: %v", s.owner.err())
	}
	mine := *s.broker
	mine.t = t
	from := len(mine.Log())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the shared broker's log meanwhile:\n%s", mine.Log()[from:])
		}
	})
	return &mine
}

// Close stops the broker, for a TestMain, when the tests have ended. The error says
// what is left of it.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == nil {
		return nil
	}
	s.owner.close()
	return s.owner.err()
}

// owner is what a broker has for a test that outlives all tests. Methods that are not
// here would panic.
type owner struct {
	testing.TB

	mu       sync.Mutex
	cleanups []func()
	failures []string
}

// run calls f, which may end by FailNow.
func (o *owner) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (o *owner) close() {
	for len(o.cleanups) > 0 {
		last := o.cleanups[len(o.cleanups)-1]
		o.cleanups = o.cleanups[:len(o.cleanups)-1]
		o.run(last)
	}
}

func (o *owner) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failures) == 0 {
		return nil
	}
	return errors.New(strings.Join(o.failures, "\n"))
}

func (o *owner) fail(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures = append(o.failures, text)
}

func (o *owner) Helper()          {}
func (o *owner) Name() string     { return "the shared broker" }
func (o *owner) Cleanup(f func()) { o.cleanups = append(o.cleanups, f) }
func (o *owner) Failed() bool     { return o.err() != nil }
func (o *owner) Fail()            { o.fail("it failed") }
func (o *owner) FailNow() {
	o.Fail()
	runtime.Goexit()
}
func (o *owner) Log(args ...any)                 { fmt.Fprintln(os.Stderr, args...) }
func (o *owner) Logf(format string, args ...any) { o.Log(fmt.Sprintf(format, args...)) }
func (o *owner) Error(args ...any)               { o.fail(fmt.Sprintln(args...)) }
func (o *owner) Errorf(format string, args ...any) {
	o.fail(fmt.Sprintf(format, args...))
}

func (o *owner) Fatal(args ...any) {
	o.Error(args...)
	runtime.Goexit()
}

func (o *owner) Fatalf(format string, args ...any) {
	o.Errorf(format, args...)
	runtime.Goexit()
}
