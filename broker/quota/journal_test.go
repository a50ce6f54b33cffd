package quota_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// disk is a journal in memory.
type disk struct {
	mu      sync.Mutex
	records map[string]quota.Record
	upTo    quota.Position
	saves   int
	err     error
	hold    chan struct{} // if not nil, Save waits for it
}

func (d *disk) Load() (map[string]quota.Record, quota.Position, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.records), d.upTo, nil
}

func (d *disk) Save(_ context.Context, records map[string]quota.Record, upTo quota.Position) error {
	d.mu.Lock()
	hold := d.hold
	d.mu.Unlock()
	if hold != nil {
		<-hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	if d.records == nil {
		d.records = map[string]quota.Record{}
	}
	maps.Copy(d.records, records)
	d.upTo = upTo
	d.saves++
	return nil
}

func (d *disk) acme() quota.Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.records["acme"]
}

func on(d *disk) func(*quota.Options) {
	return func(o *quota.Options) { o.Journal = d }
}

func TestWhatIsGrantedIsDurableBefore(t *testing.T) {
	d := &disk{}
	c := noon()
	limits := quota.Limits{ExecutionsPerDay: 5, ExecutionTimePerDay: 50 * time.Second, MoneyPerDay: quota.MoneyOf(1)}
	k := keeper(t, limits, on(d), at(c))
	admit(t, k, execution(10*time.Second))
	assert.Equal(t, d.acme().Executions, int64(1))
	assert.Equal(t, d.acme().ExecutionTime, 10*time.Second)
	life := admit(t, k, instanceOn("cloud")).Instance
	assert.Equal(t, d.acme().MoneyDay, quota.MoneyOf(0.6))
	assert.NilError(t, life.Cover(context.Background(), c.Now().Add(70*time.Second)))
	assert.Equal(t, d.acme().MoneyMonth, quota.MoneyOf(0.7))

	// The broker is killed; the next one goes on from the disk, where what was
	// reserved is used.
	next := keeper(t, limits, on(&disk{records: map[string]quota.Record{"acme": d.acme()}}), at(c))
	assert.Equal(t, used(t, next, quota.ExecutionsPerDay), 1.0)
	assert.Equal(t, used(t, next, quota.ExecutionTimePerDay), 10.0)
	assert.Equal(t, used(t, next, quota.MoneyPerDay), 0.7)
	assert.Equal(t, used(t, next, quota.MaxConcurrent), 0.0)
	for range 4 {
		admit(t, next, execution(time.Second))
	}
	_, err := next.Admit(context.Background(), execution(time.Second))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
}

func TestSettlementsAreWrittenToo(t *testing.T) {
	d := &disk{}
	c := noon()
	k := keeper(t, quota.Limits{}, on(d), at(c))
	e := admit(t, k, execution(10*time.Second)).Execution
	e.Start()
	c.forward(time.Second)
	e.Release()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if d.acme().ExecutionTime == time.Second {
			return poll.Success()
		}
		return poll.Continue("%v", d.acme())
	}, poll.WithTimeout(2*time.Minute))
}

func TestCloseWritesWhatIsLeft(t *testing.T) {
	d := &disk{}
	c := noon()
	k, err := quota.NewKeeper(quota.Options{Journal: d, Now: c.Now, Rules: rules(quota.Limits{})})
	assert.NilError(t, err)
	for range 10 {
		admit(t, k, execution(10*time.Second)).Release()
	}
	k.SetRules(rules(quota.Limits{ExecutionsPerDay: 100}))
	k.Close()
	assert.Equal(t, d.acme().ExecutionTime, time.Duration(0))
	_, err = k.Admit(context.Background(), execution(time.Second))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
}

func TestNothingIsGrantedThatCannotBeWritten(t *testing.T) {
	d := &disk{err: sdk.Errorf(sdk.CodeUnavailable, "the disk is full")}
	k := keeper(t, quota.Limits{ExecutionsPerDay: 5, MoneyPerDay: quota.MoneyOf(100)}, on(d))
	both := instanceOn("cloud")
	both.Execution, both.Timeout = true, time.Second
	_, err := k.Admit(context.Background(), both)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	for _, limit := range []quota.Limit{quota.MaxInstances, quota.MaxConcurrent, quota.ExecutionsPerDay, quota.ExecutionTimePerDay, quota.MoneyPerDay} {
		assert.Equal(t, used(t, k, limit), 0.0, "%s", limit)
	}
	d.mu.Lock()
	d.err = nil
	d.mu.Unlock()
	life := admit(t, k, instanceOn("cloud")).Instance
	d.mu.Lock()
	d.err = sdk.Errorf(sdk.CodeUnavailable, "the disk is full")
	d.mu.Unlock()
	before := used(t, k, quota.MoneyPerDay)
	err = life.Cover(context.Background(), time.Now().Add(time.Hour))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	assert.Equal(t, used(t, k, quota.MoneyPerDay), before)
}

func TestThoseWhoComeTogetherWaitForTheDiskTogether(t *testing.T) {
	d := &disk{hold: make(chan struct{})}
	k := keeper(t, quota.Limits{ExecutionsPerDay: 1000}, on(d))
	const many = 200
	var group sync.WaitGroup
	for range many {
		group.Go(func() { admit(t, k, execution(time.Second)) })
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if used(t, k, quota.ExecutionsPerDay) == many {
			return poll.Success()
		}
		return poll.Continue("not all are there")
	}, poll.WithTimeout(2*time.Minute))
	close(d.hold)
	group.Wait()
	assert.Assert(t, d.saves < many/2, "%d writes", d.saves)
	assert.Equal(t, d.acme().Executions, int64(many))
}

func TestACallerThatGoesAwayWhileItIsWrittenTakesNothing(t *testing.T) {
	d := &disk{hold: make(chan struct{})}
	k := keeper(t, quota.Limits{ExecutionTimePerDay: time.Hour}, on(d))
	ctx, cancel := context.WithCancel(context.Background())
	outcome := make(chan error)
	go func() {
		_, err := k.Admit(ctx, execution(time.Second))
		outcome <- err
	}()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if used(t, k, quota.MaxConcurrent) == 1 {
			return poll.Success()
		}
		return poll.Continue("not there yet")
	}, poll.WithTimeout(2*time.Minute))
	cancel()
	assert.ErrorIs(t, <-outcome, context.Canceled)
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 0.0)
	close(d.hold)
}

func TestTheCountsOfADayThatIsOverAreNotGoneOnWith(t *testing.T) {
	c := noon()
	d := &disk{records: map[string]quota.Record{"acme": {
		Day: "2026-11-28", Executions: 5, ExecutionTime: time.Minute, MoneyDay: quota.MoneyOf(1), Month: "2026-11", MoneyMonth: quota.MoneyOf(2),
	}}}
	k := keeper(t, quota.Limits{}, on(d), at(c))
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 0.0)
	assert.Equal(t, used(t, k, quota.MoneyPerDay), 0.0)
	assert.Equal(t, used(t, k, quota.MoneyPerMonth), 2.0)
}

func TestWhatNoLimitHangsOnDoesNotWaitForTheDisk(t *testing.T) {
	d := &disk{hold: make(chan struct{})}
	k := keeper(t, quota.Limits{Instances: 5, Concurrent: 5, RequestsPerSecond: 100}, on(d))
	both := instanceOn("cloud")
	both.Execution, both.Timeout = true, time.Second
	life := admit(t, k, both).Instance
	assert.NilError(t, life.Cover(context.Background(), time.Now().Add(time.Hour)))
	close(d.hold)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if r := d.acme(); r.Executions == 1 && r.MoneyDay > quota.MoneyOf(30) {
			return poll.Success()
		}
		return poll.Continue("%v", d.acme())
	}, poll.WithTimeout(2*time.Minute))
}

func TestACountFromAClockThatWasWrongEnds(t *testing.T) {
	c := noon()
	d := &disk{records: map[string]quota.Record{"acme": {Day: "2036-01-01", Executions: 5, Month: "2036-01", MoneyMonth: quota.MoneyOf(2)}}}
	k := keeper(t, quota.Limits{}, on(d), at(c))
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 0.0)
	assert.Equal(t, used(t, k, quota.MoneyPerMonth), 0.0)
	e := admit(t, k, execution(time.Second)).Execution
	e.Start()
	c.forward(-10 * 365 * 24 * time.Hour)
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 0.0)
	e.Release()
	assert.Equal(t, used(t, k, quota.ExecutionTimePerDay), 0.0)
}
