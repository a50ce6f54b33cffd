package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	server "github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// noon keeps a test within one day.
func noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// keeperOn returns a keeper of the tenant acme that shares the limits with those on the other
// stores.
func keeperOn(t testing.TB, s *postgres.Store, limits quota.Limits) *quota.Keeper {
	t.Helper()
	k, err := quota.NewKeeper(quota.Options{
		Rules: quota.Rules{
			Tenants: map[string]quota.Limits{"acme": limits}, MaxWaiting: 1000,
			Costs: map[string]quota.Money{"cloud": quota.MoneyOf(0.01)},
		},
		Journal: quota.NewStoreJournal(s, nil),
		Now:     noon,
	})
	assert.NilError(t, err)
	t.Cleanup(k.Close)
	assert.NilError(t, k.Share(t.Context(), s.Ledger()))
	return k
}

func keepersOn(t testing.TB, all []*postgres.Store, limits quota.Limits) []*quota.Keeper {
	t.Helper()
	keepers := make([]*quota.Keeper, len(all))
	for n, s := range all {
		keepers[n] = keeperOn(t, s, limits)
	}
	return keepers
}

func execution() quota.Demand {
	return quota.Demand{Tenant: "acme", Execution: true, Timeout: time.Minute}
}

func refusedBy(t testing.TB, err error, limit quota.Limit) {
	t.Helper()
	refusal, ok := errors.AsType[*quota.Refusal](err)
	if assert.Check(t, ok, "%v", err) {
		assert.Check(t, is.Equal(refusal.Limit, limit))
	}
}

// TestSharesOnAServer is what brokers on one database do with the quotas of a tenant.
func TestSharesOnAServer(t *testing.T) {
	s := server.Start(t)
	for name, test := range map[string]func(t *testing.T, url string){
		"all together grant what there is":              grantWhatThereIs,
		"nobody is refused while there is room":         refuseNobodyWithRoom,
		"large parts are found where they are":          findLargeParts,
		"never too many run at a time":                  neverTooMany,
		"who waits is served in turn, whoever is asked": servedInTurn,
		"what a dead broker has in use is free":         deadOnesAreFree,
		"what a dead broker has used is not":            deadOnesHaveUsed,
		"places among the paused":                       placesOfPaused,
		"money":                                         shareMoney,
		"rates are split":                               splitRates,
		"a stop gives back what is not in use":          stopGivesBack,
		"what is kept":                                  whatIsKept,
		"limits change":                                 changeLimits,
		"the database is away":                          databaseAway,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s.Database())
		})
	}
}

// race has requests come to all keepers at once, and returns how many were granted.
func race(t *testing.T, keepers []*quota.Keeper, requests int, d quota.Demand, limit quota.Limit) int64 {
	t.Helper()
	var granted atomic.Int64
	var group sync.WaitGroup
	for n := range requests {
		group.Go(func() {
			grant, err := keepers[n%len(keepers)].Admit(t.Context(), d)
			if err != nil {
				refusedBy(t, err, limit)
				return
			}
			granted.Add(1)
			grant.Execution.Start()
			grant.Execution.Release()
		})
	}
	group.Wait()
	return granted.Load()
}

func grantWhatThereIs(t *testing.T, url string) {
	keepers := keepersOn(t, brokers(t, url, "a", "b", "c"), quota.Limits{ExecutionsPerDay: 200, Concurrent: 1000})
	assert.Equal(t, race(t, keepers, 600, execution(), quota.ExecutionsPerDay), int64(200))
	assert.Equal(t, race(t, keepers, 30, execution(), quota.ExecutionsPerDay), int64(0))
}

func refuseNobodyWithRoom(t *testing.T, url string) {
	keepers := keepersOn(t, brokers(t, url, "a", "b", "c"), quota.Limits{ExecutionsPerDay: 100})
	assert.Equal(t, race(t, keepers[:1], 10, execution(), quota.ExecutionsPerDay), int64(10), "the others have taken nothing")
	assert.Equal(t, race(t, keepers, 60, execution(), quota.ExecutionsPerDay), int64(60))
	assert.Equal(t, race(t, keepers[2:], 30, execution(), quota.ExecutionsPerDay), int64(30), "also what the others had in reserve")
	assert.Equal(t, race(t, keepers, 3, execution(), quota.ExecutionsPerDay), int64(0))
}

func findLargeParts(t *testing.T, url string) {
	keepers := keepersOn(t, brokers(t, url, "a", "b", "c"), quota.Limits{ExecutionTimePerDay: time.Hour})
	for _, k := range keepers { // each has a reserve then
		grant, err := k.Admit(t.Context(), execution())
		assert.NilError(t, err)
		grant.Execution.Cancel()
	}
	all := execution()
	all.Timeout = time.Hour
	grant, err := keepers[1].Admit(t.Context(), all)
	assert.NilError(t, err)
	_, err = keepers[0].Admit(t.Context(), execution())
	refusedBy(t, err, quota.ExecutionTimePerDay)
	grant.Execution.Cancel()
	all.Timeout = 50 * time.Minute
	inAMoment(t, func() error {
		_, err := keepers[0].Admit(t.Context(), all)
		return err
	})
}

// inAMoment does what can be done once another broker has told what it does not use any more.
func inAMoment(t *testing.T, do func() error) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if err := do(); err != nil {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func neverTooMany(t *testing.T, url string) {
	const most = 5
	keepers := keepersOn(t, brokers(t, url, "a", "b", "c"), quota.Limits{Concurrent: most, Instances: most})
	var now, peak atomic.Int64
	var group sync.WaitGroup
	for n := range 60 {
		group.Go(func() {
			d := execution()
			d.Instance, d.Provider, d.Wait = true, "local", time.Minute
			for range 5 {
				grant, err := keepers[n%len(keepers)].Admit(t.Context(), d)
				if !assert.Check(t, err) {
					return
				}
				running := now.Add(1)
				for had := peak.Load(); running > had && !peak.CompareAndSwap(had, running); had = peak.Load() {
				}
				now.Add(-1)
				grant.Execution.Release()
				grant.Instance.Release()
			}
		})
	}
	group.Wait()
	assert.Check(t, peak.Load() <= most, "%d at a time", peak.Load())
	// All are there again.
	for n := range most {
		inAMoment(t, func() error {
			_, err := keepers[n%len(keepers)].Admit(t.Context(), execution())
			return err
		})
	}
	_, err := keepers[0].Admit(t.Context(), execution())
	refusedBy(t, err, quota.MaxConcurrent)
}

func servedInTurn(t *testing.T, url string) {
	stores := brokers(t, url, "a", "b", "c")
	keepers := keepersOn(t, stores, quota.Limits{Instances: 1})
	d := quota.Demand{Tenant: "acme", Instance: true, Provider: "local", Wait: time.Minute, Arrived: noon()}
	first, err := keepers[0].Admit(t.Context(), d)
	assert.NilError(t, err)
	served := make(chan string, 6)
	var group sync.WaitGroup
	for n := range 6 {
		name, k := fmt.Sprint(n, " at ", n%3), keepers[n%3]
		d := d
		d.Arrived = noon().Add(time.Duration(n-6) * time.Hour) // they came in this order
		group.Go(func() {
			grant, err := k.Admit(t.Context(), d)
			if assert.Check(t, err) {
				served <- name
				grant.Instance.Release()
			}
		})
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			var known int
			if err := stores[0].QueryRow(t.Context(), `SELECT coalesce(sum(cardinality(waits)), 0) FROM sandbox_share WHERE quota = 'max_instances'`, &known); err != nil || known <= n {
				return poll.Continue("%d wait, %v", known, err)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
	}
	first.Instance.Release()
	group.Wait()
	close(served)
	var order []string
	for name := range served {
		order = append(order, name)
	}
	assert.DeepEqual(t, order, []string{"0 at 0", "1 at 1", "2 at 2", "3 at 0", "4 at 1", "5 at 2"})
}

func deadOnesAreFree(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	limits := quota.Limits{Concurrent: 4}
	keepers := keepersOn(t, all, limits)
	for range 3 {
		_, err := keepers[0].Admit(t.Context(), execution())
		assert.NilError(t, err)
	}
	assert.Equal(t, takes(t, keepers[1]), 1)
	dies(t, all[0], all[1])
	assert.Equal(t, takes(t, keepers[1]), 3)
}

// takes is how many executions may run besides.
func takes(t *testing.T, k *quota.Keeper) (n int) {
	t.Helper()
	for {
		if _, err := k.Admit(t.Context(), execution()); err != nil {
			refusedBy(t, err, quota.MaxConcurrent)
			return n
		}
		n++
	}
}

func deadOnesHaveUsed(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	limits := quota.Limits{ExecutionsPerDay: 100}
	keepers := keepersOn(t, all, limits)
	assert.Equal(t, race(t, keepers[:1], 10, execution(), quota.ExecutionsPerDay), int64(10))
	dies(t, all[0], all[1])
	left := race(t, keepers[1:], 100, execution(), quota.ExecutionsPerDay)
	assert.Check(t, left <= 90 && left >= 90-64, "%d", left)
	// Its next process knows what was used, and gives back the rest.
	o := options(url)
	o.Holder = "directory of a"
	again := keeperOn(t, open(t, o), limits)
	assert.Equal(t, race(t, []*quota.Keeper{again, keepers[1]}, 100, execution(), quota.ExecutionsPerDay), 90-left)
}

func placesOfPaused(t *testing.T, url string) {
	keepers := keepersOn(t, brokers(t, url, "a", "b"), quota.Limits{Paused: 2, Instances: 3})
	var all []*quota.Instance
	for n := range 3 {
		grant, err := keepers[n%2].Admit(t.Context(), quota.Demand{Tenant: "acme", Instance: true, Provider: "local"})
		assert.NilError(t, err)
		all = append(all, grant.Instance)
	}
	for _, i := range all[:2] {
		assert.NilError(t, i.ClaimPause())
		i.Settle(true)
	}
	refusedBy(t, all[2].ClaimPause(), quota.MaxPaused)
	for n := range 2 {
		_, err := keepers[n].Admit(t.Context(), quota.Demand{Tenant: "acme", Instance: true, Provider: "local"})
		assert.NilError(t, err)
	}
	refusedBy(t, all[0].ClaimResume(), quota.MaxInstances)
	all[2].Release()
	inAMoment(t, all[1].ClaimResume)
	all[1].Settle(false)
}

func shareMoney(t *testing.T, url string) {
	// A minute costs 0.6.
	keepers := keepersOn(t, brokers(t, url, "a", "b", "c"), quota.Limits{MoneyPerDay: quota.MoneyOf(6), MoneyPerMonth: quota.MoneyOf(100)})
	cloud := quota.Demand{Tenant: "acme", Instance: true, Provider: "cloud"}
	var granted atomic.Int64
	var group sync.WaitGroup
	for n := range 30 {
		group.Go(func() {
			grant, err := keepers[n%3].Admit(t.Context(), cloud)
			if err != nil {
				refusedBy(t, err, quota.MoneyPerDay)
				return
			}
			granted.Add(1)
			refusedOrNil := grant.Instance.Cover(t.Context(), noon().Add(time.Minute))
			assert.Check(t, refusedOrNil, "it is paid")
		})
	}
	group.Wait()
	assert.Equal(t, granted.Load(), int64(10))
}

func splitRates(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	keepers := keepersOn(t, all, quota.Limits{RequestsPerSecond: 100})
	granted := func(k *quota.Keeper) (n int) {
		for range 200 {
			if _, _, err := k.Request("acme"); err == nil {
				n++
			}
		}
		return n
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result { // the first one has begun alone
		for _, line := range keepers[0].Usage("acme").Lines {
			if line.Limit == quota.RequestsPerSecond && line.Used > 0 {
				return poll.Continue("%v", line)
			}
		}
		if remaining, _, err := keepers[0].Request("acme"); err != nil || remaining > 50 {
			return poll.Continue("%v %v", remaining, err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Check(t, granted(keepers[0])+granted(keepers[1]) <= 100)
}

func changeLimits(t *testing.T, url string) {
	stores := brokers(t, url, "a", "b")
	keepers := keepersOn(t, stores, quota.Limits{})
	assert.Equal(t, race(t, keepers, 20, execution(), ""), int64(20))
	to := func(limits quota.Limits) {
		for _, k := range keepers {
			k.SetRules(quota.Rules{Tenants: map[string]quota.Limits{"acme": limits}})
		}
	}
	to(quota.Limits{ExecutionsPerDay: 30})
	// What each has used before is told in a moment.
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var used int
		if err := stores[0].QueryRow(t.Context(), `SELECT coalesce(sum(used), 0) FROM sandbox_share`, &used); err != nil || used != 20 {
			return poll.Continue("%d, %v", used, err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.Equal(t, race(t, keepers, 50, execution(), quota.ExecutionsPerDay), int64(10))
	to(quota.Limits{ExecutionsPerDay: 35})
	assert.Equal(t, race(t, keepers, 50, execution(), quota.ExecutionsPerDay), int64(5))
	for _, k := range keepers {
		k.Forget(func(string) bool { return false })
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if granted := race(t, keepers, 1, execution(), quota.ExecutionsPerDay); granted == 0 {
			return poll.Continue("it is being told")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func databaseAway(t *testing.T, url string) {
	s := brokers(t, url, "a")[0]
	k := keeperOn(t, s, quota.Limits{ExecutionsPerDay: 1000})
	_, err := k.Admit(t.Context(), execution())
	assert.NilError(t, err)
	assert.NilError(t, s.Exec(t.Context(), `UPDATE sandbox_broker SET epoch = epoch + 1`))
	<-s.Lost()
	poll.WaitOn(t, func(poll.LogT) poll.Result { // until its reserve is used up, or it has noticed
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := k.Admit(ctx, execution()); sdk.CodeOf(err) != sdk.CodeUnavailable {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// whatIsKept has three brokers make snapshots and volumes at once.
func whatIsKept(t *testing.T, url string) {
	all := brokers(t, url, "a", "b", "c")
	type kept struct {
		Tenant, Kind string
		Bytes        int64
	}
	write := func(s *postgres.Store, bucket store.Bucket, key string, r kept) error {
		return s.Update(t.Context(), func(tx store.Tx) error { return store.Put(tx, bucket, key, r) })
	}
	assert.NilError(t, write(all[0], store.Volumes, "old", kept{"acme", "volume", 10}), "from before it is counted")
	for _, s := range all {
		assert.NilError(t, s.LimitKept(t.Context(), func(_ store.Bucket, value []byte) *postgres.Kept {
			var r kept
			if json.Unmarshal(value, &r) != nil || r.Kind == "" {
				return nil
			}
			return &postgres.Kept{Tenant: r.Tenant, Kind: r.Kind, Bytes: r.Bytes, Most: 7, MostBytes: 100}
		}))
	}
	race := func(bucket store.Bucket, r kept, quota string) (n int64) {
		var made atomic.Int64
		var group sync.WaitGroup
		for n := range 30 {
			group.Go(func() {
				err := write(all[n%3], bucket, fmt.Sprint(r, n), r)
				if err == nil {
					made.Add(1)
					return
				}
				assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeQuotaExceeded), "%v", err)
				assert.Check(t, is.ErrorContains(err, quota))
			})
		}
		group.Wait()
		return made.Load()
	}
	assert.Equal(t, race(store.Snapshots, kept{"acme", "snapshot", 0}, "max_snapshots = 7"), int64(7))
	assert.Equal(t, race(store.Snapshots, kept{"acme", "transient", 0}, "max_snapshots = 7"), int64(7))
	assert.Equal(t, race(store.Snapshots, kept{"rival", "snapshot", 30}, "max_snapshot_bytes = 100"), int64(3))
	assert.Equal(t, race(store.Volumes, kept{"acme", "volume", 20}, "max_volume_bytes = 100"), int64(4), "with the one of before")
	// One grows, and one counts no more.
	assert.ErrorContains(t, write(all[0], store.Volumes, "old", kept{"acme", "volume", 21}), "max_volume_bytes = 100")
	assert.NilError(t, write(all[0], store.Volumes, "old", kept{"acme", "", 0}))
	assert.NilError(t, write(all[1], store.Volumes, "new", kept{"acme", "volume", 20}))
	assert.ErrorContains(t, write(all[2], store.Volumes, "more", kept{"acme", "volume", 1}), "max_volume_bytes = 100")
}

// BenchmarkAdmit is what an execution pays for that the limits are shared: alone, of plenty, and
// where there is one place for all.
func BenchmarkAdmit(b *testing.B) {
	url := server.Start(b).Database()
	plenty := quota.Limits{Concurrent: 100, ExecutionsPerDay: 1 << 40, ExecutionTimePerDay: 1 << 60}
	o := options(url)
	shared := quota.Options{Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": plenty, "tight": {Concurrent: 1}}}, Now: noon}
	s := open(b, o)
	for name, tenant := range map[string]string{"alone": "acme", "plenty": "acme", "tight": "tight"} {
		b.Run(name, func(b *testing.B) {
			k, err := quota.NewKeeper(shared)
			assert.NilError(b, err)
			defer k.Close()
			if name != "alone" {
				assert.NilError(b, k.Share(b.Context(), s.Ledger()))
			}
			d := execution()
			d.Tenant = tenant
			for b.Loop() {
				grant, err := k.Admit(b.Context(), d)
				if err != nil {
					b.Fatal(err)
				}
				grant.Execution.Start()
				grant.Execution.Release()
			}
		})
	}
}

func stopGivesBack(t *testing.T, url string) {
	s := brokers(t, url, "a")[0]
	k, err := quota.NewKeeper(quota.Options{
		Rules: quota.Rules{Tenants: map[string]quota.Limits{"acme": {ExecutionsPerDay: 1000, Concurrent: 100}}}, Now: noon,
	})
	assert.NilError(t, err)
	assert.NilError(t, k.Share(t.Context(), s.Ledger()))
	assert.Check(t, is.Equal(race(t, []*quota.Keeper{k}, 10, execution(), ""), int64(10)))
	k.Close()
	var held string
	assert.NilError(t, s.QueryRow(t.Context(), `SELECT string_agg(quota || ' ' || held, ', ' ORDER BY quota) FROM sandbox_share`, &held))
	assert.Equal(t, held, "executions_per_day 10, max_concurrent 0")
}
