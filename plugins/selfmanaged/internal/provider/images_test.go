package provider

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// copied makes an instance whose sandbox is a copy.
func copied(t *testing.T, p testProvider) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("runsc makes copies for root only")
	}
	id := create(t, p, templatePython)
	copies := 0
	for _, line := range processesNaming(id) {
		if strings.Contains(line, " restore ") {
			copies++
		}
	}
	assert.Check(t, is.Equal(copies, 1))
	return id
}

func TestCopiesDifferWhereSandboxesMust(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, map[string]any{"images": imagesAlways})
	programs := map[string]string{
		"random numbers": "import random; print(random.random())",
		"the kernel's":   "import os; print(os.urandom(8))",
		"identifiers":    "import uuid; print(uuid.uuid4())",
		"OpenSSL's":      "import ssl; print(ssl.RAND_bytes(8))",
		"names of files": "import tempfile; print(tempfile.mkdtemp())",
	}
	answers := map[string]map[string]bool{}
	const copies = 3
	for range copies {
		id := copied(t, p)
		for name, code := range programs {
			got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: code})
			assert.NilError(t, err)
			assert.Equal(t, got.Status, sdk.StatusSucceeded, "%s", got.stderr)
			if answers[name] == nil {
				answers[name] = map[string]bool{}
			}
			answers[name][got.stdout] = true
		}
	}
	for name := range programs {
		assert.Check(t, is.Len(answers[name], copies), name)
	}
}

func TestACopyKnowsTheTime(t *testing.T) {
	p := newProvider(t, map[string]any{"images": imagesAlways})
	first := copied(t, p)
	for _, id := range []string{first, copied(t, p)} {
		before := time.Now()
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "import time; print(time.time_ns(), end='')"})
		assert.NilError(t, err)
		ns, err := strconv.ParseInt(got.stdout, 10, 64)
		assert.NilError(t, err)
		now := time.Unix(0, ns)
		assert.Check(t, now.After(before.Add(-time.Second)) && now.Before(time.Now().Add(time.Second)), "%s, not %s", now, before)
	}
}

func TestCodeDoesNotSeeWhatTheGuestWasTold(t *testing.T) {
	p := newProvider(t, map[string]any{"images": imagesAlways})
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: copied(t, p), Language: sdk.Python, Code: "import os; print(os.environ, open('/proc/1/environ').read() if os.access('/proc/1/environ', os.R_OK) else '')"})
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(got.stdout, "SANDBOX"), got.stdout)
}

func TestAnImageThatVanishedIsMadeAgain(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 0, "images": imagesAlways})
	copied(t, p)
	images, err := filepath.Glob(filepath.Join(p.dir, "images", "*"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(images, 1))
	for _, dir := range images {
		assert.NilError(t, os.RemoveAll(dir))
	}
	for range 2 {
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Python, Code: "print(1)"})
		assert.NilError(t, err)
		assert.Equal(t, got.stdout, "1\n")
	}
	image, err := p.sandboxes.images.take(t.Context(), templatePython)
	assert.NilError(t, err)
	p.sandboxes.images.release(image)
	assert.Check(t, image.usable())
}

func TestAnImagePaysWhenManyAreMade(t *testing.T) {
	const interval = 4 * time.Second // 15 a minute
	var images images
	now := time.Now()
	wanted := func(template string, after time.Duration) bool {
		now = now.Add(after)
		return images.demanded(template, now)
	}
	for range imageDemand - 1 {
		assert.Check(t, !wanted(templatePython, interval))
	}
	assert.Check(t, !wanted(templateBash, 0), "each template has a count of its own")
	assert.Check(t, wanted(templatePython, interval))
	assert.Check(t, wanted(templatePython, interval))
	assert.Check(t, !wanted(templatePython, imageDemandWindow), "those of before do not count any more")
	for range imageDemand - 2 {
		assert.Check(t, !wanted(templatePython, interval))
	}
	assert.Check(t, wanted(templatePython, interval))
}

func TestSandboxesAreCopiesWhileManyAreMade(t *testing.T) {
	tier.Full(t)
	if os.Geteuid() != 0 {
		t.Skip("runsc makes copies for root only")
	}
	p := newProvider(t, map[string]any{"pool_size": 0, "images": imagesOnDemand})
	make := func() (madeFrom string) {
		id := create(t, p, templatePython)
		defer func() { assert.NilError(t, p.Destroy(t.Context(), id)) }()
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(1)"})
		assert.NilError(t, err)
		assert.Equal(t, got.stdout, "1\n")
		for _, line := range processesNaming(id) {
			if at := strings.Index(line, "--image-path="); at >= 0 {
				return strings.Fields(line[at:])[0]
			}
		}
		return ""
	}
	ready := func() {
		p.sandboxes.images.mu.Lock()
		latest := p.sandboxes.images.latest[templatePython]
		p.sandboxes.images.mu.Unlock()
		<-latest.ready
	}
	for range imageDemand {
		assert.Equal(t, make(), "")
	}
	ready()
	first := make()
	assert.Check(t, first != "")

	// An image that is old serves until there is another.
	p.sandboxes.images.mu.Lock()
	p.sandboxes.images.latest[templatePython].began = time.Now().Add(-imageMaxAge - time.Second)
	p.sandboxes.images.mu.Unlock()
	make()
	ready()
	second := make()
	assert.Check(t, second != "" && second != first)
	images, err := filepath.Glob(filepath.Join(p.dir, "images", "*"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(images, 1))

	// One that is being made when the provider ends holds nobody up and leaves nothing.
	p.sandboxes.images.mu.Lock()
	p.sandboxes.images.latest[templatePython].began = time.Now().Add(-imageMaxAge - time.Second)
	p.sandboxes.images.mu.Unlock()
	make()
}
