package readablelog_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/readablelog"
)

func TestLengthsOfTimeHaveTheirUnit(t *testing.T) {
	for name, write := range map[string]func(l hclog.Logger, args ...any){
		"info":        func(l hclog.Logger, args ...any) { l.Info("line", args...) },
		"error":       func(l hclog.Logger, args ...any) { l.Error("line", args...) },
		"warn":        func(l hclog.Logger, args ...any) { l.Warn("line", args...) },
		"debug":       func(l hclog.Logger, args ...any) { l.Debug("line", args...) },
		"trace":       func(l hclog.Logger, args ...any) { l.Trace("line", args...) },
		"a level":     func(l hclog.Logger, args ...any) { l.Log(hclog.Info, "line", args...) },
		"with":        func(l hclog.Logger, args ...any) { l.With(args...).Info("line") },
		"named":       func(l hclog.Logger, args ...any) { l.Named("a").Info("line", args...) },
		"named again": func(l hclog.Logger, args ...any) { l.ResetNamed("a").Info("line", args...) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			args := []any{"took", 1500 * time.Millisecond, "count", 7}
			write(readablelog.New(hclog.New(&hclog.LoggerOptions{Output: &out, JSONFormat: true, Level: hclog.Trace})), args...)
			var line map[string]any
			assert.NilError(t, json.Unmarshal(out.Bytes(), &line))
			assert.Equal(t, line["took"], "1.5s")
			assert.Equal(t, line["count"], 7.0)
			assert.Equal(t, args[1], 1500*time.Millisecond, "the caller's own stay as they are")
		})
	}
}
