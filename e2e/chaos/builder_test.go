package chaos_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// admin stands for the administrators, who are no tenant.
const admin = "admin"

const (
	// templatesOf is how many templates a keeping tenant may have.
	templatesOf = 2
	// betweenTemplates is how long the administrator rests.
	betweenTemplates = 300 * time.Millisecond
	pathAdmin        = "/api/admin/sandbox"
	pathTemplates    = pathAdmin + "/templates"
)

// templateNames are those of the templates that a tenant may have for itself.
func templateNames(tenant string) (names []string) {
	for i := range templatesOf {
		names = append(names, fmt.Sprintf("t-%s-%d", tenant, i))
	}
	return names
}

// builder is the administrator, who adds, changes and removes templates of the keeping
// tenants.
type builder struct {
	*client
	// put are the templates that there are, or may be.
	put []string
}

func newBuilder(c *client) *builder {
	c.tenant = admin
	return &builder{client: c}
}

func (b *builder) act(ctx context.Context) {
	b.count++
	tenant := keeping[b.random.IntN(len(keeping))]
	name := templateNames(tenant)[b.random.IntN(templatesOf)]
	switch n := b.random.IntN(10); {
	case n < 5:
		body := map[string]any{"from": fmt.Sprintf("registry.test/image-%d:%d", b.number, b.count), "tenants": []string{tenant}}
		if !slices.Contains(b.put, name) {
			b.put = append(b.put, name)
		}
		b.one(event{Operation: opPutTemplate, Kept: name}, http.MethodPut, pathTemplates+"/"+name, body)
	case n < 6:
		b.one(event{Operation: opBuild, Kept: name}, http.MethodPost, pathTemplates+"/"+name+"/build", nil)
	case n < 8:
		b.remove(ctx, name)
	}
	pause(ctx, betweenTemplates)
}

// remove removes a template, and asks until it is gone.
func (b *builder) remove(ctx context.Context, name string) {
	e := event{Operation: opRemoveTemplate, Kept: name}
	done := b.again(ctx, e, true, func(e event) event { return b.one(e, http.MethodDelete, pathTemplates+"/"+name, nil) })
	if done.acknowledged() || done.Status == http.StatusNotFound {
		b.put = slices.DeleteFunc(b.put, func(n string) bool { return n == name })
	}
}

func (b *builder) has() int { return len(b.put) }

func (b *builder) destroy(ctx context.Context) { b.remove(ctx, b.put[0]) }
