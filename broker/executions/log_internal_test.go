package executions

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"gotest.tools/v3/assert"
)

// The pieces of a log show in nothing: it is compared with a plain list.
func TestALogIsAListWhosePartsAreForgotten(t *testing.T) {
	seeds := uint64(50)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			l := newLog()
			var list []Event
			next := int64(1)
			if seed%5 == 0 {
				e := Event{Number: 7, Name: "restored", Data: []byte("7")}
				l.restore(e)
				list, next = append(list, e), 8
			}
			for range 500 {
				switch n := random.IntN(20); {
				case n < 12:
					data := bytes.Repeat([]byte{byte(random.Int())}, random.IntN(1+[]int{1, 100, pieceBytes, 3 * pieceBytes}[random.IntN(4)]))
					e, _ := l.append([]string{"stdout", "stderr"}[n%2], data)
					list = append(list, Event{Number: next, Name: e.Name, Data: data})
					next++
				case n < 19:
					cost := l.drop()
					if len(list) > 0 {
						assert.Equal(t, cost, list[0].cost())
						list = list[1:]
					} else {
						assert.Equal(t, cost, int64(0))
					}
				case random.IntN(10) == 0:
					l.clear()
					list = nil
				}
				assert.Equal(t, l.count(), int64(len(list)))
				assert.Equal(t, l.first(), next-int64(len(list)))
				compare(t, &l, list, next, random.Int64N(next+2))
			}
		})
	}
}

// compare reads a log behind a number to its end, in several readings.
func compare(t *testing.T, l *log, list []Event, next, after int64) {
	t.Helper()
	first := next - int64(len(list))
	lost := max(0, first-1-after)
	var want []Event
	if rest := max(after+1, first); rest < next {
		want = list[rest-first:]
	}
	events, gap := l.after(after, pieceBytes)
	assert.Equal(t, gap, lost)
	var sum int64
	for i, e := range events {
		sum += e.cost()
		assert.Assert(t, e.Number == want[i].Number && e.Name == want[i].Name && bytes.Equal(e.Data, want[i].Data), "%d: %d instead of %d", i, e.Number, want[i].Number)
	}
	assert.Assert(t, len(events) > 0 || len(want) == 0)
	assert.Assert(t, sum <= pieceBytes || len(events) == 1)
	assert.Assert(t, len(events) == len(want) || sum+want[len(events)].cost() > pieceBytes)
}

// What a log counts for is what it takes, also of the shortest events.
func TestALogTakesWhatItCounts(t *testing.T) {
	const limit = 16 << 20
	l := newLog()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for l.cost < limit {
		l.append("stdout", []byte(`{"data":"a"}`))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	assert.Check(t, took < limit*5/4, "%d bytes count for %d", took, l.cost)
	runtime.KeepAlive(&l)
}
