package audit_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

var (
	seed    = flag.Uint64("seed", 0, "of the faults; random unless given")
	effects = flag.Int("effects", 10_000, "how many there are among the faults; the figure that is published is for 100,000")
)

// durableBegins knows the effects whose first line is on disk.
type durableBegins struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (d *durableBegins) add(synced []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for text := range bytes.Lines(synced) {
		if l, err := audit.ParseLine(bytes.TrimSuffix(text, []byte("\n"))); err == nil && l.Event == audit.EventBegin {
			d.ids[l.EffectID] = true
		}
	}
}

func (d *durableBegins) has(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[id]
}

// Whatever fails: no effect without a line that was on disk before it, and in the
// end each has the line of its outcome, in a chain without a fault.
func TestNoEffectAmongFaultsIsWithoutItsLine(t *testing.T) {
	const workers = 64
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	dir, now, begins := newDir(t), newClock(), &durableBegins{ids: map[string]bool{}}
	var mu sync.Mutex // of chance
	chance := rand.New(rand.NewPCG(*seed, 7))
	sometimes := func(err error) func() error {
		return func() error {
			mu.Lock()
			defer mu.Unlock()
			if chance.IntN(150) == 0 {
				return err
			}
			return nil
		}
	}
	f := &faults{
		write: sometimes(unix.ENOSPC), sync: sometimes(unix.EIO), truncate: sometimes(unix.EIO), open: sometimes(unix.EMFILE),
		half: true, synced: begins.add,
	}
	healthy := func(f *faults) { f.write, f.sync, f.truncate, f.open = nil, nil, nil, nil }
	open0 := f.open
	f.open = nil // until it has begun
	log := open(t, audit.Options{Dir: dir, Open: f.Open, Now: now.Now, RetryEvery: 200 * time.Microsecond, Detail: audit.Detail{MaxBytes: 1 << 20}})
	f.set(func(f *faults) { f.open = open0 })

	var group sync.WaitGroup
	var left, refused, unaudited, unrecorded atomic.Int64
	left.Store(int64(*effects))
	done := make([][]string, workers)
	for w := range workers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				r, err := log.Begin(t.Context(), effect("create"))
				for err != nil {
					refused.Add(1)
					<-time.After(time.Millisecond) // as a client does that was refused
					r, err = log.Begin(t.Context(), effect("create"))
				}
				if !begins.has(audit.IDOf(r)) {
					unaudited.Add(1)
				}
				done[w] = append(done[w], audit.IDOf(r))
				if len(done[w])%500 == 0 {
					now.move(time.Hour)
				}
				if r.End(audit.Outcome{Status: "succeeded"}) != nil {
					unrecorded.Add(1)
				}
			}
		})
	}
	group.Wait()
	f.set(healthy)
	for log.Err() != nil {
		<-time.After(time.Millisecond)
	}
	shut(t, log)

	t.Logf("%d effects, %d refusals, %d told to be without their last line, %+v", *effects, refused.Load(), unrecorded.Load(), log.State())
	assert.Equal(t, unaudited.Load(), int64(0))
	assert.Check(t, refused.Load() > 0 && log.State().Recovered > 0, "the faults were there")
	report := intact(t, dir)
	assert.Equal(t, report.Open, 0)
	assert.Check(t, report.Effects >= *effects)
	var ended []string
	for _, l := range linesOf(t, dir) {
		if l.Event == "end" && l.Status == "succeeded" {
			ended = append(ended, l.EffectID)
		}
	}
	all := slices.Concat(done...)
	slices.Sort(all)
	slices.Sort(ended)
	assert.Equal(t, len(all), *effects)
	assert.Assert(t, slices.Equal(all, ended), "each has one end, and no more")
}
