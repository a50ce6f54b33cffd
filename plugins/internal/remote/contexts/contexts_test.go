package contexts_test

import (
	"context"
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type box struct{ gone bool }

type kernel struct {
	*contexts.Context
	cloud *cloud
}

func (k kernel) Restart(context.Context) error { k.Renew(); return nil }

func (k kernel) Delete(context.Context) error { return k.cloud.book.Drop(k) }

// cloud is a Service of one sandbox.
type cloud struct {
	box   *box
	saved []contexts.Saved
	loads int
	full  error
	book  *contexts.Book[*box, kernel]
}

func (c *cloud) Box(context.Context, string) (*box, error) { return c.box, nil }

var errLost = sdk.Errorf(sdk.CodeNotFound, "no such instance")

func (c *cloud) Lost(b *box) error {
	if b.gone {
		return errLost
	}
	return nil
}

func (c *cloud) Load(context.Context, *box) ([]contexts.Saved, error) {
	c.loads++
	return c.saved, nil
}

func (c *cloud) Save(_ string, all []contexts.Saved) error {
	if c.full == nil {
		c.saved = all
	}
	return c.full
}

func (c *cloud) Context(_ *box, saved contexts.Saved) kernel {
	return kernel{contexts.New(context.Background(), "i", saved), c}
}

// opened is a cloud with the context "a" of an earlier process.
func opened(t *testing.T) (*cloud, kernel) {
	t.Helper()
	c := &cloud{box: &box{}, saved: []contexts.Saved{{ID: "a", Language: sdk.Python}}}
	c.book = contexts.NewBook(c)
	a, err := c.book.Find(t.Context(), "i", "a", c.box)
	assert.NilError(t, err)
	return c, a
}

func TestWhatIsSavedIsLoadedOnceAndWrittenAtEachChange(t *testing.T) {
	c, a := opened(t)
	assert.NilError(t, c.book.Add(c.Context(c.box, contexts.Saved{ID: "b"})))
	assert.NilError(t, c.book.Change(a, func(s *contexts.Saved) { s.Fresh = true }))
	assert.DeepEqual(t, c.saved, []contexts.Saved{{ID: "a", Language: sdk.Python, Fresh: true}, {ID: "b"}})
	for range 2 { // one that is gone already is a success
		assert.NilError(t, c.book.DeleteContext(t.Context(), "i", "b"))
	}
	assert.Equal(t, len(c.saved), 1)
	assert.Equal(t, c.loads, 1)
	c.full = errors.New("the disk is full")
	assert.ErrorIs(t, c.book.Change(a, func(*contexts.Saved) {}), c.full)
	assert.ErrorIs(t, c.book.Add(c.Context(c.box, contexts.Saved{ID: "c"})), c.full)
	assert.ErrorIs(t, c.book.DeleteContext(t.Context(), "i", "a"), c.full)
	assert.NilError(t, a.Gone().Err(), "it is there, to be deleted again")
	c.full = nil
	all, err := c.book.ListContexts(t.Context(), "i")
	assert.NilError(t, err)
	assert.Equal(t, len(all), 1)
	assert.NilError(t, c.book.DeleteContext(t.Context(), "i", "a"))
	assert.Equal(t, len(c.saved), 0)
}

func TestOneAtATimeRunsCodeInAContext(t *testing.T) {
	c, a := opened(t)
	_, err := c.book.Take(t.Context(), c.box, a, sdk.R)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest)
	release, err := c.book.Take(t.Context(), c.box, a, sdk.Python)
	assert.NilError(t, err)
	all, err := c.book.ListContexts(t.Context(), "i")
	assert.NilError(t, err)
	assert.Assert(t, len(all) == 1 && all[0].Busy)
	impatient, leave := context.WithCancel(t.Context())
	leave()
	_, err = c.book.Take(impatient, c.box, a, "")
	assert.ErrorIs(t, err, context.Canceled)
	waited := make(chan error)
	go func() {
		_, err := c.book.Take(t.Context(), c.box, a, "")
		waited <- err
	}()
	assert.NilError(t, c.book.DeleteContext(t.Context(), "i", "a"))
	assert.Equal(t, sdk.CodeOf(<-waited), sdk.CodeNotFound)
	release()
	_, err = c.book.Take(t.Context(), c.box, a, "")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound, "it is gone, although its turn is free")
}

func TestARestartEndsTheKernelAndNotTheContext(t *testing.T) {
	c, a := opened(t)
	before := a.Kernel()
	assert.NilError(t, c.book.RestartContext(t.Context(), "i", "a"))
	assert.Assert(t, before.Err() != nil && a.Kernel().Err() == nil && a.Gone().Err() == nil)
}

func TestContextsEndWithTheirSandboxAndStayInTheRecord(t *testing.T) {
	c, a := opened(t)
	c.box.gone = true
	c.book.Forget("i")
	assert.Assert(t, a.Gone().Err() != nil && a.Kernel().Err() != nil)
	_, err := c.book.Take(t.Context(), c.box, a, "")
	assert.ErrorIs(t, err, errLost)
	assert.ErrorIs(t, c.book.DeleteContext(t.Context(), "i", "a"), errLost)
	assert.Equal(t, len(c.saved), 1, "a late look at the sandbox has not written anything")
	c.box = &box{} // it was there after all
	_, err = c.book.Find(t.Context(), "i", "a", c.box)
	assert.NilError(t, err)
}
