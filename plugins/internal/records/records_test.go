package records_test

import (
	"os"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/records"
)

type pet struct{ Name string }

func open(t *testing.T, dir string, abandoned ...string) *records.Store[pet] {
	t.Helper()
	s, err := records.Open[pet]("pets", dir, abandoned)
	assert.NilError(t, err)
	return s
}

func TestRecordsOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	before := open(t, dir)
	assert.NilError(t, before.Put("a", pet{"Ada"}))
	assert.NilError(t, before.Put("b", pet{"Bo"}))
	assert.NilError(t, before.Put("c", pet{"Cy"}))
	assert.NilError(t, before.Remove("b"))
	assert.NilError(t, before.Remove("b"))
	assert.NilError(t, before.Change("c", func(p pet) pet { return pet{p.Name + "!"} }))
	assert.NilError(t, before.Change("gone", func(pet) pet { panic("there is none") }))
	assert.DeepEqual(t, open(t, dir).All(), map[string]pet{"a": {"Ada"}, "c": {"Cy!"}})
}

func TestRecordsOfProcessesThatAreNoMoreAreTakenOver(t *testing.T) {
	abandoned, dir := t.TempDir(), t.TempDir()
	assert.NilError(t, open(t, abandoned).Put("a", pet{"Ada"}))
	assert.NilError(t, open(t, abandoned).Put("both", pet{"old"}))
	assert.NilError(t, open(t, dir).Put("both", pet{"own"}))
	open(t, dir, abandoned, t.TempDir())
	assert.NilError(t, os.RemoveAll(abandoned))
	after := open(t, dir)
	got, ok := after.Get("a")
	assert.Assert(t, ok)
	assert.Equal(t, got, pet{"Ada"})
	got, _ = after.Get("both")
	assert.Equal(t, got, pet{"own"}, "its own is the newer one")
}

func TestWhatIsNoRecordIsLeftAlone(t *testing.T) {
	dir := fs.NewDir(t, "state", fs.WithDir("pets", fs.WithFile("a.json", `{"Na`), fs.WithFile("b.json.new", "{}"), fs.WithFile("c", "{}")))
	assert.Equal(t, len(open(t, dir.Path()).All()), 0)
}

func TestANameIsNoPath(t *testing.T) {
	s := open(t, t.TempDir())
	for _, name := range []string{"", ".", "..", "../a", "a/b", "/a", ".a"} {
		assert.ErrorContains(t, s.Put(name, pet{}), "cannot be the name")
	}
}
