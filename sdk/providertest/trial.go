package providertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The limits of cases, before patience.
const (
	// callTimeout is the liveness bound of one call: how long anything may take
	// that is not measured.
	callTimeout = 30 * time.Second
	// obeyTimeout is how long an execution may go on after its context has
	// ended: the contract's own limit.
	obeyTimeout = time.Second
	// settleTimeout is how long something may take to become true that no call
	// waits for.
	settleTimeout = 30 * time.Second
)

// trial is a case while it runs: its time, what is to be done at its end, and what went
// wrong.
//
// A method that finds something wrong ends the case at once; note alone does not.
type trial struct {
	ctx      context.Context
	suite    *suite
	cleanups []func()
	// destroyed are the instances that the case has destroyed itself.
	destroyed map[string]bool
	failures  []string
}

// failedNow and skippedNow end a case's function from within.
type (
	failedNow  struct{}
	skippedNow string
)

// note records a failure and goes on.
func (t *trial) note(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

// fail ends the case as failed.
func (t *trial) fail(format string, args ...any) {
	t.note(format, args...)
	panic(failedNow{})
}

// skip ends the case as skipped.
func (t *trial) skip(format string, args ...any) { panic(skippedNow(fmt.Sprintf(format, args...))) }

// must ends the case unless err is nil; doing says what was tried.
func (t *trial) must(err error, doing string, args ...any) {
	if err != nil {
		t.fail("%s: %v", fmt.Sprintf(doing, args...), err)
	}
}

// check ends the case unless ok.
func (t *trial) check(ok bool, format string, args ...any) {
	if !ok {
		t.fail(format, args...)
	}
}

// refused ends the case unless err has one of the codes.
func (t *trial) refused(err error, doing string, codes ...sdk.Code) { _ = t.refusal(err, doing, codes) }

func (t *trial) refusal(err error, doing string, codes []sdk.Code) *sdk.Error {
	if err == nil {
		t.fail("%s succeeded; it must be refused with %s", doing, oneOf(codes))
	}
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || !slices.Contains(codes, e.Code) {
		t.fail("%s gave %q; it must be refused with %s", doing, err, oneOf(codes))
	}
	return e
}

// refusedField is refused, for a code with a field.
func (t *trial) refusedField(err error, doing string, code sdk.Code, field string) {
	if e := t.refusal(err, doing, []sdk.Code{code}); e.Field != field {
		t.fail("%s was refused, but the field is %q and not %q: %v", doing, e.Field, field, err)
	}
}

func oneOf(codes []sdk.Code) string {
	words := make([]string, len(codes))
	for i, code := range codes {
		words[i] = string(code)
	}
	return strings.Join(words, " or ")
}

// judge can end the case as failed: the trial, and all that it is a part of.
type judge interface {
	fail(format string, args ...any)
}

// equal ends the case unless the two are the same.
func equal[T any](t judge, got, want T, what string, args ...any) {
	if !reflect.DeepEqual(got, want) {
		t.fail("%s is %s; it must be %s", fmt.Sprintf(what, args...), shown(got), shown(want))
	}
}

// shown is a value as a failure shows it.
func shown(value any) string {
	text := fmt.Sprintf("%+v", value)
	switch v := value.(type) {
	case string:
		text = fmt.Sprintf("%q", v)
	case []byte:
		text = fmt.Sprintf("%q", v)
	}
	const most = 400
	if len(text) > most {
		return fmt.Sprintf("%s… (%d bytes)", text[:most], len(text))
	}
	return text
}

// later runs at the end of the case, last come first.
func (t *trial) later(cleanup func()) { t.cleanups = append(t.cleanups, cleanup) }

func (t *trial) cleanUp() {
	for _, cleanup := range slices.Backward(t.cleanups) {
		cleanup()
	}
}

// within gives a context for one call, with a limit before patience.
func (t *trial) within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, t.suite.within(limit))
}

// eventually ends the case unless something becomes true in time.
func (t *trial) eventually(what string, try func(context.Context) error) {
	if err := t.suite.eventually(t.ctx, settleTimeout, try); err != nil {
		t.fail("%s: %v", what, err)
	}
}

// pass lets time pass.
func (t *trial) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		t.fail("the case did not end in time")
	}
}

// call makes a call and ends the case if it does not return in time.
func (t *trial) call(what string, call func(ctx context.Context) error) error {
	ctx, cancel := t.within(callTimeout)
	defer cancel()
	err := call(ctx)
	if ctx.Err() != nil && t.ctx.Err() == nil {
		t.fail("%s did not return within %v", what, t.suite.within(callTimeout))
	}
	if ctx.Err() == nil && errors.Is(err, context.Canceled) {
		// A plugin that dies has its connection closed, which looks the same.
		err = fmt.Errorf("the plugin has ended, or has broken off a call that nobody gave up: %w", err)
	}
	return err
}

// together runs functions side by side and returns their errors, in their order.
// The functions must not end the case.
func together(functions ...func() error) []error {
	errs := make([]error, len(functions))
	done := make(chan struct{})
	for i, f := range functions {
		go func() {
			defer func() { done <- struct{}{} }()
			errs[i] = f()
		}()
	}
	for range functions {
		<-done
	}
	return errs
}

// repeated is together with n times the same function.
func repeated(n int, f func(i int) error) []error {
	functions := make([]func() error, n)
	for i := range functions {
		functions[i] = func() error { return f(i) }
	}
	return together(functions...)
}

// perform calls a case's function and turns the way it ended into words.
func (t *trial) perform(run func()) (status Status, reason string) {
	defer func() {
		switch r := recover().(type) {
		case nil, failedNow:
		case skippedNow:
			status, reason = Skipped, string(r)
		default:
			t.note("the suite panicked, which is a bug in it: %v\n%s", r, debug.Stack())
		}
	}()
	run()
	return Passed, ""
}
