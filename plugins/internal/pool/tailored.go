package pool

import (
	"context"
	"strconv"
	"strings"
)

// tailoredMark is in the names under which sandboxes are made that suit one request alone,
// and in no template's.
const tailoredMark = "\x00"

// tailor notes how to make a sandbox for one request, and returns the template that it
// counts as. It is called with the lock held.
func (p *Pool[S]) tailor(template string, make func(ctx context.Context) (S, error)) string {
	p.tailorings++
	name := template + tailoredMark + strconv.Itoa(p.tailorings)
	p.tailored[name] = make
	return name
}

// isTailored reports whether a template is that of one request.
func isTailored(template string) bool { return strings.Contains(template, tailoredMark) }

// maker returns what makes a sandbox of a template. It is called with the lock held.
func (p *Pool[S]) maker(template string) func(ctx context.Context) (S, error) {
	if make := p.tailored[template]; make != nil {
		return make
	}
	return func(ctx context.Context) (S, error) { return p.o.Make(ctx, template) }
}

// failedTailored tells who waits for a tailored sandbox that there is none: what is wrong
// with it may be wrong with that request alone. It is called with the lock held.
func (p *Pool[S]) failedTailored(template string, err error) {
	if w := p.waiters.pop(template); w != nil {
		w.failed <- err
	}
}
