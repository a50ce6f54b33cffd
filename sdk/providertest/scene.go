package providertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// scene is what a case plays in: a provider, helpers, and what went wrong.
//
// A method that finds something wrong ends the case at once; note alone does not.
type scene struct {
	*session // the shared process; nil in fresh cases
	ctx      context.Context
	suite    *suite
	language sdk.Language
	samples  Samples
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
func (c *scene) note(format string, args ...any) {
	c.failures = append(c.failures, fmt.Sprintf(format, args...))
}

// fail ends the case as failed.
func (c *scene) fail(format string, args ...any) {
	c.note(format, args...)
	panic(failedNow{})
}

// skip ends the case as skipped.
func (c *scene) skip(format string, args ...any) { panic(skippedNow(fmt.Sprintf(format, args...))) }

// must ends the case unless err is nil; doing says what was tried.
func (c *scene) must(err error, doing string, args ...any) {
	if err != nil {
		c.fail("%s: %v", fmt.Sprintf(doing, args...), err)
	}
}

// check ends the case unless ok.
func (c *scene) check(ok bool, format string, args ...any) {
	if !ok {
		c.fail(format, args...)
	}
}

// refused ends the case unless err has one of the codes.
func (c *scene) refused(err error, doing string, codes ...sdk.Code) { _ = c.refusal(err, doing, codes) }

func (c *scene) refusal(err error, doing string, codes []sdk.Code) *sdk.Error {
	if err == nil {
		c.fail("%s succeeded; it must be refused with %s", doing, oneOf(codes))
	}
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || !slices.Contains(codes, e.Code) {
		c.fail("%s gave %q; it must be refused with %s", doing, err, oneOf(codes))
	}
	return e
}

// refusedField is refused, for a code with a field.
func (c *scene) refusedField(err error, doing string, code sdk.Code, field string) {
	if e := c.refusal(err, doing, []sdk.Code{code}); e.Field != field {
		c.fail("%s was refused, but the field is %q and not %q: %v", doing, e.Field, field, err)
	}
}

func oneOf(codes []sdk.Code) string {
	words := make([]string, len(codes))
	for i, code := range codes {
		words[i] = string(code)
	}
	return strings.Join(words, " or ")
}

// equal ends the case unless the two are the same.
func equal[T any](c *scene, got, want T, what string, args ...any) {
	if !reflect.DeepEqual(got, want) {
		c.fail("%s is %s; it must be %s", fmt.Sprintf(what, args...), shown(got), shown(want))
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
func (c *scene) later(cleanup func()) { c.cleanups = append(c.cleanups, cleanup) }

func (c *scene) cleanUp() {
	for _, cleanup := range slices.Backward(c.cleanups) {
		cleanup()
	}
}

// within gives a context for one call, with a limit before patience.
func (c *scene) within(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, c.suite.within(limit))
}

// eventually ends the case unless something becomes true in time.
func (c *scene) eventually(what string, try func(context.Context) error) {
	if err := c.suite.eventually(c.ctx, settleTimeout, try); err != nil {
		c.fail("%s: %v", what, err)
	}
}

// call makes a call and ends the case if it does not return in time.
func (c *scene) call(what string, call func(ctx context.Context) error) error {
	ctx, cancel := c.within(callTimeout)
	defer cancel()
	err := call(ctx)
	if ctx.Err() != nil && c.ctx.Err() == nil {
		c.fail("%s did not return within %v", what, c.suite.within(callTimeout))
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

// newSession starts a further process and stops it at the end of the case. The
// same state name and broker ID are those of a provider that is started again.
func (c *scene) newSession(brokerID, state string) *session {
	s, err := c.suite.start(c.ctx, brokerID, state)
	c.must(err, "start another process of the provider")
	c.later(func() { s.stop(c.ctx) })
	return s
}

// launched starts a process that is not configured yet.
func (c *scene) launched() *session {
	s, err := c.suite.launch(c.ctx, newBrokerID(), newBrokerID())
	c.must(err, "start the provider")
	c.later(func() { s.stop(c.ctx) })
	return s
}
