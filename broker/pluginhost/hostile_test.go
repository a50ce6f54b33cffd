package pluginhost

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
)

func FuzzCheckHandshake(f *testing.F) {
	for _, seed := range []string{"", "|", "1|1|unix|/run/x|grpc|", "1|7|unix|/x|grpc|", "1|1|tcp|x|grpc", "x|||||", "1|1|unix|/x", "1|1|unix|/x|grpc|MIIB|true", "1|1|unix|/x|grpc||maybe"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		greeting, refusal := readHandshake(line)
		if refusal != nil {
			assert.Assert(t, refusal.Public.Message != "")
			assert.Assert(t, len(refusal.Public.Message) < 500)
			return
		}
		// Nothing that go-plugin would do more with than connect.
		assert.Equal(t, len(strings.Split(strings.TrimSpace(greeting), "|")), 5)
	})
}

// FuzzPluginLog writes anything in pieces of any size: no panic, and no line of
// the log that does not come from hclog itself.
func FuzzPluginLog(f *testing.F) {
	for _, seed := range []string{"text\n", `{"@message":5}` + "\n", `{"@message":"m","@level":"warn","k":[1]}` + "\n", "{\n", "\x00\xff\n\n\r\n", `{"@message":"a\nb"}`} {
		f.Add(seed, 3)
	}
	f.Fuzz(func(t *testing.T, text string, piece int) {
		var out strings.Builder
		log := newPluginLog(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Trace, TimeFormat: "TIME", DisableTime: true}), nil)
		stream := log.stream("stderr")
		for size := max(piece, 1); len(text) > 0; {
			n := min(size, len(text))
			_, _ = stream.Write([]byte(text[:n]))
			text = text[n:]
		}
		stream.flush()
		for line := range strings.Lines(out.String()) {
			assert.Assert(t, strings.HasPrefix(line, "[") || strings.HasPrefix(line, "  "), "%q", line)
			for _, r := range strings.TrimSuffix(line, "\n") {
				assert.Assert(t, unicode.IsPrint(r) || r == '\t' || r == unicode.ReplacementChar, "%q in %q", r, line)
			}
		}
	})
}

func TestADeadlineCountsAlsoWhenThePluginSeesItFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.Assert(t, !hasEnded(ctx))
		time.Sleep(time.Minute - time.Millisecond) // of the bubble's clock
		assert.Assert(t, hasEnded(ctx))
		assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	})
}

func TestTheTailKeepsTheEnd(t *testing.T) {
	var kept tail
	for i := range 20_000 {
		fmt.Fprintf(&kept, "line %d\n", i)
	}
	text, cut := kept.text()
	assert.Assert(t, cut)
	assert.Assert(t, len(text) <= tailSize && len(text) > tailSize-20)
	assert.Assert(t, strings.HasSuffix(text, "line 19999"))
	_, _ = kept.Write([]byte(strings.Repeat("z", 3*tailSize)))
	text, cut = kept.text()
	assert.Assert(t, cut)
	assert.Equal(t, text, strings.Repeat("z", tailSize))
}

func TestTheBackoffGrowsAndOpens(t *testing.T) {
	b := Backoff{Min: 100 * time.Millisecond, Max: time.Second, Retry: time.Minute, Opens: 8}
	assert.Equal(t, b.pause(1), time.Duration(0))
	b.Stable = time.Minute
	assert.Equal(t, b.forgive(7, time.Second, false), 7)
	assert.Equal(t, b.forgive(7, time.Minute, false), 0)
	assert.Equal(t, b.forgive(7, time.Second, true), 5)
	assert.Equal(t, b.forgive(2, time.Second, true), 2)
	assert.Assert(t, b.pause(b.forgive(100, 0, true)+1) < b.Retry/2, "a plugin that works between its deaths is not given up")
	for failures, middle := range map[int]time.Duration{
		2: 100 * time.Millisecond, 3: 200 * time.Millisecond, 5: 800 * time.Millisecond,
		6: time.Second, 7: time.Second, 8: time.Minute, 100: time.Minute,
	} {
		for range 100 {
			pause := b.pause(failures)
			assert.Assert(t, pause >= middle*3/4 && pause <= middle*5/4, "%d: %v", failures, pause)
		}
	}
}
