package quota_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

// A million operations race for little, and everything that is granted is counted
// by the test itself too.
func TestAMillionRacingOperationsGrantNothingTooMuch(t *testing.T) {
	const workers = 16
	operations := 1_000_000
	if testing.Short() {
		operations /= 10
	}
	limits := quota.Limits{
		Instances: 5, Concurrent: 7, ExecutionsPerDay: 300_000, ExecutionTimePerDay: 400_000 * time.Second,
		MoneyPerDay: quota.MoneyOf(1_000_000),
	}
	k := keeper(t, limits)
	var instances, concurrent, executions, over atomic.Int64
	enter := func(n *atomic.Int64, most int64) {
		if n.Add(1) > most {
			over.Add(1)
		}
	}
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			var held []func()
			release := func() {
				held[0]()
				held = held[1:]
			}
			for range operations / workers {
				if len(held) > 0 && random.IntN(2) == 0 {
					release()
					continue
				}
				d := execution(time.Second)
				d.Instance, d.Execution = random.IntN(3) == 0, random.IntN(3) > 0
				d.Provider = "cloud"
				g, err := k.Admit(context.Background(), d)
				if err != nil {
					continue
				}
				if d.Execution {
					g.Execution.Start()
					enter(&executions, limits.ExecutionsPerDay)
					enter(&concurrent, limits.Concurrent)
				}
				if d.Instance {
					enter(&instances, limits.Instances)
				}
				held = append(held, func() {
					if d.Execution {
						concurrent.Add(-1)
					}
					if d.Instance {
						instances.Add(-1)
					}
					g.Release()
				})
			}
			for len(held) > 0 {
				release()
			}
		})
	}
	group.Wait()
	assert.Equal(t, over.Load(), int64(0))
	assert.Equal(t, used(t, k, quota.MaxInstances), 0.0)
	assert.Equal(t, used(t, k, quota.MaxConcurrent), 0.0)
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), float64(executions.Load()))
	t.Logf("%d executions were granted", executions.Load())
}

func BenchmarkReserveAndSettle(b *testing.B) {
	k := keeper(b, quota.Limits{Concurrent: 1000, ExecutionsPerDay: 1_000_000_000})
	for b.Loop() {
		g, err := k.Admit(context.Background(), execution(time.Second))
		if err != nil {
			b.Fatal(err)
		}
		g.Execution.Start()
		g.Release()
	}
}

func BenchmarkReserveAndSettleWith16(b *testing.B) {
	k := keeper(b, quota.Limits{Concurrent: 1000, ExecutionsPerDay: 1_000_000_000})
	b.SetParallelism(8) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			g, err := k.Admit(context.Background(), execution(time.Second))
			if err != nil {
				b.Error(err)
				return
			}
			g.Execution.Start()
			g.Release()
		}
	})
}
