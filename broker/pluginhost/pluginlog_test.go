package pluginhost_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestThePluginsLogReachesOursUnderItsName(t *testing.T) {
	h := newHost(t)
	p := h.configured(h.spec("mock"), nil).Provider()
	_, _, err := execute(t.Context(), p, instance(t, p), `{"log": "working", "print": "printed\u0007", "log_raw": "to the real descriptor\n"}`)
	assert.NilError(t, err)
	for name, want := range map[string]map[string]any{
		"a line of the plugin's logger": {"@message": "working", "@level": "info"},
		"what it prints to os.Stdout":   {"@message": `printed\a`, "stream": "stdout", "@level": "info"},
		"what it prints to os.Stderr":   {"@message": `printed\a`, "stream": "stderr"},
		"what reaches its descriptor 2": {"@message": "to the real descriptor", "stream": "stderr"},
	} {
		t.Run(name, func(t *testing.T) {
			want["provider"] = "box"
			poll.WaitOn(t, h.log.has(want), poll.WithTimeout(2*time.Minute))
		})
	}
}

func TestALogOfWrongTypesDoesNoHarm(t *testing.T) {
	h := newHost(t)
	h.launch(h.spec("mock_badlog"))
	for name, want := range map[string]map[string]any{
		"a message that is a number is text":          {"@message": `{"@message":5}`, "stream": "stderr"},
		"a level that is an object is info":           {"@message": "a level that is no string", "@level": "info"},
		"a line end in a message does not end a line": {"@message": `line\n2026 [ERROR] forged`, "@level": "warn", "nested": `{"a":[1]}`},
		"half an object is text":                      {"@message": `{"@message":`},
	} {
		t.Run(name, func(t *testing.T) {
			poll.WaitOn(t, h.log.has(want), poll.WithTimeout(2*time.Minute))
			assert.Assert(t, !strings.Contains(h.log.String(), "bad key"))
		})
	}
}

func TestAFloodOfLinesIsCountedNotKept(t *testing.T) {
	h := newHost(t)
	process := h.configured(h.spec("mock"), nil)
	p := process.Provider()
	const lines = 50_000
	_, _, err := execute(t.Context(), p, instance(t, p), fmt.Sprintf(`{"log_lines": %d}`, lines))
	assert.NilError(t, err)
	process.Stop(t.Context())

	dropped := 0
	for _, entry := range h.log.entries(map[string]any{"@message": "the plugin logs too fast"}) {
		dropped += int(entry["lines_dropped"].(float64))
	}
	kept := len(h.log.entries(map[string]any{"@message": "mock log line"}))
	assert.Assert(t, dropped > 0)
	assert.Equal(t, kept+dropped, lines)
}

func TestALongLineIsCut(t *testing.T) {
	h := newHost(t)
	process := h.configured(h.spec("mock"), nil)
	p := process.Provider()
	_, _, err := execute(t.Context(), p, instance(t, p), `{"log_raw": "`+strings.Repeat("y", 200_000)+`\nnext\n"}`)
	assert.NilError(t, err)
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "next"}), poll.WithTimeout(2*time.Minute))
	cut := h.log.entries(map[string]any{"cut": true})
	assert.Equal(t, len(cut), 1)
	assert.Equal(t, len(cut[0]["@message"].(string)), 64<<10)
}

func TestSecretsAreBlankedWhateverThePluginDoesWithThem(t *testing.T) {
	h := newHost(t)
	const secret = "s3cr3t-of-the-operator"
	process := h.configured(h.spec("mock"), sdk.Settings{"secret": secret})
	p := process.Provider()
	id := instance(t, p)
	_, _, err := execute(t.Context(), p, id,
		`{"log": "key `+secret+` it is", "log_raw": "raw `+secret+`\n", "fail": "SB003", "message": "no entry with `+secret+`"}`)
	assertPublic(t, err, sdk.CodeConnectionFailed, `provider "box": no entry with (secret)`)
	_, _, err = execute(t.Context(), p, id, `{"crash": "before", "log_raw": "last `+secret+`\n"}`)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	<-process.Done()
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "key (secret) it is"}), poll.WithTimeout(2*time.Minute))
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "raw (secret)"}), poll.WithTimeout(2*time.Minute))
	assert.Assert(t, !strings.Contains(h.log.String(), secret))
	assert.Assert(t, !strings.Contains(fmt.Sprintf("%+v", process.Err()), secret))
	assert.Assert(t, is.Contains(stderrOfExit(t, process), "last (secret)"))
}

func TestValuesThatTheOperatorPassesOnAreHidden(t *testing.T) {
	t.Setenv("MOCK_KEY_OF_THE_CLOUD", "key-of-the-cloud")
	h := newHost(t)
	spec := h.spec("mock")
	spec.Env = []string{"MOCK_KEY_OF_THE_CLOUD"}
	p := h.configured(spec, sdk.Settings{"secret": "of-the-settings"}).Provider()
	id := instance(t, p)
	_, _, err := execute(t.Context(), p, id, `{"log": "with key-of-the-cloud and of-the-settings"}`)
	assert.NilError(t, err)
	poll.WaitOn(t, h.log.has(map[string]any{"@message": "with (secret) and (secret)", "provider": "box"}), poll.WithTimeout(2*time.Minute))
	_, _, err = execute(t.Context(), p, id, `{"fail": "SB003", "message": "refused key-of-the-cloud\u001b[31m"}`)
	assert.Error(t, err, "SB003: provider \"box\": refused (secret)\uFFFD[31m")
}
