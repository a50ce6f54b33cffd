package provider

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// works makes an instance and runs something in it.
func works(t *testing.T, p testProvider) string {
	t.Helper()
	id := create(t, p, templatePython)
	o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "import os; print('fine', os.getuid())"})
	assert.NilError(t, err)
	assert.Equal(t, o.stdout, "fine 1000\n")
	return id
}

// removeAll removes a directory in which the provider may be making sandboxes.
func removeAll(t *testing.T, path string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if err := os.RemoveAll(path); err != nil {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(time.Millisecond))
}

// What is the provider's own and was removed by somebody comes back with the next
// sandbox.
func TestWhatVanishesComesBack(t *testing.T) {
	tier.Full(t)
	remove := func(parts ...string) func(*testing.T, testProvider) {
		return func(t *testing.T, p testProvider) {
			found, err := filepath.Glob(filepath.Join(append([]string{p.dir}, parts...)...))
			assert.NilError(t, err)
			assert.Assert(t, len(found) > 0, "there is no such thing")
			for _, path := range found {
				removeAll(t, path)
			}
		}
	}
	guest := filepath.Join(t.TempDir(), "sandbox-guest")
	copyProgram(t, filepath.Join(binaries.Dir(t), "sandbox-guest"), guest)
	for name, test := range map[string]struct {
		given  map[string]any
		vanish func(*testing.T, testProvider)
	}{
		"the state directory":             {nil, remove()},
		"the bundles":                     {nil, remove("bundles")},
		"what runsc keeps":                {nil, remove("runsc")},
		"the root file system":            {nil, remove("rootfs")},
		"the guest's copy":                {nil, remove("rootfs", "*", "opt", "sandbox", "*")},
		"a file of the root file system":  {nil, remove("rootfs", "*", "etc", "passwd")},
		"a directory of it":               {nil, remove("rootfs", "*", "workspace")},
		"where the programs are mounted":  {nil, remove("rootfs", "*", "usr")},
		"the images":                      {map[string]any{"images": imagesAlways}, remove("images")},
		"what images need":                {map[string]any{"images": imagesAlways}, remove("rootfs", "*")},
		"all, with images":                {map[string]any{"images": imagesAlways}, remove()},
		"the control groups":              {map[string]any{"cgroups": "required"}, removeGroups},
		"the guest's program, and a copy": {map[string]any{"guest": guest}, func(t *testing.T, p testProvider) { assert.NilError(t, os.Remove(guest)); remove()(t, p) }},
	} {
		t.Run(name, func(t *testing.T) {
			if test.given["cgroups"] != nil && os.Geteuid() != 0 {
				t.Skip("cgroups need root")
			}
			p := newProvider(t, test.given)
			assert.NilError(t, p.Destroy(t.Context(), works(t, p)))
			test.vanish(t, p)
			id := works(t, p)
			if test.given["images"] != nil && os.Geteuid() == 0 {
				image, err := p.sandboxes.images.take(t.Context(), templatePython)
				assert.NilError(t, err)
				p.sandboxes.images.release(image)
				assert.Assert(t, image.usable(), "later ones are copies again")
			}
			assert.NilError(t, p.Destroy(t.Context(), id))
			works(t, p)
		})
	}
}

// removeGroups removes the provider's tree of control groups, which must be empty.
func removeGroups(t *testing.T, p testProvider) {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/*/sandbox-broker/", "/sys/fs/cgroup/sandbox-broker/"} {
		found, err := filepath.Glob(pattern + p.brokerID + "*")
		assert.NilError(t, err)
		for _, dir := range found {
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
					return poll.Continue("%v", err)
				}
				return poll.Success()
			}, poll.WithTimeout(2*time.Minute))
		}
	}
}

// Sandboxes that are ready go on with what they have.
func TestAPoolOutlivesItsStateDirectory(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, map[string]any{"pool_size": 2})
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if p.pool.Stats().Ready[templatePython] == 0 {
			return poll.Continue("no sandbox is ready")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	used := works(t, p)
	removeAll(t, p.dir)
	for range 4 {
		works(t, p)
	}
	o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: used, Language: sdk.Bash, Code: "python3 -c 'print(1)'; ls /usr | head -1"})
	assert.NilError(t, err)
	assert.Equal(t, o.Status, sdk.StatusSucceeded, o.stderr)
}

// newProvider looks for what is left, control groups among it.
func TestASandboxThatCannotBeMadeLeavesNothing(t *testing.T) {
	p := newProvider(t, nil)
	works(t, p)
	removeAll(t, p.dir)
	assert.NilError(t, os.WriteFile(p.dir, nil, 0o600)) // where directories are to be made
	_, err := p.Create(t.Context(), sdk.CreateRequest{IdempotencyKey: "in vain", Template: templatePython})
	assert.ErrorContains(t, err, "no sandbox can be made")
	assert.NilError(t, os.Remove(p.dir))
	assert.NilError(t, os.Mkdir(p.dir, 0o700))
}

func TestTheGuestOfContainersComesBack(t *testing.T) {
	p := onDocker(dockerengine.Find(t))(t, nil)
	works(t, p)
	removeAll(t, p.dir)
	works(t, p)
}
