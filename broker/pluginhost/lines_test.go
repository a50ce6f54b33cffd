package pluginhost

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
)

func TestAFloodOfOutputIsTakenSlowlyUntilTheProcessIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := make(chan struct{})
		l := &lines{ended: dead, emit: func([]byte, bool) {}}
		piece := bytes.Repeat([]byte("x"), 1<<20)
		write := func(n int) time.Duration {
			began := time.Now()
			for range n {
				_, err := l.Write(piece)
				assert.NilError(t, err)
			}
			return time.Since(began)
		}
		assert.Equal(t, write(16), time.Duration(0), "a burst is taken at once")
		took := write(160)
		assert.Assert(t, took > 8*time.Second && took < 12*time.Second, "%v", took)
		close(dead)
		assert.Equal(t, write(100), time.Duration(0), "the last words of the dead are not waited for")
	})
}

func TestAPluginsShareOfTheLogIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		line  string
		lines int
		most  int
	}{
		"in lines": {"short", 2000, 600 << 6},
		"in bytes": {strings.Repeat("x", 60<<10), 2000, 2 * maxBytesPerSecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				log := newPluginLog(hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true}), nil)
				for range test.lines {
					if log.admit(time.Now().Unix(), len(test.line)) {
						log.forward("stderr", []byte(test.line), false)
					}
				}
				log.finish()
				assert.Assert(t, out.Len() <= test.most, "%d bytes", out.Len())
				assert.Assert(t, strings.Contains(out.String(), "the plugin logs too fast"))
			})
		})
	}
}
