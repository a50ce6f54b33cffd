// Package transcript compares what commands printed with what a page says that they print.
// Who runs the commands, and where, is the business of the tests that use it.
package transcript

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// vary names the fields that differ each time.
var vary = []string{
	"execution_id", "instance_id", "id", "request_id", "created_at", "modified_at", "started_at", "ended_at", "last_used_at", "expires_at", "execution_time", "memory_used_mb",
	"measured_at", "cpu_time", "memory_mb", "disk_mb", "processes", "token", "token_id", "revision", "time_used_ms", "memory_used_kb", "sandbox_url",
}

// Check compares what commands printed with the block behind them. A block of no language
// that shows output promises nothing.
func Check(t *testing.T, promised markdown.Block, printed string) {
	t.Helper()
	switch promised.Language {
	case "text":
		assert.Check(t, matches(promised.Code, printed), "the page says:\n%s\nand it is:\n%s", promised.Code, printed)
	case "events":
		agree(t, "", eventsIn(t, promised.Code), eventsIn(t, printed))
	case "json":
		var want, got any
		assert.NilError(t, json.Unmarshal([]byte(promised.Code), &want))
		assert.NilError(t, json.Unmarshal([]byte(printed), &got), printed)
		agree(t, "", want, got)
	}
}

// Shows reports whether a block of this language shows output.
func Shows(language string) bool {
	return language == "text" || language == "events" || language == "json"
}

// matches compares text, in which … stands for anything within its line.
func matches(promised, printed string) bool {
	parts := strings.Split(promised, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`\A` + strings.Join(parts, `[^\n]*`) + `\z`).MatchString(printed)
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
