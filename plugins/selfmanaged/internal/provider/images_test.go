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

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// copied makes an instance whose sandbox is a copy.
func copied(t *testing.T, p testProvider) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("runsc makes copies for root only")
	}
	id := create(t, p, templatePython)
	image, err := p.image(t.Context(), templatePython)
	assert.NilError(t, err)
	assert.Check(t, image != nil, "there is no image")
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
	p := newProvider(t, map[string]any{"images": true})
	run := func(code string) map[string]bool {
		answers := map[string]bool{}
		for range 3 {
			got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: copied(t, p), Language: sdk.Python, Code: code})
			assert.NilError(t, err)
			assert.Equal(t, got.Status, sdk.StatusSucceeded, "%s", got.stderr)
			answers[got.stdout] = true
		}
		return answers
	}
	for name, code := range map[string]string{
		"random numbers": "import random; print(random.random())",
		"the kernel's":   "import os; print(os.urandom(8))",
		"identifiers":    "import uuid; print(uuid.uuid4())",
		"names of files": "import tempfile; print(tempfile.mkdtemp())",
	} {
		t.Run(name, func(t *testing.T) { assert.Check(t, is.Len(run(code), 3)) })
	}
}

func TestACopyKnowsTheTime(t *testing.T) {
	p := newProvider(t, map[string]any{"images": true})
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
	p := newProvider(t, map[string]any{"images": true})
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: copied(t, p), Language: sdk.Python, Code: "import os; print(os.environ, open('/proc/1/environ').read() if os.access('/proc/1/environ', os.R_OK) else '')"})
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(got.stdout, "SANDBOX"), got.stdout)
}

func TestAnImageThatVanishedIsMadeAgain(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 0, "images": true})
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
	image, err := p.image(t.Context(), templatePython)
	assert.NilError(t, err)
	assert.Check(t, image != nil && !image.Gone())
}
