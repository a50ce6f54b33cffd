package disk_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/disk"
)

func newMeter(bound time.Duration) (*disk.Meter, *bytes.Buffer) {
	said := &bytes.Buffer{}
	return disk.NewMeter(disk.Options{
		Of: "audit log", Logger: hclog.New(&hclog.LoggerOptions{Output: said}), Bound: func() time.Duration { return bound },
	}), said
}

func TestASlowDiskIsToldOfWhileItLasts(t *testing.T) {
	for name, test := range map[string]struct {
		bound, told time.Duration
	}{
		"after a second": {30 * time.Second, time.Second},
		"earlier where requests are refused earlier": {time.Second, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, said := newMeter(test.bound)
				end := m.Begin()
				time.Sleep(test.told - time.Millisecond)
				synctest.Wait()
				assert.Equal(t, said.String(), "")
				assert.Equal(t, m.State().Waiting, test.told-time.Millisecond)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				assert.Check(t, is.Contains(said.String(), `the disk is slow; requests wait for it, each until its own deadline: of="audit log"`))
				assert.Check(t, is.Contains(said.String(), "refused_after="+test.bound.String()))
				end()
				assert.Equal(t, m.State().Waiting, time.Duration(0))
			})
		})
	}
}

// A disk that stays slow is told of once, and its recovery once.
func TestTheLogTellsOfATimeAndNotOfEachWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, said := newMeter(30 * time.Second)
		for _, took := range []time.Duration{2 * time.Second, 12 * time.Second, 3 * time.Second} {
			end := m.Begin()
			time.Sleep(took)
			end()
		}
		assert.Equal(t, strings.Count(said.String(), "\n"), 1, said.String())
		m.Begin()()
		assert.Equal(t, strings.Count(said.String(), "\n"), 2, said.String())
		assert.Check(t, is.Contains(said.String(), `the disk is no longer slow: of="audit log" slow_writes=3 longest=12s`))
		m.Begin()()
		assert.Equal(t, strings.Count(said.String(), "\n"), 2, said.String())
	})
}

func TestWaitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newMeter(30 * time.Second)
		for _, took := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 2 * time.Minute} {
			end := m.Begin()
			time.Sleep(took)
			end()
		}
		state := m.State()
		assert.Equal(t, state.Count, uint64(3))
		assert.Equal(t, state.Sum, 2*time.Minute+41*time.Millisecond)
		assert.Equal(t, state.Buckets[.0005], uint64(0))
		assert.Equal(t, state.Buckets[.001], uint64(1))
		assert.Equal(t, state.Buckets[.05], uint64(2))
		assert.Equal(t, state.Buckets[60], uint64(2))
	})
}
