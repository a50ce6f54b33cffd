package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// A page is one long shell session: commands in blocks marked sh, and behind some
// of them what they print, as json, events or text.
func TestTheCommandsInThePagesWorkWhenPasted(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	b := harness.Start(t, harness.Options{
		Config: fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 4\n}\n", binaries.Runsc(t)) +
			"tenant \"demo\" { token_sha256 = [\"7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c\"] }\n",
	})
	pages, err := filepath.Glob("../docs/agents*.md")
	assert.NilError(t, err)
	for _, path := range append(pages, "../README.md") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			page, err := markdown.Read(path)
			assert.NilError(t, err)
			paste(t, b, page)
		})
	}
}

func paste(t *testing.T, b *harness.Broker, page markdown.Page) {
	env := append(os.Environ(), "SANDBOX_BROKER_URL="+b.URL)
	variables := "" // that a command set for those after it
	for i, block := range page.Blocks {
		if block.Language != "sh" {
			continue
		}
		t.Run(fmt.Sprintf("line %d", block.Line), func(t *testing.T) {
			command := strings.ReplaceAll(block.Code, "http://127.0.0.1:9385", b.URL)
			if strings.HasPrefix(command, "id=") {
				command += "declare -p id\n"
			}
			result := icmd.RunCmd(icmd.Command("bash", "-c", "set -euo pipefail\n"+variables+command), icmd.WithEnv(env...), icmd.Dir(b.Dir))
			assert.NilError(t, result.Error, result.Combined())
			if strings.HasPrefix(command, "id=") {
				variables = result.Stdout()
			}
			if i+1 == len(page.Blocks) {
				return
			}
			switch next := page.Blocks[i+1]; next.Language {
			case "text":
				assert.Equal(t, result.Stdout(), next.Code)
			case "events":
				agree(t, "", eventsIn(t, next.Code), eventsIn(t, result.Stdout()))
			case "json":
				var promised, got any
				assert.NilError(t, json.Unmarshal([]byte(next.Code), &promised))
				assert.NilError(t, json.Unmarshal([]byte(result.Stdout()), &got), result.Stdout())
				agree(t, "", promised, got)
			}
		})
	}
}

// eventsIn reads a stream of events, as JSON would be read. Output that is cut into
// pieces is put together: where it is cut is nobody's promise.
func eventsIn(t *testing.T, text string) any {
	t.Helper()
	all := map[string]any{}
	for n, r := 0, sse.NewReader(strings.NewReader(text+"\n\n"), 1<<20); ; {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		assert.NilError(t, err)
		var data map[string]any
		assert.NilError(t, json.Unmarshal(e.Data, &data))
		key := fmt.Sprintf("%d %s", n, e.Name)
		if before, ok := all[key].(map[string]any); ok && data["text"] != nil {
			data["text"] = fmt.Sprint(before["text"], data["text"])
		} else {
			n++
			key = fmt.Sprintf("%d %s", n, e.Name)
		}
		all[key] = data
	}
}

// vary names the fields that differ each time.
var vary = []string{
	"execution_id", "instance_id", "id", "request_id", "created_at", "modified_at", "started_at", "ended_at", "last_used_at", "expires_at", "execution_time", "memory_used_mb",
	"measured_at", "cpu_time", "memory_mb", "disk_mb", "processes",
}

// agree compares an answer with the one in a page.
func agree(t *testing.T, path string, promised, got any) {
	t.Helper()
	switch want := promised.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		assert.Assert(t, ok, "%s: %v", path, got)
		assert.DeepEqual(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)))
		for name := range want {
			if slices.Contains(vary, name) {
				assert.Check(t, is.Equal(fmt.Sprintf("%T", want[name]), fmt.Sprintf("%T", have[name])), path+"."+name)
				continue
			}
			agree(t, path+"."+name, want[name], have[name])
		}
	case []any:
		have, ok := got.([]any)
		assert.Assert(t, ok && len(have) == len(want), "%s: %v", path, got)
		for i := range want {
			agree(t, fmt.Sprintf("%s[%d]", path, i), want[i], have[i])
		}
	default:
		assert.Check(t, is.DeepEqual(promised, got), path)
	}
}

// Whatever a page shows of a configuration is accepted, by the plugin too.
func TestTheConfigurationsInThePagesAreAccepted(t *testing.T) {
	t.Parallel()
	pages, err := markdown.Pages("..")
	assert.NilError(t, err)
	count := 0
	for _, path := range pages {
		page, err := markdown.Read(path)
		assert.NilError(t, err)
		for _, block := range page.Blocks {
			if block.Language != "hcl" {
				continue
			}
			count++
			t.Run(fmt.Sprintf("%s line %d", filepath.Base(path), block.Line), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "sandbox.hcl")
				text := block.Configuration(filepath.Join(binaries.Dir(t), "plugins"))
				assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
				result := icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "check", file)
				assert.NilError(t, result.Error, result.Combined())
			})
		}
	}
	assert.Check(t, count > 0, "there is something to check")
}
